"""What `regard bench` and `benchmarks/` share: the questions, how they are timed, and what the machine is."""
