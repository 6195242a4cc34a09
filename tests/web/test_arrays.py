"""Arrays travel whole: every type, shape and value, with what JSON can hold beside them."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

from regard.web.arrays import log_weights, pack, unpack

SHAPES = arrays.array_shapes(min_dims=0, max_dims=4, min_side=0, max_side=7)
TYPES = st.sampled_from([np.float16, np.float32, np.float64, np.int32, np.int64, np.uint8])
JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**40), 2**40) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
)


@given(
    values=st.dictionaries(
        st.text("abc.0", min_size=1), TYPES.flatmap(lambda kind: arrays.arrays(kind, SHAPES))
    ),
    info=JSON.filter(lambda value: value is not None),
)
@settings(max_examples=30)
def test_what_is_packed_comes_back(values, info):
    back, told = unpack(pack(values, info))
    assert told == info and back.keys() == values.keys()
    for name, array in values.items():
        assert back[name].dtype == array.dtype and np.array_equal(
            back[name], array, equal_nan=array.dtype.kind == "f"
        )


def test_tensors_are_packed_wherever_they_come_from():
    whole = torch.arange(24.0).view(2, 3, 4).requires_grad_()
    back, told = unpack(pack({"part": whole[:, 1:, ::2], "other": whole.mT}))
    assert told is None
    assert np.array_equal(back["part"], whole.detach()[:, 1:, ::2]) and np.array_equal(
        back["other"], whole.detach().mT
    )


def test_what_json_has_not_is_refused():
    with pytest.raises(ValueError, match="not JSON compliant"):
        pack({}, {"entropy": float("nan")})


@given(weights=st.lists(st.floats(0, 1, width=32), min_size=1))
def test_logarithms_are_right_to_half_a_step_of_float16(weights):
    tensor = torch.tensor(weights, dtype=torch.float32)
    logs = log_weights(tensor)
    assert logs.dtype == torch.float16
    exact = tensor.double().log()
    assert torch.equal(logs == -torch.inf, tensor == 0)
    kept = tensor > 0
    assert bool(((logs.double() - exact)[kept].abs() <= 2.0**-11 * exact[kept].abs() + 2.0**-24).all())
