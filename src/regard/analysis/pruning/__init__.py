"""Heads that are taken out of a model for good: which, how, and what it gains."""

from regard.analysis.pruning.loading import load_pruned
from regard.analysis.pruning.prune import Pruned, prune

__all__ = ["Pruned", "load_pruned", "prune"]
