"""What is measured of every query and key: the table of statistics, the state they are read from, observations."""

from regard.statistics.observation import Map, Observation, Top
from regard.statistics.state import State
from regard.statistics.table import TABLE, Choice, Statistic, first, group, local, matching
from regard.statistics.token_groups import token_groups

__all__ = [
    "TABLE",
    "Choice",
    "Map",
    "Observation",
    "State",
    "Statistic",
    "Top",
    "first",
    "group",
    "local",
    "matching",
    "token_groups",
]
