"""The playground: its numbers are those of the layer's formula, and its words those of its numbers."""

import math
import re

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from regard import RegardError
from regard.web.arrays import pack
from regard.web.playground import KINDS, PlaygroundState, answer
from regard.web.playground.layers import mask_of, play
from regard.web.playground.state import WITH_POSITIONS

SMALL = {"length": 13, "memory_length": 11, "embed_dim": 24, "num_heads": 3, "seed": 7}


def scores(state):
    """Scores of self-attention by the textbook, from the layer's weights, in float64."""
    played = play(state)
    weights = dict(played.layer.double().named_parameters())
    x = played.queries.vectors.double()[0]
    query, key, _ = (x @ weights["qkv.weight"].T + weights["qkv.bias"]).chunk(3, -1)
    query, key = (side.unflatten(1, (state.num_heads, -1)).transpose(0, 1) for side in (query, key))
    # The temperature is in the layer's queries already.
    return query @ key.mT / math.sqrt(state.head_dim)


@pytest.mark.parametrize("kind", ["self", "causal", "window", "strided", "random", "global"])
@pytest.mark.parametrize("temperature", [1.0, 0.2])
def test_weights_and_entropy_are_those_of_the_textbook(kind, temperature):
    state = PlaygroundState(**SMALL, kind=kind, temperature=temperature, window=4, step=3, blocks=1)
    shown = answer(state).arrays
    mask = mask_of(state)
    allowed = torch.ones(13, 13, dtype=torch.bool)
    if mask is not None:
        allowed = mask.dense(13, 13)[0, 0]
    want = scores(state).masked_fill(~allowed, -torch.inf).softmax(-1).nan_to_num()
    assert torch.allclose(shown["weights"].double(), want, atol=1e-6)
    entropy = -(want * want.clamp(min=1e-300).log()).sum(-1)
    assert torch.allclose(shown["entropy"].double(), entropy, atol=1e-5)
    assert torch.equal(shown["allowed"].bool(), allowed)
    assert torch.allclose(shown["bound"], allowed.sum(-1).clamp(min=1).log().float())
    assert bool((shown["entropy"] <= shown["bound"] + 1e-5).all())


@pytest.mark.parametrize("kind", KINDS)
def test_every_kind_gives_distributions(kind):
    shown = answer(PlaygroundState(**SMALL, kind=kind))
    weights, info = shown.arrays["weights"], shown.info
    keys = {"cross": 11, "low rank": 16}.get(kind, 13)
    assert weights.shape == (3, 13, keys) and weights.dtype == torch.float32
    assert len(info["tokens"]) == 13 and len(info["memory_tokens"]) == keys and len(info["roles"]) == 3
    total, free = weights.sum(-1), shown.arrays["allowed"].any(-1)
    assert torch.allclose(total, free.float().expand_as(total), atol=1e-5) and weights.min() >= 0
    assert not bool((weights * ~shown.arrays["allowed"].bool()).any())
    cost = info["cost"]
    assert cost["flops"] > 0 and cost["bytes"] > 0 and 0 < cost["seconds"] < 60 and len(cost["growth"]) == 5
    assert info["sentences"] and all(sentence.endswith((".", ").")) for sentence in info["sentences"])


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("positions", ["none", "learned"])
def test_the_formula_counts_the_parameters(kind, positions):
    state = PlaygroundState(**SMALL, kind=kind, positions=positions)
    told = answer(state).info["parameters"]
    numbers = told["formula"].split(" = ")
    count = eval(numbers[1].replace("·", "*").replace("²", "**2"), {"__builtins__": {}})
    assert count == told["count"] == int(numbers[2].replace(",", ""))
    assert told["count"] == sum(parameter.numel() for parameter in play(state).layer.parameters())


def test_positions_are_added_or_part_of_attention():
    base = answer(PlaygroundState(**SMALL, kind="self")).arrays["weights"]
    for positions in ("sinusoidal", "learned", "rotary", "alibi"):
        moved = answer(PlaygroundState(**SMALL, kind="self", positions=positions)).arrays["weights"]
        assert not torch.allclose(moved, base)
    state = PlaygroundState(**SMALL, kind="causal", positions="alibi")
    slopes = 2.0 ** -torch.tensor([4.0, 8.0, 2.0])
    distance = torch.arange(13)[:, None] - torch.arange(13)
    want = (
        (scores(state) - slopes[:, None, None] * distance).masked_fill(distance < 0, -torch.inf).softmax(-1)
    )
    assert torch.allclose(answer(state).arrays["weights"].double(), want, atol=1e-6)


def test_the_same_state_gives_the_same_picture_and_leaves_torch_alone():
    torch.manual_seed(1)
    before = torch.get_rng_state()
    one, other = (answer(PlaygroundState(**SMALL)).arrays["weights"] for _ in range(2))
    assert torch.equal(one, other) and torch.equal(torch.get_rng_state(), before)
    assert not torch.equal(one, answer(PlaygroundState(**SMALL | {"seed": 8})).arrays["weights"])


def test_words_of_ones_own_are_tokens():
    info = answer(PlaygroundState(text="The cat, the CAT.", kind="self")).info
    assert info["tokens"] == ["The", "cat", ",", "the", "CAT", "."]
    played = play(PlaygroundState(text="a b a"))
    vectors = played.queries.vectors[0]
    assert torch.equal(vectors[0], vectors[2]) and not torch.equal(vectors[0], vectors[1])
    assert len(answer(PlaygroundState(text="x " * 1000)).info["tokens"]) == 256
    assert len(answer(PlaygroundState(text=" \n ", length=5)).info["tokens"]) == 5


def test_matched_projections_find_the_same_token_again():
    sharp = answer(PlaygroundState(kind="self", length=10, init="matched", temperature=0.05)).arrays[
        "weights"
    ]
    index = torch.arange(10)
    again = (index[:, None] % 5) == (index % 5)
    assert float((sharp * again).sum(-1).min()) > 0.99


@pytest.mark.parametrize(("init", "words"), [("small", "close to 0"), ("zero", "last projection is 0")])
def test_initializations_are_what_is_said(init, words):
    state = PlaygroundState(**SMALL, init=init)
    assert any(words in sentence for sentence in answer(state).info["sentences"])
    layer = play(state).layer
    assert bool((layer.output.weight == 0).all()) == (init == "zero")
    if init == "small":
        assert float(layer.qkv.weight.detach().std()) == pytest.approx(0.02, rel=0.1)


def test_sentences_say_what_the_numbers_are():
    even = answer(PlaygroundState(kind="self", init="small")).info["sentences"]
    assert "almost even" in even[0] and "uniform" in even[1]
    shown = answer(PlaygroundState(kind="self", temperature=0.01, pattern="random"))
    assert "sharper" in " ".join(shown.info["sentences"])
    assert "Every head attends to its own token" in shown.info["sentences"][1]
    mean = float(re.search(r"is ([\d.]+) of at most ([\d.]+)", shown.info["sentences"][0]).group(1))
    assert mean == pytest.approx(float(shown.arrays["entropy"].mean()), abs=0.006)
    assert answer(PlaygroundState(length=1)).info["sentences"][0].startswith("No query has a choice")


@pytest.mark.parametrize(
    ("wrong", "reason"),
    [
        ({"length": 0}, "length must be from 1 to 256, got 0"),
        ({"length": 257}, "from 1 to 256"),
        ({"num_heads": 3}, "num_heads must divide embed_dim"),
        ({"temperature": 0.0}, "temperature must be from"),
        ({"temperature": float("nan")}, "temperature must be"),
        ({"kind": "other"}, "kind must be one of self, cross"),
        ({"pattern": "lies"}, "pattern must be one of"),
        ({"kind": "cross", "positions": "rotary"}, "must be of a kind with scores of its own tokens"),
        ({"kind": "additive", "positions": "alibi"}, "take sinusoidal or learned ones"),
        ({"embed_dim": 20, "positions": "rotary"}, "heads of an even size, got 5"),
        ({"embed_dim": 9, "num_heads": 3, "positions": "sinusoidal"}, "need an even embed_dim"),
        ({"text": "x" * 10_001}, "at most 10000 characters"),
        ({"seed": -1}, "seed must be"),
        ({"length": "many"}, "length must be"),
    ],
)
def test_what_does_not_fit_is_told(wrong, reason):
    with pytest.raises(RegardError, match=reason):
        PlaygroundState(**wrong)


@given(
    kind=st.sampled_from(KINDS),
    heads=st.sampled_from([1, 2, 5]),
    length=st.integers(1, 19),
    others=st.fixed_dictionaries(
        {
            "memory_length": st.integers(1, 9),
            "temperature": st.floats(0.01, 100),
            "positions": st.sampled_from(["none", "sinusoidal", "learned", "rotary", "alibi"]),
            "init": st.sampled_from(["xavier", "small", "zero", "matched"]),
            "pattern": st.sampled_from(["random", "repeated", "clusters", "smooth"]),
            "seed": st.integers(0, 2**31 - 1),
            "window": st.integers(1, 256),
            "step": st.integers(1, 256),
            "blocks": st.integers(1, 16),
            "global_tokens": st.integers(1, 256),
            "rank": st.integers(1, 256),
        }
    ),
)
@settings(max_examples=60)
def test_every_state_has_an_answer_that_can_be_sent(kind, heads, length, others):
    if kind not in WITH_POSITIONS and others["positions"] in ("rotary", "alibi"):
        others["positions"] = "none"
    shown = answer(PlaygroundState(kind=kind, num_heads=heads, embed_dim=4 * heads, length=length, **others))
    assert all(bool(torch.isfinite(array.double()).all()) for array in shown.arrays.values())
    assert pack(shown.arrays, shown.info)
