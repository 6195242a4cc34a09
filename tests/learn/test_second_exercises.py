"""The second exercises of eight lessons: right solutions pass however they are written."""

import math

import numpy as np
import pytest
import torch

import regard as rg


def nearest_by_loops(x):
    def cosine(a, b):
        lengths = math.sqrt(sum(n * n for n in a)) * math.sqrt(sum(n * n for n in b))
        return sum(n * m for n, m in zip(a, b, strict=True)) / lengths if lengths else 0.0

    best = []
    for i in range(len(x)):
        others = [j for j in range(len(x)) if j != i]
        best.append(max(others, key=lambda j: cosine(x[i], x[j])))
    return np.array(best)


def nearest_by_the_other_length_alone(x):
    # A row's own length changes no order.
    lengths = np.maximum(np.sqrt((x**2).sum(1)), 1e-12)
    scores = np.einsum("id,jd->ij", x, x / lengths[:, None])
    scores[np.arange(len(x)), np.arange(len(x))] = -1e9
    return np.argmax(scores, axis=1)


def nearest_by_nan_to_num(x):
    units = np.nan_to_num(x / np.linalg.norm(x, axis=1)[:, None])
    return np.argmax(units @ units.T - 3 * np.eye(len(x)), 1)


def look_up_by_einsum(query, key, value, temperature):
    dots = np.einsum("qd,kd->qk", query, key)
    lengths = np.sqrt(np.einsum("qd,qd->q", query, query)[:, None] * np.einsum("kd,kd->k", key, key))
    scores = dots / lengths / temperature
    logs = scores - np.logaddexp.reduce(scores, axis=1, keepdims=True)
    return np.einsum("qk,kv->qv", np.exp(logs), value)


def look_up_by_loops(query, key, value, temperature):
    rows = []
    for q in query:
        scores = [q @ k / math.hypot(*q) / math.hypot(*k) / temperature for k in key]
        terms = [math.exp(score - max(scores)) for score in scores]
        rows.append(sum(t * v for t, v in zip(terms, value, strict=True)) / sum(terms))
    return np.array(rows)


def variance_by_division(query, key):
    first = np.var(np.einsum("qd,kd->qk", query, key))
    return np.array([first, first / query.shape[1]])


def variance_by_moments(query, key):
    variances = []
    for size in (1, len(query[0]) ** 0.5):
        scores = [sum(a * b for a, b in zip(q, k, strict=True)) / size for q in query for k in key]
        mean = sum(scores) / len(scores)
        variances.append(sum(s * s for s in scores) / len(scores) - mean * mean)
    return np.array(variances)


def alignment_by_loops(weights, partner):
    right = total = 0
    for row, word in zip(weights, partner, strict=True):
        if word != -1:
            total += 1
            right += int(list(row).index(max(row)) == word)
    return right / total


def alignment_by_sorting(weights, partner):
    chosen = np.flatnonzero(partner + 1)
    return float(np.mean(np.argsort(weights[chosen], axis=1)[:, -1] == partner[chosen]))


def luong_in_two_parts(state, states, w):
    scores = np.einsum("sd,d->s", states, state)
    weights = np.exp(scores - np.logaddexp.reduce(scores))
    context = np.einsum("s,sd->d", weights, states)
    return np.tanh(context @ w[: len(state)] + state @ w[len(state) :])


def luong_by_columns(state, states, w):
    scores = states @ state[:, None]
    terms = np.exp(scores - scores.max(axis=0))
    context = (terms / terms.sum(axis=0) * states).sum(axis=0, keepdims=True)
    return np.tanh(w.T @ np.hstack([context, state[None]])[0])


def parameters_by_list(dim, hidden, heads, kv_heads):
    kv_dim = kv_heads * (dim / heads)
    matrices = [(dim, dim), (dim, kv_dim), (dim, kv_dim), (dim, dim), (dim, hidden), (hidden, dim)]
    return sum(a * b + b for a, b in matrices) + 2 * 2 * dim


def parameters_by_torch(dim, hidden, heads, kv_heads):
    attention = rg.nn.MultiHeadAttention(dim, heads, num_kv_heads=kv_heads)
    linear = torch.nn.Linear(dim, hidden), torch.nn.Linear(hidden, dim)
    parts = attention, *linear, torch.nn.LayerNorm(dim), torch.nn.LayerNorm(dim)
    return sum(parameter.numel() for part in parts for parameter in part.parameters())


def masked_loss_by_loops(logits, labels):
    losses = []
    for row, label in zip(logits, labels, strict=True):
        if label == -100:
            continue
        high = max(row)
        losses.append(high + math.log(sum(math.exp(x - high) for x in row)) - row[label])
    return sum(losses) / len(losses)


def masked_loss_by_torch(logits, labels):
    return torch.nn.functional.cross_entropy(torch.from_numpy(logits), torch.from_numpy(labels)).item()


def masked_loss_by_zeros(logits, labels):
    hidden = labels != -100
    logs = logits - np.logaddexp.reduce(logits, axis=1, keepdims=True)
    chosen = np.take_along_axis(logs, np.where(hidden, labels, 0)[:, None], 1)[:, 0]
    return -np.sum(np.where(hidden, chosen, 0.0)) / hidden.sum()


def running_by_weights(query, key, value):
    q, k = (np.where(x > 0, x + 1, np.exp(np.minimum(x, 0))) for x in (query, key))
    weights = np.tril(q @ k.T)
    return weights / weights.sum(1, keepdims=True) @ value


def running_by_cumsum(query, key, value):
    q, k = (np.maximum(x, 0) + np.exp(np.minimum(x, 0)) for x in (query, key))
    states = np.cumsum(np.einsum("td,tv->tdv", k, value), axis=0)
    return np.einsum("td,tdv->tv", q, states) / np.einsum("td,td->t", q, np.cumsum(k, axis=0))[:, None]


RIGHT = {
    "nearest": (nearest_by_loops, nearest_by_the_other_length_alone, nearest_by_nan_to_num),
    "look up": (look_up_by_einsum, look_up_by_loops),
    "score variance": (variance_by_division, variance_by_moments),
    "alignment": (alignment_by_loops, alignment_by_sorting),
    "luong step": (luong_in_two_parts, luong_by_columns),
    "layer parameters": (parameters_by_list, parameters_by_torch),
    "masked loss": (masked_loss_by_loops, masked_loss_by_torch, masked_loss_by_zeros),
    "running sums": (running_by_weights, running_by_cumsum),
}


@pytest.mark.parametrize(
    ("name", "function"), [pytest.param(name, f, id=f.__name__) for name, fs in RIGHT.items() for f in fs]
)
def test_right_solutions_pass_however_they_are_written(name, function):
    verdict = rg.learn.check(function, name)
    assert verdict.passed, str(verdict)


@pytest.mark.parametrize("name", RIGHT)
def test_float32_passes_and_is_said_to_be_less(name):
    def single(*inputs):
        floats = [
            x.astype(np.float32) if isinstance(x, np.ndarray) and x.dtype.kind == "f" else x for x in inputs
        ]
        return np.asarray(rg.learn.exercise(name).solution(*floats), np.float32)

    verdict = rg.learn.check(single, name)
    assert verdict.passed, str(verdict)
    assert [message.kind for message in verdict.messages] == ["praise", "could_be_better"]


def test_every_lesson_with_one_of_them_has_two():
    numbers = [exercise.lesson for exercise in rg.learn.exercises()]
    assert {numbers.count(rg.learn.exercise(name).lesson) for name in RIGHT} == {2}


def test_the_lessons_numbers_come_out():
    # As lessons 9 and 10 have them: a layer of GPT-2 small, and what is left of guessing among 24.
    layer = rg.learn.exercise("layer parameters").solution(768, 3072, 12, 12)
    assert layer == sum(p.numel() for p in rg.nn.EncoderLayer(768, 12).parameters())
    loss = rg.learn.exercise("masked loss").solution(np.zeros((4, 24)), np.array([-100, 3, -100, 0]))
    assert math.isclose(loss, math.log(24))
