"""What flows from token to token through all layers of a record: rollout, largest flows."""

from regard.analysis.flow.max_flow import max_flow
from regard.analysis.flow.rollout import Rollout, rollout

__all__ = ["Rollout", "max_flow", "rollout"]
