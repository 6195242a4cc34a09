"""What follows from the formulas of attention, measured: pure functions, which draw nothing."""

from regard.analysis import flow, remedies
from regard.analysis.compare import compare
from regard.analysis.complexity import (
    MECHANISMS,
    Cost,
    Exponent,
    Setting,
    exponent,
    least_within,
    predicted,
)
from regard.analysis.diagnosis import Diagnosis, Finding, diagnose, diagnose_model
from regard.analysis.eviction import eviction
from regard.analysis.eviction_loss import eviction_loss
from regard.analysis.gradients import gradient_norms
from regard.analysis.head_outputs import mean_outputs
from regard.analysis.importance import importance
from regard.analysis.jacobian import by_distance, jacobian_norms
from regard.analysis.position import beyond, distance_profile, spans
from regard.analysis.pruning import Pruned, load_pruned, prune
from regard.analysis.redundancy import Redundancy, distances, redundancy
from regard.analysis.roles import roles
from regard.analysis.scaling import Softmax, softmax_by_width, softmax_gradient
from regard.analysis.sparse_plan import SparseHead, SparsePlan
from regard.analysis.sparsify import sparsify

__all__ = [
    "MECHANISMS",
    "Cost",
    "Diagnosis",
    "Exponent",
    "Finding",
    "Pruned",
    "Redundancy",
    "Setting",
    "Softmax",
    "SparseHead",
    "SparsePlan",
    "beyond",
    "by_distance",
    "compare",
    "diagnose",
    "diagnose_model",
    "distance_profile",
    "distances",
    "eviction",
    "eviction_loss",
    "exponent",
    "flow",
    "gradient_norms",
    "importance",
    "jacobian_norms",
    "least_within",
    "load_pruned",
    "mean_outputs",
    "predicted",
    "prune",
    "redundancy",
    "remedies",
    "roles",
    "softmax_by_width",
    "softmax_gradient",
    "spans",
    "sparsify",
]
