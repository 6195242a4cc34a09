"""What follows from the formulas of attention, measured: pure functions that return numbers, and draw nothing."""

from regard.analysis.gradients import gradient_norms
from regard.analysis.growth import MECHANISMS, Cost, Exponent, Setting, exponent, predicted
from regard.analysis.jacobian import by_distance, jacobian_norms
from regard.analysis.scaling import Softmax, softmax_by_width, softmax_gradient
from regard.analysis.tradeoff import least_within

__all__ = [
    "MECHANISMS", "Cost", "Exponent", "Setting", "Softmax", "by_distance", "exponent", "gradient_norms",
    "jacobian_norms", "least_within", "predicted", "softmax_by_width", "softmax_gradient",
]  # fmt: skip
