"""Looking at a model while it trains: what its heads do, alarms where that goes wrong, and where the numbers go.

Knows trainings from outside: a look leaves weights, gradients and random states as they would be without it.
"""

from regard.training.monitor.listener import FILE, MonitorCallback
from regard.training.monitor.monitor import Monitor
from regard.training.monitor.rules import (
    RULES,
    Alarm,
    Rule,
    entropy_collapse,
    not_finite,
    score_growth,
    uniform_heads,
)
from regard.training.monitor.writers import (
    MLflowWriter,
    ParquetWriter,
    TensorBoardWriter,
    WandbWriter,
    Writer,
)

__all__ = [
    "FILE",
    "RULES",
    "Alarm",
    "MLflowWriter",
    "Monitor",
    "MonitorCallback",
    "ParquetWriter",
    "Rule",
    "TensorBoardWriter",
    "WandbWriter",
    "Writer",
    "entropy_collapse",
    "not_finite",
    "score_growth",
    "uniform_heads",
]
