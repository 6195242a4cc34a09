"""Triton's kernels with numbers from 1e-30 to 1e30, NaN, infinities and exact ties, against float64."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from engines.drawn import COMPILED_BIASES, LOW, examples, small
from helpers.cases import found
from helpers.extremes import bounds, extremes, faults

pytestmark = pytest.mark.filterwarnings("ignore::RuntimeWarning:triton")


@pytest.fixture(autouse=True)
def the_same_product_either_way(monkeypatch):
    """A · Bᵀ and B · Aᵀ hold the same numbers, as they do where one unit adds the products in the order of `k`.

    The interpreter multiplies through NumPy, whose order of adding depends on how the factors lie.
    """
    interpreter = pytest.importorskip("triton.runtime.interpreter")
    handle = interpreter.TensorHandle

    def dot(_builder, a, b, d, _precision, _imprecise):
        with np.errstate(all="ignore"):
            product = np.matmul(a.data.astype(np.float64), b.data.astype(np.float64))
            return handle(product.astype(d.data.dtype) + d.data, d.dtype.scalar)

    monkeypatch.setattr(interpreter.InterpreterBuilder, "create_dot", dot)


@examples(20, proof=2_000)
@given(st.data())
def test_numbers_of_any_size(data):
    case = data.draw(extremes(small(), LOW, COMPILED_BIASES))
    top, grid = data.draw(st.sampled_from([0, 1, 3])), data.draw(st.sampled_from([None, 1, 5]))
    seen = case.observe(statistics=list(case.choices.values()), top=top, map=grid, engine="triton")
    known = bounds(case, weights=case.value.dtype)
    assert faults(found(seen), seen.top, case, known) == []
