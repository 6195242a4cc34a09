"""The keywords of a call: defaults, positions, and what is refused."""

import dataclasses
import math

import pytest
import torch

import regard as rg
from regard.errors import ArgumentError, MaskError, ShapeError
from regard.shapes import Sizes
from regard.spec import Spec
from regard.spec.bias import Alibi, Dense, ScoreMod

SIZES = Sizes(batch=2, heads=6, kv_heads=3, queries=5, keys=11, dim=7, value_dim=13)


def test_defaults():
    spec = Spec.of(SIZES)
    assert spec.scale == 1 / math.sqrt(7)
    assert (spec.mask, spec.bias, spec.softcap, spec.sink_logit) == (None, None, None, None)


def test_queries_stand_at_the_end_unless_said_otherwise():
    assert Spec.of(SIZES).offset == 6
    assert Spec.of(SIZES, align="start").offset == 0
    assert Spec.of(SIZES, align=4).offset == 4
    more_queries = dataclasses.replace(SIZES, queries=13)
    assert Spec.of(more_queries).offset == -2


def test_a_dim_of_zero_has_a_scale():
    assert Spec.of(dataclasses.replace(SIZES, dim=0)).scale == 1.0


def test_a_scale_of_zero_is_a_scale():
    assert Spec.of(SIZES, scale=0).scale == 0.0


def test_it_is_frozen():
    with pytest.raises(dataclasses.FrozenInstanceError):
        Spec.of(SIZES).scale = 2.0


def test_tensors_become_dense_biases_and_rows_move_with_the_first_query():
    dense = Spec.of(SIZES, bias=torch.zeros(5, 11)).bias
    assert isinstance(dense, Dense) and dense.values.shape == (1, 1, 5, 11) and dense.row == 6
    mod = Spec.of(SIZES, bias=ScoreMod(lambda score, b, h, q, k: score)).bias
    assert isinstance(mod, ScoreMod) and mod.row == 6
    assert isinstance(Spec.of(SIZES, bias=rg.alibi(torch.ones(6))).bias, Alibi)


def test_to_moves_the_mask_and_keeps_the_rest():
    sink = torch.zeros(6)
    spec = Spec.of(SIZES, mask=rg.prefix([3, 4]), bias=torch.zeros(5, 11), softcap=3.0, sink_logit=sink)
    moved = spec.to(torch.device("meta"))
    assert moved.mask.length.device.type == "meta"
    for field in ("scale", "offset", "bias", "softcap", "sink_logit"):
        assert getattr(moved, field) is getattr(spec, field)


@pytest.mark.parametrize(
    "keywords, error, message",
    [
        ({"align": "left"}, ArgumentError, r'align must be "end", "start" or the position .*, got .left'),
        ({"align": 1.0}, ArgumentError, r"the position of the first query, got 1.0"),
        ({"align": True}, ArgumentError, r"the position of the first query, got True"),
        ({"scale": math.nan}, ArgumentError, r"scale must be a finite number, got nan"),
        ({"scale": math.inf}, ArgumentError, r"scale must be a finite number, got inf"),
        ({"scale": -0.5}, ArgumentError, r"scale must be at least 0, got -0.5"),
        ({"softcap": 0.0}, ArgumentError, r"softcap must be positive, got 0.0"),
        ({"softcap": -3}, ArgumentError, r"softcap must be positive, got -3"),
        ({"softcap": math.inf}, ArgumentError, r"softcap must be a finite number, got inf"),
        ({"softcap": math.nan}, ArgumentError, r"softcap must be a finite number, got nan"),
        ({"sink_logit": torch.zeros(3)}, ShapeError, r"one logit per head, \(6,\), got \(3,\)"),
        ({"sink_logit": torch.zeros(6, 1)}, ShapeError, r"one logit per head, \(6,\), got \(6, 1\)"),
        ({"sink_logit": 0.5}, ShapeError, r"one logit per head, \(6,\), got float"),
        (
            {"mask": torch.ones(5, 11, dtype=torch.bool)},
            MaskError,
            r"does not say whether True means may attend",
        ),
        ({"mask": "causal"}, MaskError, r"mask must be a mask such as causal\(\).* or None, got str"),
        ({"mask": rg.dense(keep=torch.ones(5, 10) > 0)}, MaskError, r"10"),
        ({"mask": rg.prefix([1, 2, 3])}, MaskError, r"holds 3 batch rows, attention has 2: they must agree"),
        (
            {"mask": rg.documents(torch.zeros(9, dtype=torch.int64))},
            MaskError,
            r"every position must have an id",
        ),
        ({"bias": [[0.0]]}, ArgumentError, r"bias must be a tensor, rg.alibi.* or None, got list"),
        ({"bias": torch.zeros(4, 11)}, ShapeError, r"broadcast to .* = \(2, 6, 5, 11\), got \(1, 1, 4, 11\)"),
        ({"bias": torch.zeros(2, 3, 5, 11)}, ShapeError, r"= \(2, 6, 5, 11\), got \(2, 3, 5, 11\)"),
        (
            {"bias": torch.zeros(6, 5, 11)},
            ShapeError,
            r"must be a floating tensor .* got torch.float32 \(6, 5, 11\)",
        ),
        (
            {"bias": torch.zeros(5, 11).long()},
            ShapeError,
            r"must be a floating tensor .* got torch.int64 \(5, 11\)",
        ),
        ({"bias": rg.alibi(torch.ones(3))}, ShapeError, r"one slope per head, \(6,\), got \(3,\)"),
        ({"bias": rg.relative(torch.zeros(3, 5))}, ShapeError, r"needs 6 rows \(heads\) or 1, got 3"),
    ],
)
def test_keywords_that_do_not_fit(keywords, error, message):
    with pytest.raises(error, match=message):
        Spec.of(SIZES, **keywords)


@pytest.mark.parametrize("shape", [(3, 4), (6,), (1, 2, 3)])
def test_a_relative_table_needs_a_middle(shape):
    with pytest.raises(ShapeError, match=r"a relative table must be \(heads, 2·reach \+ 1\), got "):
        rg.relative(torch.zeros(shape))
