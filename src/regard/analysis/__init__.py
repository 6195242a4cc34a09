"""What follows from the formulas of attention, measured: pure functions, which draw nothing."""

from regard.analysis.complexity import (
    MECHANISMS,
    Cost,
    Exponent,
    Setting,
    exponent,
    least_within,
    predicted,
)
from regard.analysis.eviction import eviction
from regard.analysis.gradients import gradient_norms
from regard.analysis.head_outputs import mean_outputs
from regard.analysis.importance import importance
from regard.analysis.jacobian import by_distance, jacobian_norms
from regard.analysis.redundancy import Redundancy, distances, redundancy
from regard.analysis.roles import ROLES, roles
from regard.analysis.scaling import Softmax, softmax_by_width, softmax_gradient
from regard.analysis.sparse_plan import SparseHead, SparsePlan
from regard.analysis.sparsify import sparsify

__all__ = [
    "MECHANISMS",
    "ROLES",
    "Cost",
    "Exponent",
    "Redundancy",
    "Setting",
    "Softmax",
    "SparseHead",
    "SparsePlan",
    "by_distance",
    "distances",
    "eviction",
    "exponent",
    "gradient_norms",
    "importance",
    "jacobian_norms",
    "least_within",
    "mean_outputs",
    "predicted",
    "redundancy",
    "roles",
    "softmax_by_width",
    "softmax_gradient",
    "sparsify",
]
