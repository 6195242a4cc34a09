"""Training on `transformers.Trainer`: a recipe, a run that resumes, and the history of every head from step 0.

Knows what Trainer lacks and nothing that it has: optimizer, schedules, precision and devices are Trainer's. The monitor
works in any loop.
"""

from regard.record.history import History
from regard.training.monitor import (
    RULES,
    Alarm,
    MLflowWriter,
    Monitor,
    ParquetWriter,
    Rule,
    TensorBoardWriter,
    WandbWriter,
    Writer,
    entropy_collapse,
    not_finite,
    score_growth,
    uniform_heads,
)
from regard.training.recipe import Recipe
from regard.training.run import Run, train

__all__ = [
    "RULES",
    "Alarm",
    "History",
    "MLflowWriter",
    "Monitor",
    "ParquetWriter",
    "Recipe",
    "Rule",
    "Run",
    "TensorBoardWriter",
    "WandbWriter",
    "Writer",
    "entropy_collapse",
    "not_finite",
    "score_growth",
    "train",
    "uniform_heads",
]
