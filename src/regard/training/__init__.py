"""Training on `transformers.Trainer`: a recipe, a run that resumes, and the history of every head from step 0.

Knows what Trainer lacks and nothing that it has: optimizer, schedules, precision and devices are Trainer's.
"""

from regard.record.history import History
from regard.training.monitor import Monitor
from regard.training.recipe import Recipe
from regard.training.run import Run, train

__all__ = ["History", "Monitor", "Recipe", "Run", "train"]
