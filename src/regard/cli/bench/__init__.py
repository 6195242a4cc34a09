"""`regard bench`: Regard beside what else computes attention, on the user's own machine."""

from regard.cli.bench.command import bench

__all__ = ["bench"]
