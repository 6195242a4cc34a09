"""What follows from the formulas of attention, measured: pure functions, which draw nothing."""

from regard.analysis import flow
from regard.analysis.complexity import (
    MECHANISMS,
    Cost,
    Exponent,
    Setting,
    exponent,
    least_within,
    predicted,
)
from regard.analysis.gradients import gradient_norms
from regard.analysis.jacobian import by_distance, jacobian_norms
from regard.analysis.roles import ROLES, roles
from regard.analysis.scaling import Softmax, softmax_by_width, softmax_gradient

__all__ = [
    "MECHANISMS",
    "ROLES",
    "Cost",
    "Exponent",
    "Setting",
    "Softmax",
    "by_distance",
    "exponent",
    "flow",
    "gradient_norms",
    "jacobian_norms",
    "least_within",
    "predicted",
    "roles",
    "softmax_by_width",
    "softmax_gradient",
]
