"""Solutions that nobody foresaw: right ones pass however they are written; wrong ones are never explained wrongly."""

import math

import numpy as np
import pytest

import regard as rg

# --- right -------------------------------------------------------------------------------------------------


def by_einsum(query, key, value):
    scores = np.einsum("qd,kd->qk", query, key) / math.sqrt(query.shape[1])
    terms = np.exp(scores - scores.max(axis=1, keepdims=True))
    return np.einsum("qk,kv->qv", terms / terms.sum(axis=1, keepdims=True), value)


def by_loops(query, key, value):
    rows = []
    for q in query:
        scores = [sum(a * b for a, b in zip(q, k, strict=True)) / len(q) ** 0.5 for k in key]
        terms = [math.exp(s - max(scores)) for s in scores]
        rows.append(
            [
                sum(t * v[c] for t, v in zip(terms, value, strict=True)) / sum(terms)
                for c in range(value.shape[1])
            ]
        )
    return np.array(rows)


def by_logarithms(query, key, value):
    scores = (query * query.shape[-1] ** -0.5) @ key.T
    high = scores.max(-1, keepdims=True)
    return np.exp(scores - high - np.log(np.exp(scores - high).sum(-1, keepdims=True))) @ value


def with_a_copy(query, key, value):
    query = query.copy()
    query /= np.sqrt(query.shape[-1])
    return by_einsum(query * np.sqrt(query.shape[-1]), key, value)


def by_torch(query, key, value):
    torch = pytest.importorskip("torch")
    tensors = (torch.from_numpy(x)[None, None] for x in (query, key, value))
    return torch.nn.functional.scaled_dot_product_attention(*tensors)[0, 0].numpy()


def causal_by_addition(query, key, value):
    scores = query @ key.T / np.sqrt(query.shape[-1])
    scores = scores + np.triu(np.full(scores.shape, -1e9), 1)
    terms = np.exp(scores - scores.max(-1, keepdims=True))
    return terms / terms.sum(-1, keepdims=True) @ value


def causal_by_prefixes(query, key, value):
    return np.concatenate(
        [by_einsum(query[i : i + 1], key[: i + 1], value[: i + 1]) for i in range(len(query))]
    )


def encoding_by_loops(tokens, dim):
    table = np.zeros((tokens, dim))
    for position in range(tokens):
        for column in range(dim):
            angle = position / 10000 ** (2 * (column // 2) / dim)
            table[position, column] = math.cos(angle) if column % 2 else math.sin(angle)
    return table


def encoding_by_logarithms(tokens, dim):
    rates = np.exp(np.arange(0, dim, 2) * -(math.log(10000.0) / dim))
    angles = np.outer(np.arange(tokens), rates)
    return np.dstack([np.sin(angles), np.cos(angles)]).reshape(tokens, dim)


def rotation_by_complex_numbers(x):
    tokens, dim = x.shape
    angles = np.outer(np.arange(tokens), 10000.0 ** (-np.arange(0, dim, 2) / dim))
    turned = (x[:, 0::2] + 1j * x[:, 1::2]) * np.exp(1j * angles)
    return np.stack([turned.real, turned.imag], -1).reshape(tokens, dim)


RIGHT = [
    *(("attention", f) for f in (by_einsum, by_loops, by_logarithms, with_a_copy, by_torch)),
    *(("causal mask", f) for f in (causal_by_addition, causal_by_prefixes)),
    ("positional encoding", encoding_by_loops),
    ("positional encoding", encoding_by_logarithms),
    ("rotary", rotation_by_complex_numbers),
    ("split heads", lambda x, heads: np.stack(np.split(x, heads, axis=1))),
    ("merge heads", lambda x: np.concatenate(list(x), axis=1)),
    ("one head", lambda x, q, k, v: by_einsum(x @ q, x @ k, x @ v)),
]


@pytest.mark.parametrize(("name", "function"), RIGHT, ids=lambda one: getattr(one, "__name__", one))
def test_right_solutions_pass_however_they_are_written(name, function):
    verdict = rg.learn.check(function, name)
    assert verdict.passed, str(verdict)


# --- wrong, written without a look at the catalogue; what is truly wrong stands beside each ------------------


def relu_weights(query, key, value):
    scores = np.maximum(query @ key.T / np.sqrt(query.shape[-1]), 0)
    return scores / (scores.sum(-1, keepdims=True) + 1e-9) @ value


def no_scale_and_unstable(query, key, value):
    terms = np.exp(query @ key.T)
    return terms / terms.sum(-1, keepdims=True) @ value


def no_scale_and_wrong_axis(query, key, value):
    terms = np.exp(query @ key.T)
    return terms / terms.sum(0, keepdims=True) @ value


def negated(query, key, value):
    return by_einsum(-query, key, value)


def base_two(query, key, value):
    terms = 2 ** (query @ key.T / np.sqrt(query.shape[-1]))
    return terms / terms.sum(-1, keepdims=True) @ value


def distance_scores(query, key, value):
    scores = -((query[:, None] - key[None]) ** 2).sum(-1)
    terms = np.exp(scores - scores.max(-1, keepdims=True))
    return terms / terms.sum(-1, keepdims=True) @ value


def first_key_left_out(query, key, value):
    return by_einsum(query, key[1:], value[1:])


def scaled_twice(query, key, value):
    return by_einsum(query / np.sqrt(query.shape[-1]), key / np.sqrt(query.shape[-1]), value)


def half_right(query, key, value):
    output = by_einsum(query, key, value)
    output[-1] = 0
    return output


def added_residual(query, key, value):
    output = by_einsum(query, key, value)
    return output + query if query.shape == output.shape else output


def causal_no_scale_and_unstable(query, key, value):
    scores = np.where(np.tri(len(query), dtype=bool), query @ key.T, -np.inf)
    terms = np.exp(scores)
    return terms / terms.sum(-1, keepdims=True) @ value


def causal_zeroed_and_renormalized_twice(query, key, value):
    scores = query @ key.T / np.sqrt(query.shape[-1])
    weights = np.tril(np.exp(scores) / np.exp(scores).sum(-1, keepdims=True))
    return weights / np.sqrt((weights**2).sum(-1, keepdims=True)) @ value


def causal_two_ahead(query, key, value):
    scores = np.where(np.tri(len(query), k=2, dtype=bool), query @ key.T / np.sqrt(query.shape[-1]), -np.inf)
    terms = np.exp(scores - scores.max(-1, keepdims=True))
    return terms / terms.sum(-1, keepdims=True) @ value


def causal_blocks_rows(query, key, value):
    scores = query @ key.T / np.sqrt(query.shape[-1])
    for row in range(len(scores)):
        scores[row, row:] = -1e9
    return np.exp(scores) / np.exp(scores).sum(-1, keepdims=True) @ value


def encoding_halves_with_sines_last(tokens, dim):
    angles = np.outer(np.arange(tokens), 10000.0 ** (-np.arange(0, dim, 2) / dim))
    return np.concatenate([np.cos(angles), np.sin(angles)], 1)


def encoding_normalized(tokens, dim):
    table = encoding_by_loops(tokens, dim)
    return table / np.linalg.norm(table, axis=1, keepdims=True)


def encoding_without_power(tokens, dim):
    angles = np.outer(np.arange(tokens), 1 / (1 + np.arange(0, dim, 2)))
    return np.dstack([np.sin(angles), np.cos(angles)]).reshape(tokens, dim)


def head_transposed_output(x, w_query, w_key, w_value):
    return by_einsum(x @ w_query, x @ w_key, x @ w_value).T


def head_without_scale_on_wrong_axis(x, w_query, w_key, w_value):
    scores = (x @ w_query) @ (x @ w_key).T
    return np.exp(scores) / np.exp(scores).sum(0) @ (x @ w_value)


def split_by_tokens(x, heads):
    return np.stack(np.array_split(x, heads, axis=0)) if len(x) % heads == 0 else x


# function → the mistakes that may be named; none where none of the catalogue is what is wrong
WRONG = [
    ("attention", relu_weights, set()),
    ("attention", no_scale_and_unstable, {"no scale"}),
    ("attention", no_scale_and_wrong_axis, {"no scale + softmax over the queries"}),
    ("attention", negated, {"scores negated"}),
    ("attention", base_two, {"weights base 2"}),
    ("attention", distance_scores, set()),
    ("attention", first_key_left_out, set()),
    ("attention", scaled_twice, set()),
    ("attention", half_right, set()),
    ("attention", added_residual, set()),
    ("causal mask", causal_no_scale_and_unstable, {"no scale"}),
    ("causal mask", causal_zeroed_and_renormalized_twice, {"divided by the norm"}),
    ("causal mask", causal_two_ahead, set()),
    ("causal mask", causal_blocks_rows, {"off by one: not itself, −1e9", "off by one: not itself"}),
    ("positional encoding", encoding_halves_with_sines_last, set()),
    ("positional encoding", encoding_normalized, set()),
    ("positional encoding", encoding_without_power, set()),
    ("one head", head_transposed_output, {"result transposed"}),
    ("one head", head_without_scale_on_wrong_axis, {"no scale + softmax over the queries"}),
    ("split heads", split_by_tokens, set()),
]


@pytest.mark.parametrize(("name", "function", "truth"), WRONG, ids=[f.__name__ for _, f, _ in WRONG])
def test_a_wrong_solution_is_never_explained_wrongly(name, function, truth):
    verdict = rg.learn.check(function, name)
    assert not verdict.passed
    named = {message.variant for message in verdict.messages} - {""}
    assert named <= truth, str(verdict)
    example = verdict.messages[0].example
    assert example is not None and example.expected != example.got
