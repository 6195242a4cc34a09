"""What a user does wrong is said in words: what must hold, and what was got. No verb fails in another way."""

import math

import numpy as np
import pytest
import torch

import regard as rg
from helpers.cases import draw_tensors
from regard import errors
from regard.errors import (
    ArgumentError,
    EngineError,
    MaskError,
    MissingPackageError,
    RegardError,
    ShapeError,
    require,
)

QUERY, KEY, VALUE = draw_tensors(2, 6, 3, 5, 11, 7, 13)
VERBS = {
    "attend": rg.attend,
    "observe": rg.observe,
    "weights": lambda query, key, value, **keywords: rg.weights(query, key, **keywords),
}
every_verb = pytest.mark.parametrize("verb", VERBS.values(), ids=VERBS.keys())


@every_verb
@pytest.mark.parametrize(
    "changed, message",
    [
        ({"query": QUERY[0]}, r"query must have 4 axes \(batch, heads, tokens, dim\), got \(6, 5, 7\)"),
        ({"key": KEY[:, :, :, :5]}, r"query and key must have one dim, got 7 and 5"),
        ({"key": KEY[:1]}, r"batch sizes must agree, got 2 for query, 1 for key"),
        ({"query": QUERY[:, :5]}, r"heads must be a multiple of kv_heads, got 5 heads and 3 kv_heads"),
        ({"key": KEY.float()}, r"must share one dtype and device, got torch.float64"),
        ({"query": [[1.0]]}, r"query must be a torch.Tensor, got list"),
    ],
)
def test_tensors(verb, changed, message):
    tensors = {"query": QUERY, "key": KEY, "value": VALUE} | changed
    with pytest.raises(ShapeError, match=message):
        verb(**tensors)


@pytest.mark.parametrize("verb", [rg.attend, rg.observe])
def test_values(verb):
    with pytest.raises(
        ShapeError, match=r"key and value must agree in kv_heads and keys, got .*11, 7.* and .*10, 13"
    ):
        verb(QUERY, KEY, VALUE[:, :, :10])
    with pytest.raises(
        ShapeError, match=r"got torch.float64 on cpu for query and torch.float16 on cpu for value"
    ):
        verb(QUERY, KEY, VALUE.half())


@every_verb
@pytest.mark.parametrize(
    "keywords, error, message",
    [
        (
            {"mask": torch.ones(5, 11) > 0},
            MaskError,
            r"does not say whether True means .*dense\(keep=…\).*dense\(drop=…\)",
        ),
        (
            {"mask": torch.zeros(5, 11)},
            MaskError,
            r"dense\(additive=…\).*got a torch.float32 tensor of shape \(5, 11\)",
        ),
        (
            {"mask": True},
            MaskError,
            r"mask must be a mask such as causal\(\) or near\(3\), or None, got bool",
        ),
        ({"mask": rg.dense(keep=torch.ones(11, 5) > 0)}, MaskError, r"it holds 11 × 5, attention has 5 × 11"),
        (
            {"mask": rg.dense(keep=torch.ones(3, 1, 5, 11) > 0)},
            MaskError,
            r"holds 3 batch rows, attention has 2",
        ),
        ({"mask": rg.dense(keep=torch.ones(2, 3, 5, 11) > 0)}, MaskError, r"holds 3 heads, attention has 6"),
        (
            {"mask": rg.causal() & rg.padding([12, 3])},
            MaskError,
            r"real tokens must end within the sequence, got .* 12",
        ),
        ({"mask": rg.documents([0, 1])}, MaskError, r"every position must have an id, got 11 keys"),
        ({"scale": -1.0}, ArgumentError, r"scale must be at least 0, got -1.0"),
        ({"scale": math.nan}, ArgumentError, r"scale must be a finite number, got nan"),
        ({"softcap": 0}, ArgumentError, r"softcap must be positive, got 0"),
        ({"softcap": math.inf}, ArgumentError, r"softcap must be a finite number, got inf"),
        ({"align": "middle"}, ArgumentError, r'align must be "end", "start" or the position .*, got .middle'),
        (
            {"bias": 0.5},
            ArgumentError,
            r"bias must be a tensor, rg.alibi\(…\), rg.relative\(…\) or None, got float",
        ),
        ({"bias": torch.zeros(11, 5)}, ShapeError, r"broadcast to .* = \(2, 6, 5, 11\), got \(1, 1, 11, 5\)"),
        ({"bias": rg.alibi([1.0, 2.0])}, ShapeError, r"one slope per head, \(6,\), got \(2,\)"),
        ({"sink_logit": torch.zeros(1)}, ShapeError, r"one logit per head, \(6,\), got \(1,\)"),
    ],
)
def test_keywords(verb, keywords, error, message):
    with pytest.raises(error, match=message):
        verb(QUERY, KEY, VALUE, **keywords)


@every_verb
def test_a_keyword_that_does_not_exist(verb):
    with pytest.raises(TypeError, match=r"is_causal"):
        verb(QUERY, KEY, VALUE, is_causal=True)


@pytest.mark.parametrize("dropout", [-0.1, 1.0, 1.5, math.nan])
def test_dropout(dropout):
    with pytest.raises(ArgumentError, match=rf"dropout must be at least 0 and below 1, got {dropout}"):
        rg.attend(QUERY, KEY, VALUE, dropout=dropout)


@pytest.mark.parametrize(
    "keywords, message",
    [
        ({"statistics": "entropi"}, r"unknown statistic 'entropi'; did you mean 'entropy'\?"),
        ({"statistics": ["lse", "recieved"]}, r"unknown statistic 'recieved'; did you mean 'received'"),
        ({"statistics": ["output"]}, r"unknown statistic 'output'"),
        ({"top": -1}, r"top must be at least 0, got -1"),
        ({"map": 0}, r"map must be at least 1 cell a side, got 0"),
        ({"map": -3}, r"map must be at least 1 cell a side, got -3"),
    ],
)
def test_what_observe_cannot_be_asked(keywords, message):
    with pytest.raises(ArgumentError, match=message):
        rg.observe(QUERY, KEY, VALUE, **keywords)


@pytest.mark.parametrize(
    "keywords, message",
    [
        ({"rows": 3}, r"rows must be a slice, got 3"),
        ({"columns": [1, 2]}, r"columns must be a slice, got \[1, 2\]"),
        ({"rows": slice(None, None, -1)}, r"rows must go forwards, got step -1"),
    ],
)
def test_windows(keywords, message):
    with pytest.raises(ArgumentError, match=message):
        rg.weights(QUERY, KEY, **keywords)


def test_engines():
    assert rg.observe(QUERY, KEY, engine="tiles").engine == "tiles"
    assert rg.observe(QUERY, KEY).engine in {engine.name for engine in rg.engines.ENGINES}
    with pytest.raises(
        EngineError,
        match=r"""engine must be "auto" or one of \['native', 'triton', 'sdpa', 'tiles'\], got 'flash'""",
    ):
        rg.observe(QUERY, KEY, engine="flash")


def test_an_engine_that_refuses_is_not_replaced(monkeypatch):
    monkeypatch.setattr("regard.engines.tiles.refuses", lambda *_: "it is Sunday")
    with pytest.raises(EngineError, match=r"no engine takes this case: tiles: it is Sunday"):
        rg.observe(QUERY, KEY, engine="tiles")


def test_every_error_is_a_regard_error_and_the_usual_python_one():
    kinds = [kind for kind in vars(errors).values() if isinstance(kind, type) and issubclass(kind, Exception)]
    kinds = [kind for kind in kinds if not issubclass(kind, Warning)]
    assert len(kinds) > 8 and all(issubclass(kind, RegardError) for kind in kinds)
    usual = {
        ShapeError: ValueError,
        MaskError: ValueError,
        ArgumentError: ValueError,
        EngineError: RuntimeError,
    }
    for kind, python in (usual | {MissingPackageError: ImportError}).items():
        assert issubclass(kind, python)
    assert all(kind.__doc__ for kind in kinds)


def test_a_missing_package_says_how_to_get_it():
    assert require("json", extra="none") is __import__("json")
    missing = "no_such_thing.pyplot"
    with pytest.raises(
        MissingPackageError, match=r"'no_such_thing', which is not installed: pip install \"regard\[draw\]\""
    ):
        require(missing, extra="draw")


@pytest.mark.parametrize("name, tensor", [("bias", torch.zeros(5, 11)), ("sink_logit", torch.zeros(6))])
def test_what_is_learned_must_be_where_the_query_is(name, tensor):
    for engine in ("auto", "tiles"):
        with pytest.raises(ShapeError, match=rf"{name} must be where query is, on cpu, got one on meta"):
            rg.observe(QUERY, KEY, VALUE, engine=engine, **{name: tensor.to("meta")})


@pytest.mark.parametrize(
    "keywords, message",
    [
        ({"statistics": 5}, r"statistics must be a list, got 5"),
        ({"top": 2.5}, r"top must be a whole number, got 2.5"),
        ({"top": True}, r"top must be a whole number, got True"),
        ({"top": 10**9}, r"top must be at most the number of keys, 11, or 1024, got 1000000000"),
        ({"map": 2.5}, r"map must be a whole number, got 2.5"),
        ({"scale": "a"}, r"scale must be a number, got 'a'"),
        ({"softcap": "a"}, r"softcap must be a number, got 'a'"),
        (
            {"scale": torch.ones((), requires_grad=True)},
            r"scale must be a number, got a tensor whose gradient",
        ),
    ],
)
def test_kinds_of_arguments(keywords, message):
    with pytest.raises(ArgumentError, match=message):
        rg.observe(QUERY, KEY, VALUE, **keywords)


def test_what_counts_as_a_number():
    want = rg.observe(QUERY, KEY, VALUE, top=2, scale=0.5)
    for whole in (np.int64(2), np.array(2), torch.tensor(2)):
        assert torch.equal(rg.observe(QUERY, KEY, VALUE, top=whole, scale=0.5).top.keys, want.top.keys)
    for number in (np.float32(0.5), np.array(0.5), torch.tensor(0.5)):
        assert torch.equal(rg.observe(QUERY, KEY, VALUE, scale=number).output, want.output)
