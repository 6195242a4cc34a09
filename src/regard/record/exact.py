"""Sums that are exact: numbers in fixed point, as digits in base 2³² of int64, whose sum has no rounding.

So a sum is the same bits in whatever order and grouping its terms come, which sums of floats are not.
"""

from __future__ import annotations

from fractions import Fraction
from typing import Any

import numpy as np
import torch
from torch import Tensor

BITS = 32
# Exponents of the digits: numbers below 2⁹⁵, to a multiple of 2⁻⁹⁶.
DIGITS = (32, 0, -32, -64, -96)
# For many small numbers, such as cells of a picture: numbers below 2⁶³, to a multiple of 2⁻³².
SHORT = (0, -32)
MASK = (1 << BITS) - 1


def exact(values: Tensor, digits: tuple[int, ...] = DIGITS) -> Tensor:
    """Numbers as digits, cut to multiples of the last one's unit.

    Args:
        values: `(…)`, of any floating type.
        digits: exponents of the units, each 32 less than the one before it.

    Returns:
        `(…, digits + 1)`, int64. The last place counts numbers that are none: NaN, infinite, too large.
    """
    rest = values.detach().cpu().double()
    broken = ~(rest.abs() < 2.0 ** (digits[0] + 63))
    rest = torch.where(broken, 0.0, rest)
    places = []
    for exponent in digits:
        # Towards 0, so that what is left is exact whatever the sign.
        digit = torch.trunc(rest * 2.0**-exponent)
        rest = rest - digit * 2.0**exponent
        places.append(digit.long())
    return normalized(torch.stack((*places, broken.long()), -1))


def normalized(sums: Tensor) -> Tensor:
    """The one way to write a number: every digit but the first from 0 to 2³² − 1."""
    digits = list(sums.unbind(-1))
    for digit in range(len(digits) - 2, 0, -1):
        # An arithmetic shift, as is right for digits that are negative.
        digits[digit - 1] = digits[digit - 1] + (digits[digit] >> BITS)
        digits[digit] = digits[digit] & MASK
    return torch.stack(digits, -1)


def add(a: Tensor, b: Tensor) -> Tensor:
    """The sum of both, element by element."""
    return normalized(a + b)


def total(sums: Tensor, axis: int) -> Tensor:
    """The sum over one axis of the numbers, of at most 2³⁰ elements."""
    return normalized(sums.sum(axis))


def exact_total(values: Tensor, axis: int, digits: tuple[int, ...] = DIGITS) -> Tensor:
    """`total(exact(values, digits), axis)`, the same bits in fewer steps where the numbers are small enough."""
    values = values.detach().cpu().double()
    # Two digits of numbers whose sum is below 2³¹ are one int64 in units of the last digit.
    if (
        digits != SHORT
        or not values.numel()
        or not values.abs().amax() * values.shape[axis] < 2.0 ** (BITS - 1)
    ):
        return total(exact(values, digits), axis)
    units = (values * 2.0 ** -digits[-1]).long().sum(axis)
    return torch.stack((units >> BITS, units & MASK, torch.zeros_like(units)), -1)


def squares(values: Tensor) -> Tensor:
    """The squares of numbers, exact to the last digit, as digits.

    Source: Dekker (1971), the product of two floats as the sum of two.
    """
    values = values.detach().cpu().double()
    product = values * values
    # Halves of the significand, whose products are exact.
    scaled = values * 134217729.0
    high = scaled - (scaled - values)
    low = values - high
    error = ((high * high - product) + 2.0 * high * low) + low * low
    return add(exact(product), exact(torch.where(product.isfinite(), error, 0.0)))


def floats(sums: Tensor, digits: tuple[int, ...] = DIGITS) -> Tensor:
    """The numbers as float64 `(…)`; NaN where one that went in was none."""
    value = torch.zeros(sums.shape[:-1], dtype=torch.float64)
    # From the largest digit on: what cancels is exact, and only the last step rounds.
    for digit, exponent in enumerate(digits):
        value = value + sums[..., digit].double() * 2.0**exponent
    return torch.where(sums[..., -1] > 0, torch.nan, value)


def variances(sums: Tensor, squared: Tensor, counts: Tensor) -> np.ndarray[Any, Any]:
    """Sample variances `(…)`, float64, from exact sums, exact sums of squares and counts `(…)`; NaN for fewer than two.

    No difference of rounded numbers: constants have variance 0, and the mean may be as far off as it likes.
    """
    flat = sums.reshape(-1, sums.shape[-1]).tolist()
    squared_flat = squared.reshape(-1, squared.shape[-1]).tolist()
    values = []
    for one, other, count in zip(flat, squared_flat, counts.flatten().tolist(), strict=True):
        variance = np.nan
        if count > 1 and not one[-1]:
            mean_square = Fraction(_integer(one)) ** 2 / count
            spread = Fraction(_integer(other)) * (1 << -DIGITS[-1]) - mean_square
            variance = max(0.0, float(spread / (count - 1) / (1 << -2 * DIGITS[-1])))
        values.append(variance)
    return np.array(values, dtype=np.float64).reshape(tuple(counts.shape))


def _integer(places: list[int]) -> int:
    """A number in units of its last digit."""
    value = 0
    for digit in places[:-1]:
        value = (value << BITS) + digit
    return value
