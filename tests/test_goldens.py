"""Numbers printed in the source documents come out to the digits printed there; the inputs are drawn as they say."""

import json
import math
from pathlib import Path

import numpy as np
import pytest
import torch

import regard as rg
from helpers.cases import tiles_of

GOLDENS = Path(__file__).parent / "goldens"
NOTEBOOK = json.loads((GOLDENS / "notebook_statistics.json").read_text())
PAGE = json.loads((GOLDENS / "tokens_and_features.json").read_text())


def printed(number, digits):
    """A number as a document prints it."""
    return f"{float(number):.{digits}f}"


def four_axes(matrix):
    return torch.as_tensor(matrix, dtype=torch.float64)[None, None]


def softmax(scores):
    """Textbook softmax in numpy, for what the documents describe but do not print."""
    e = np.exp(scores - scores.max(-1, keepdims=True))
    return e / e.sum(-1, keepdims=True)


# --- the notebook ------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def drawn():
    """X and the four heads' projections, from numpy's legacy generator in the notebook's order."""
    generator = np.random.RandomState(42)
    x = np.stack([np.sin(np.arange(64) * (i + 1) * 0.1) + 0.1 * generator.randn(64) for i in range(8)])
    w_q, w_k, w_v = (generator.randn(4, 64, 16) * np.sqrt(2 / (64 + 16)) for _ in range(3))
    w_o = generator.randn(64, 64) * np.sqrt(2 / (64 + 64))
    return x, w_q, w_k, w_v, w_o


def look(query, key, value, **spec):
    """Observed in several tiles, so that the printed digits also pass through the merge."""
    with tiles_of(2, 4):
        return rg.observe(four_axes(query), four_axes(key), four_axes(value), map=8, **spec)


def test_single_head(drawn):
    x, golden = drawn[0], NOTEBOOK["single_head"]
    seen = look(x, x, x)
    weights = rg.weights(four_axes(x), four_axes(x))[0, 0]
    assert printed(seen.received.sum() / 64, 4) == printed(golden["mean_weight"], 4) == "0.1250"
    assert printed(seen.max_weight.max(), 4) == printed(golden["max_weight"], 4)
    assert printed(weights.min(), 4) == printed(golden["min_weight"], 4)
    assert printed(seen.mean("entropy"), 4) == printed(golden["mean_entropy_nats"], 4)
    assert [[float(printed(w, 3)) for w in row] for row in weights] == golden["weights_rounded_3"]
    assert torch.allclose(seen.map.peak[0, 0], weights) and seen.map.cell == 1  # the map is the matrix itself
    np.testing.assert_allclose(seen.output[0, 0], softmax(x @ x.T / 8) @ x, rtol=1e-12)


def test_causal(drawn):
    x, golden = drawn[0], NOTEBOOK["causal_weights_rounded_3"]
    seen = look(x, x, x, mask=rg.causal())
    weights = rg.weights(four_axes(x), four_axes(x), mask=rg.causal())[0, 0]
    assert [[float(printed(w, 3)) for w in row] for row in weights] == golden
    assert torch.allclose(seen.map.peak[0, 0], weights)
    assert torch.allclose(rg.attend(*[four_axes(x)] * 3, mask=rg.causal()), seen.output)


@pytest.mark.parametrize("head", range(4))
def test_four_heads(drawn, head):
    x, golden = drawn[0], NOTEBOOK["heads"][head]
    query, key, value = (x @ w[head] for w in drawn[1:4])
    seen = look(query, key, value)
    assert printed(seen.max_weight.max(), 4) == printed(golden["max_weight"], 4)
    assert printed(seen.mean("entropy"), 4) == printed(golden["mean_entropy_nats"], 4)


def test_four_heads_at_once(drawn):
    x, *projections, w_o = drawn
    query, key, value = (torch.from_numpy(np.einsum("nd,hde->hne", x, w))[None] for w in projections)
    seen = rg.observe(query, key, value)
    for head, golden in enumerate(NOTEBOOK["heads"]):
        assert printed(seen.max_weight[0, head].max(), 4) == printed(golden["max_weight"], 4)
        assert printed(seen.mean("entropy")[0, head], 4) == printed(golden["mean_entropy_nats"], 4)
    joined = rg.attend(query, key, value).transpose(1, 2).reshape(8, 64).numpy() @ w_o
    heads = zip(query[0].numpy(), key[0].numpy(), value[0].numpy(), strict=True)
    want = np.concatenate([softmax(q @ k.T / 4) @ v for q, k, v in heads], 1) @ w_o
    np.testing.assert_allclose(joined, want, rtol=1e-10)


def test_bounds():
    golden = NOTEBOOK["bounds"]
    uniform = look(np.zeros((8, 4)), np.zeros((8, 4)), np.zeros((8, 4)))
    assert {printed(e, 4) for e in uniform.entropy.flatten()} == {
        printed(golden["max_entropy_8_keys_nats"], 4)
    }
    assert printed(math.log(8), 4) == printed(golden["max_entropy_8_keys_nats"], 4)
    single = look(np.eye(8) * 1000, np.eye(8), np.eye(8))
    assert {printed(e, 4) for e in single.entropy.flatten()} == {printed(golden["min_entropy_nats"], 4)}


def test_other_inputs_give_other_digits(drawn):
    """The comparison can fail: inputs that are off by a thousandth print other digits."""
    x = drawn[0] * 1.001
    seen, golden = look(x, x, x), NOTEBOOK["single_head"]
    assert printed(seen.max_weight.max(), 4) != printed(golden["max_weight"], 4)
    assert printed(seen.mean("entropy"), 4) != printed(golden["mean_entropy_nats"], 4)


# --- the page ----------------------------------------------------------------------------------------------


def dot(x, y):
    """x · y, as attention computes it: the score of a query and its only key, of which the lse is the value."""
    return float(rg.observe(four_axes([x]), four_axes([y]), scale=1.0).lse)


def test_similarity():
    golden = PAGE["similarity"]
    x, y = golden["x"], golden["y"]
    norm_x, norm_y = math.sqrt(dot(x, x)), math.sqrt(dot(y, y))
    cosine = dot(x, y) / (norm_x * norm_y)
    assert printed(dot(x, y), 2) == printed(golden["dot"], 2) == "28.90"
    assert printed(norm_x, 2) == printed(golden["norm_x"], 2)
    assert printed(norm_y, 2) == printed(golden["norm_y"], 2)
    assert printed(cosine, 4) == printed(golden["cosine"], 4)
    assert printed(math.degrees(math.acos(cosine)), 2) == printed(golden["angle_degrees"], 2)
    x_unit, y_unit = [v / norm_x for v in x], [v / norm_y for v in y]
    assert [printed(v, 3) for v in x_unit] == [printed(v, 3) for v in golden["x_unit_rounded_3"]]
    assert [printed(v, 3) for v in y_unit] == [printed(v, 3) for v in golden["y_unit_rounded_3"]]
    assert printed(dot(x_unit, y_unit), 4) == printed(golden["dot_of_units"], 4)


def test_one_head_over_all_features():
    features = np.array(PAGE["features"])
    assert features.shape == (len(PAGE["tokens"]), 8) == (10, 8)
    seen = look(features, features, features)
    weights = softmax(features @ features.T / math.sqrt(8))
    np.testing.assert_allclose(
        rg.weights(four_axes(features), four_axes(features))[0, 0], weights, rtol=1e-12
    )
    np.testing.assert_allclose(seen.output[0, 0], weights @ features, rtol=1e-12)
    np.testing.assert_allclose(seen.entropy[0, 0], -(weights * np.log(weights)).sum(1), rtol=1e-12)
    assert torch.allclose(
        seen.map.total[0, 0].sum(1), torch.full((5,), 2.0, dtype=torch.float64)
    )  # two words a cell
    apple, orange = PAGE["tokens"].index("apple"), PAGE["tokens"].index("orange")
    assert int(seen.argmax[0, 0, apple]) == orange and int(seen.argmax[0, 0, orange]) == orange


def test_four_heads_that_read_the_listed_features():
    features, outputs, seen = np.array(PAGE["features"]), [], {}
    for name, columns in PAGE["heads"].items():
        part = features[:, columns]
        outputs.append(rg.attend(*[four_axes(part)] * 3)[0, 0].numpy())
        seen[name] = look(part, part, part)
        np.testing.assert_allclose(
            outputs[-1], softmax(part @ part.T / math.sqrt(len(columns))) @ part, rtol=1e-12
        )
    assert [output.shape[1] for output in outputs] == [1, 2, 3, 2]
    joined = np.concatenate(outputs, axis=1)
    assert joined.shape == (10, 8)
    assert (joined >= 0).all() and (joined <= 1).all()  # means of the features
    # each head looks for its own features: fruit at apple and orange, pronoun at the words that share theirs
    tokens, top = PAGE["tokens"], {name: observation.argmax[0, 0] for name, observation in seen.items()}
    assert tokens[top["fruit"][tokens.index("apple")]] == "apple"  # the first of two equals
    assert tokens[top["fruit"][tokens.index("orange")]] == "apple"
    assert tokens[top["pronoun"][tokens.index("it")]] == "it"
    blind = tokens.index("I")  # no feature that the acidity head reads
    assert float(seen["acidity"].entropy[0, 0, blind]) == pytest.approx(math.log(10))
