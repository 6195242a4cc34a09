"""One script per question; each prints its answer and writes it to `benchmarks/results/` as JSON."""
