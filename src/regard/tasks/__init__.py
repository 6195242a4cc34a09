"""Six tasks whose attention can be held against a known truth, each in a folder with its data, models and looks."""

from regard.tasks.common.catalogue import NAMES, tasks
from regard.tasks.common.looks import LOOKED, look
from regard.tasks.common.result import Looked

__all__ = ["LOOKED", "NAMES", "Looked", "look", "tasks"]
