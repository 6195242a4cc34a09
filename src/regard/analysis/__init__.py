"""What follows from the formulas of attention, measured: pure functions, which draw nothing."""

from regard.analysis.gradients import gradient_norms
from regard.analysis.growth import MECHANISMS, Cost, Exponent, Setting, exponent, predicted
from regard.analysis.jacobian import by_distance, jacobian_norms
from regard.analysis.roles import ROLES, roles
from regard.analysis.scaling import Softmax, softmax_by_width, softmax_gradient
from regard.analysis.tradeoff import least_within

__all__ = [
    "MECHANISMS", "ROLES", "Cost", "Exponent", "Setting", "Softmax", "by_distance", "exponent", "gradient_norms",
    "jacobian_norms", "least_within", "predicted", "roles", "softmax_by_width", "softmax_gradient",
]  # fmt: skip
