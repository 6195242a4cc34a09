"""Twenty wrong solutions, written after the catalogue and without looking at it: none may be explained wrongly."""

import math

import numpy as np
import pytest

import regard as rg

# --- attention ---------------------------------------------------------------------------------------------


def softmax(x, axis=-1):
    e = np.exp(x - np.max(x, axis=axis, keepdims=True))
    return e / np.sum(e, axis=axis, keepdims=True)


def scaled_by_rows(query, key, value):
    # len() is the number of rows.
    return softmax(query @ key.T / math.sqrt(len(query))) @ value


def leaky(query, key, value):
    scores = query @ key.T / np.sqrt(query.shape[-1])
    scores = np.where(scores > 0, scores, 0.01 * scores)
    return softmax(scores) @ value


def sigmoid_gate(query, key, value):
    scores = query @ key.T / np.sqrt(query.shape[1])
    return 1 / (1 + np.exp(-scores)) @ value


def relu_normalized(query, key, value):
    scores = np.maximum(query @ key.T / np.sqrt(query.shape[1]), 0)
    return scores / scores.sum(axis=1, keepdims=True) @ value


def rounded_for_reading(query, key, value):
    weights = np.round(softmax(query @ key.T / np.sqrt(query.shape[-1])), 2)
    return weights @ value


def best_two(query, key, value):
    scores = query @ key.T / np.sqrt(query.shape[-1])
    limit = np.sort(scores, axis=-1)[:, -2:][:, :1]
    return softmax(np.where(scores >= limit, scores, -np.inf)) @ value


# --- masks -------------------------------------------------------------------------------------------------


def masked_by_product(query, key, value):
    scores = query @ key.T / np.sqrt(query.shape[-1])
    return softmax(scores * np.tril(np.ones_like(scores))) @ value


def small_penalty(query, key, value):
    scores = query @ key.T / np.sqrt(query.shape[-1])
    scores[np.triu_indices(len(scores), 1)] -= 5
    return softmax(scores) @ value


def diagonal_blocked(query, key, value):
    scores = query @ key.T / np.sqrt(query.shape[-1])
    scores[np.triu_indices(len(scores), 0)] = -np.inf
    with np.errstate(all="ignore"):
        return softmax(scores) @ value


def padding_by_query(query, key, value, keep):
    scores = query @ key.T / np.sqrt(query.shape[-1])
    scores[:, keep] = -np.inf
    with np.errstate(all="ignore"):
        return softmax(scores) @ value


def window_from_slices(query, key, value, before):
    rows = []
    for i in range(len(query)):
        low = max(0, i - before + 1)
        rows.append(softmax(query[i] @ key[low : i + 1].T / np.sqrt(query.shape[1])) @ value[low : i + 1])
    return np.array(rows)


# --- heads -------------------------------------------------------------------------------------------------


def scaled_by_the_model(x, w_query, w_key, w_value):
    return softmax((x @ w_query) @ (x @ w_key).T / np.sqrt(x.shape[-1])) @ (x @ w_value)


def split_without_transpose(x, heads):
    return x.reshape(heads, x.shape[0], x.shape[1] // heads)


def merged_by_hstack_of_transposed(x):
    return np.vstack(list(x))


def values_from_x(x, memory, w_query, w_key, w_value):
    return softmax((x @ w_query) @ (memory @ w_key).T / np.sqrt(w_key.shape[1])) @ (memory @ w_key)


# --- the rest ----------------------------------------------------------------------------------------------


def entropy_base_two(weights):
    safe = np.where(weights > 0, weights, 1)
    return -np.sum(weights * np.log2(safe), axis=-1)


def norm_without_shift(x, gain, bias):
    return gain * x / np.sqrt((x**2).mean(-1, keepdims=True) + 1e-5) + bias


def loss_of_the_present(logits, tokens):
    high = logits.max(-1, keepdims=True)
    logs = logits - high - np.log(np.exp(logits - high).sum(-1, keepdims=True))
    return -np.mean([logs[i, token] for i, token in enumerate(tokens)])


def warm_up_from_zero(steps, rate, warm, total):
    rates = []
    for s in steps:
        if s < warm:
            rates.append(rate * s / warm)
        else:
            rates.append(rate * max(0, total - s) / (total - warm))
    return np.array(rates)


def gradient_without_the_sum(weights, gradient):
    return weights * (1 - weights) * gradient


# exercise, function, what may truly be said of it; nothing where the cause is not in the catalogue
WRONG = (
    ("attention", scaled_by_rows, {"√queries"}),
    ("attention", leaky, set()),
    ("attention", sigmoid_gate, {"sigmoid for the softmax"}),
    ("attention", relu_normalized, {"relu for exp"}),
    ("attention", rounded_for_reading, {"weights rounded at 2"}),
    ("attention", best_two, set()),
    ("causal mask", masked_by_product, {"zero for −inf"}),
    ("causal mask", small_penalty, set()),
    ("causal mask", diagonal_blocked, {"off by one: not itself"}),
    ("padding mask", padding_by_query, {"inverted"}),
    ("window", window_from_slices, {"off by one: too narrow"}),
    ("one head", scaled_by_the_model, {"√ of the model's width"}),
    ("split heads", split_without_transpose, {"reshape without transposing"}),
    ("merge heads", merged_by_hstack_of_transposed, {"one below the other"}),
    ("cross attention", values_from_x, {"w_key for the value"}),
    ("entropy", entropy_base_two, {"bits"}),
    ("layer norm", norm_without_shift, {"no mean", "root mean square"}),
    ("next token loss", loss_of_the_present, {"not shifted"}),
    ("warm up", warm_up_from_zero, {"starts at 0"}),
    ("softmax gradient", gradient_without_the_sum, {"diagonal alone"}),
)


@pytest.mark.parametrize(
    ("name", "function", "truth"), WRONG, ids=[function.__name__ for _, function, _ in WRONG]
)
def test_a_wrong_solution_is_never_explained_wrongly(name, function, truth):
    verdict = rg.learn.check(function, name)
    assert not verdict.passed
    named = {message.variant for message in verdict.messages} - {""}
    # "in place" is true of those that write into what they were given, and they do not.
    assert named <= truth, str(verdict)


def test_how_many_are_named():
    named = [rg.learn.check(function, name).messages[0].variant for name, function, _ in WRONG]
    assert sum(map(bool, named)) >= 16, dict(zip((f.__name__ for _, f, _ in WRONG), named, strict=True))
