"""Six tasks whose attention can be held against a known truth, each in a folder with its data, models and looks."""

from regard.tasks.common.catalogue import NAMES, tasks
from regard.tasks.common.looks import LOOKS, look
from regard.tasks.common.result import Result

__all__ = ["LOOKS", "NAMES", "Result", "look", "tasks"]
