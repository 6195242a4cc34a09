"""Sums in fixed point are the sums of the fractions that floats are, to the bit, in whatever order."""

import math
from fractions import Fraction

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from regard.record.exact import (
    DIGITS,
    SHORT,
    add,
    exact,
    exact_total,
    floats,
    normalized,
    squares,
    total,
    variances,
)

NUMBERS = st.floats(-(2.0**40), 2.0**40, allow_nan=False).filter(lambda x: x == 0 or abs(x) > 2.0**-40)
LISTS = st.lists(NUMBERS, min_size=1, max_size=13)


@given(
    st.lists(st.floats(allow_nan=True) | NUMBERS, min_size=1, max_size=7), st.sampled_from((DIGITS, SHORT))
)
def test_a_sum_in_fewer_steps_is_the_same_bits(numbers, digits):
    values = torch.tensor(numbers, dtype=torch.float64)
    assert torch.equal(exact_total(values, 0, digits), total(exact(values, digits), 0))
    small = values.nan_to_num(0.3, 0.3, -0.3).clamp(-1e6, 1e6)
    assert torch.equal(exact_total(small, 0, SHORT), total(exact(small, SHORT), 0))


def fraction_of(digits, units=DIGITS):
    return sum(Fraction(int(digit)) * Fraction(2) ** unit for digit, unit in zip(digits, units, strict=False))


@given(NUMBERS)
def test_a_number_is_what_it_is(number):
    digits = exact(torch.tensor(number, dtype=torch.float64))
    assert fraction_of(digits) == Fraction(number)
    assert float(floats(digits)) == number
    assert all(0 <= int(digit) < 1 << 32 for digit in digits[1:-1])


@given(LISTS, st.randoms())
def test_a_sum_is_exact_in_every_order(numbers, random):
    terms = [exact(torch.tensor(number, dtype=torch.float64)) for number in numbers]
    summed = total(torch.stack(terms), 0)
    assert fraction_of(summed) == sum(map(Fraction, numbers))
    assert float(floats(summed)) == pytest.approx(math.fsum(numbers), rel=1e-15, abs=0)
    random.shuffle(terms)
    split = random.randrange(len(terms))
    one, other = (sum_of(part) for part in (terms[:split], terms[split:]))
    assert torch.equal(add(one, other), summed)


def sum_of(terms):
    result = torch.zeros(len(DIGITS) + 1, dtype=torch.int64)
    for term in terms:
        result = add(result, term)
    return result


@given(NUMBERS)
def test_a_square_has_no_rounding_above_the_last_digit(number):
    error = fraction_of(squares(torch.tensor(number, dtype=torch.float64))) - Fraction(number) ** 2
    assert abs(error) < Fraction(2) ** (DIGITS[-1] + 1)


@given(st.lists(st.floats(-1e3, 1e3), min_size=2, max_size=11), st.sampled_from((0.0, 1.0, 2.0**35)))
def test_a_variance_does_not_cancel(numbers, far):
    values = torch.tensor(numbers, dtype=torch.float64) + far
    summed, squared = total(exact(values), 0)[None], total(squares(values), 0)[None]
    found = variances(summed, squared, torch.tensor([len(numbers)]))
    mean = sum(map(Fraction, values.tolist())) / len(numbers)
    truth = sum((Fraction(value) - mean) ** 2 for value in values.tolist()) / (len(numbers) - 1)
    assert found[0] == pytest.approx(float(truth), rel=1e-9, abs=1e-24)


def test_fewer_than_two_have_no_variance():
    values = exact(torch.ones(2, dtype=torch.float64))
    assert np.isnan(variances(values, values, torch.tensor([0, 1]))).all()


def test_what_is_no_number_is_counted_and_comes_back_as_nan():
    values = torch.tensor([1.0, torch.nan, torch.inf, -torch.inf, 2.0**96])
    digits = exact(values)
    assert digits[:, -1].tolist() == [0, 1, 1, 1, 1]
    assert floats(digits).isnan().tolist() == [False, True, True, True, True]
    assert torch.equal(squares(values)[:, -1] > 0, digits[:, -1] > 0)


def test_short_digits_are_cut_and_negative_ones_have_one_way_to_be_written():
    digits = exact(torch.tensor([-0.5, 0.1], dtype=torch.float64), SHORT)
    assert digits[0].tolist() == [-1, 1 << 31, 0]
    assert floats(digits, SHORT)[0] == -0.5
    assert 0 <= 0.1 - float(floats(digits, SHORT)[1]) < 2.0**-32
    assert torch.equal(normalized(digits), digits)
