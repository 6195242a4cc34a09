"""Training on `transformers.Trainer`: a recipe, a run that resumes, and the life of every head from step 0.

Knows what Trainer lacks and nothing that it has: optimiser, schedules, precision and devices are Trainer's.
"""

from regard.training.life import Life
from regard.training.probe import Probe
from regard.training.recipe import Recipe
from regard.training.run import Run, train

__all__ = ["Life", "Probe", "Recipe", "Run", "train"]
