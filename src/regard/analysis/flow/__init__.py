"""What flows from token to token through all layers of a record: rollout, largest flows, norms of what is given."""

from regard.analysis.flow.max_flow import max_flow
from regard.analysis.flow.norms import CallNorms, Norms, norms
from regard.analysis.flow.rollout import Rollout, rollout
from regard.analysis.flow.token_norms import token_norms

__all__ = ["CallNorms", "Norms", "Rollout", "max_flow", "norms", "rollout", "token_norms"]
