"""Wrong solutions of the second exercises of lessons 7 to 12, as learners write them: none may be explained wrongly."""

import numpy as np


def softmax(x, axis=-1):
    e = np.exp(x - np.max(x, axis=axis, keepdims=True))
    return e / np.sum(e, axis=axis, keepdims=True)


# --- luong step --------------------------------------------------------------------------------------------


def luong_state_first(state, states, w):
    context = softmax(states @ state) @ states
    return np.tanh(np.concatenate([state, context]) @ w)


def luong_scaled(state, states, w):
    context = softmax(states @ state / np.sqrt(len(state))) @ states
    return np.tanh(np.concatenate([context, state]) @ w)


def luong_no_tanh(state, states, w):
    context = softmax(states @ state) @ states
    return np.concatenate([context, state]) @ w


def luong_unstable(state, states, w):
    e = np.exp(states @ state)
    return np.tanh(np.concatenate([e / e.sum() @ states, state]) @ w)


def luong_sum(state, states, w):
    context = softmax(states @ state) @ states
    return np.tanh((context + state) @ w[: len(state)])


def luong_half_w(state, states, w):
    context = softmax(states @ state) @ states
    return np.tanh(context @ w[: len(state)])


def luong_scores_only(state, states, w):
    return np.tanh(np.concatenate([(states @ state) @ states, state]) @ w)


def luong_tanh_on_context(state, states, w):
    context = np.tanh(softmax(states @ state) @ states)
    return np.concatenate([context, state]) @ w


def luong_last(state, states, w):
    return np.tanh(np.concatenate([states[-1], state]) @ w)


def luong_not_summed(state, states, w):
    context = (softmax(states @ state)[:, None] * states).mean(0)
    return np.tanh(np.concatenate([context, state]) @ w)


def luong_context_only(state, states, w):
    return softmax(states @ state) @ states


def luong_bias(state, states, w):
    context = softmax(states @ state) @ states
    return np.tanh(np.concatenate([context, state]) @ w + 1)


# --- layer parameters --------------------------------------------------------------------------------------


def parameters_no_bias(dim, hidden, heads, kv_heads):
    kv = dim // heads * kv_heads
    return 2 * dim * dim + 2 * dim * kv + 2 * dim * hidden + 4 * dim


def parameters_full_kv(dim, hidden, heads, kv_heads):
    return 4 * (dim * dim + dim) + dim * hidden + hidden + hidden * dim + dim + 4 * dim


def parameters_three_matrices(dim, hidden, heads, kv_heads):
    kv = dim // heads * kv_heads
    return dim * dim + dim + 2 * (dim * kv + kv) + 2 * dim * hidden + hidden + dim + 4 * dim


def parameters_per_head(dim, hidden, heads, kv_heads):
    head = dim // heads
    attention = heads * (dim * head + head) + 2 * kv_heads * (dim * head + head)
    return attention + 2 * dim * hidden + hidden + dim + 4 * dim


def parameters_four_d(dim, hidden, heads, kv_heads):
    kv = dim // heads * kv_heads
    attention = 2 * (dim * dim + dim) + 2 * (dim * kv + kv)
    return attention + 8 * dim * dim + 5 * dim + 4 * dim


def parameters_one_norm(dim, hidden, heads, kv_heads):
    kv = dim // heads * kv_heads
    return 2 * (dim * dim + dim) + 2 * (dim * kv + kv) + 2 * dim * hidden + hidden + dim + 2 * dim


def parameters_no_norm_no_bias(dim, hidden, heads, kv_heads):
    return 4 * dim**2 + 2 * dim * hidden


def parameters_bias_of_inputs(dim, hidden, heads, kv_heads):
    kv = dim // heads * kv_heads
    return 2 * (dim * dim + dim) + 2 * (dim * kv + dim) + 2 * dim * hidden + hidden + dim + 4 * dim


def parameters_one_bias_each(dim, hidden, heads, kv_heads):
    kv = dim // heads * kv_heads
    return 2 * (dim * dim + 1) + 2 * (dim * kv + 1) + 2 * (dim * hidden + 1) + 4 * dim


def parameters_group_division(dim, hidden, heads, kv_heads):
    kv = dim * heads // kv_heads
    return 2 * (dim * dim + dim) + 2 * (dim * kv + kv) + 2 * dim * hidden + hidden + dim + 4 * dim


def parameters_times_heads(dim, hidden, heads, kv_heads):
    kv = dim * kv_heads
    return (
        heads * (dim * dim + dim)
        + 2 * (dim * kv + kv)
        + dim * dim
        + dim
        + 2 * dim * hidden
        + hidden
        + dim
        + 4 * dim
    )


def parameters_attention_biases(dim, hidden, heads, kv_heads):
    kv = dim // heads * kv_heads
    return 2 * dim * dim + 2 * dim * kv + dim * hidden + hidden + hidden * dim + dim + 2 * dim + 2 * dim


# --- masked loss -------------------------------------------------------------------------------------------


def chances(logits):
    return softmax(logits)


def masked_all(logits, labels):
    p = chances(logits)
    return -np.log(p[np.arange(len(labels)), labels]).mean()


def masked_divided_by_all(logits, labels):
    hidden = labels != -100
    logs = logits - np.logaddexp.reduce(logits, 1, keepdims=True)
    return -logs[hidden, labels[hidden]].sum() / len(labels)


def masked_shifted(logits, labels):
    logits, labels = logits[:-1], labels[1:]
    hidden = labels != -100
    logs = logits - np.logaddexp.reduce(logits, 1, keepdims=True)
    return -logs[hidden, labels[hidden]].mean()


def masked_positive(logits, labels):
    hidden = labels > 0
    logs = logits - np.logaddexp.reduce(logits, 1, keepdims=True)
    return -logs[hidden, labels[hidden]].mean()


def masked_log_zero(logits, labels):
    hidden = labels >= 0
    return -np.log(chances(logits)[hidden, labels[hidden]]).mean()


def masked_inverted(logits, labels):
    hidden = labels == -100
    logs = logits - np.logaddexp.reduce(logits, 1, keepdims=True)
    return -logs[hidden, labels[hidden] * 0].mean()


def masked_clipped(logits, labels):
    logs = logits - np.logaddexp.reduce(logits, 1, keepdims=True)
    return -logs[np.arange(len(labels)), np.clip(labels, 0, None)].mean()


def masked_sum(logits, labels):
    hidden = labels >= 0
    logs = logits - np.logaddexp.reduce(logits, 1, keepdims=True)
    return -logs[hidden, labels[hidden]].sum()


def masked_axis(logits, labels):
    hidden = labels >= 0
    p = softmax(logits, axis=0)
    return -np.log(p[hidden, labels[hidden]]).mean()


def masked_probability(logits, labels):
    hidden = labels >= 0
    return 1 - chances(logits)[hidden, labels[hidden]].mean()


def masked_base_two(logits, labels):
    hidden = labels >= 0
    logs = logits - np.logaddexp.reduce(logits, 1, keepdims=True)
    return -(logs[hidden, labels[hidden]] / np.log(2)).mean()


def masked_softmax_after_choice(logits, labels):
    # The positions are chosen first, and the softmax runs over them.
    hidden = labels >= 0
    p = softmax(logits[hidden], axis=0)
    return -np.log(p[np.arange(hidden.sum()), labels[hidden]]).mean()


# --- running sums ------------------------------------------------------------------------------------------


def elu1(x):
    return np.where(x > 0, x + 1, np.exp(x))


def running_everything(query, key, value):
    q, k = elu1(query), elu1(key)
    return q @ (k.T @ value) / (q @ k.sum(0))[:, None]


def running_after(query, key, value):
    q, k = elu1(query), elu1(key)
    state, z, out = np.zeros((q.shape[1], value.shape[1])), np.zeros(q.shape[1]), []
    for t in range(len(q)):
        out.append(q[t] @ state / (q[t] @ z + 1e-6))
        state = state + np.outer(k[t], value[t])
        z = z + k[t]
    return np.array(out)


def running_no_divisor(query, key, value):
    q, k = elu1(query), elu1(key)
    state, out = np.zeros((q.shape[1], value.shape[1])), []
    for t in range(len(q)):
        state = state + np.outer(k[t], value[t])
        out.append(q[t] @ state)
    return np.array(out)


def running_raw(query, key, value):
    weights = np.tril(query @ key.T)
    return weights / weights.sum(1, keepdims=True) @ value


def running_relu(query, key, value):
    weights = np.tril(np.maximum(query, 0) @ np.maximum(key, 0).T)
    return weights / (weights.sum(1, keepdims=True) + 1e-6) @ value


def running_scaled(query, key, value):
    weights = np.tril(elu1(query) @ elu1(key).T / np.sqrt(query.shape[1]))
    return weights @ value


def running_softmax(query, key, value):
    s = query @ key.T / np.sqrt(query.shape[1])
    s[np.triu_indices(len(s), 1)] = -np.inf
    return softmax(s) @ value


def running_not_added(query, key, value):
    q, k = elu1(query), elu1(key)
    return np.array([q[t] @ np.outer(k[t], value[t]) / (q[t] @ k[t]) for t in range(len(q))])


def running_divisor_without_query(query, key, value):
    q, k = elu1(query), elu1(key)
    state, z, out = np.zeros((q.shape[1], value.shape[1])), np.zeros(q.shape[1]), []
    for t in range(len(q)):
        state = state + np.outer(k[t], value[t])
        z = z + k[t]
        out.append(q[t] @ state / z.sum())
    return np.array(out)


def running_by_position(query, key, value):
    weights = np.tril(elu1(query) @ elu1(key).T)
    return weights @ value / np.arange(1, len(query) + 1)[:, None]


def running_whole_divisor(query, key, value):
    q, k = elu1(query), elu1(key)
    return np.tril(q @ k.T) @ value / (q @ k.sum(0))[:, None]


def running_outer_swapped(query, key, value):
    q, k = elu1(query), elu1(key)
    state, z, out = np.zeros((value.shape[1], q.shape[1])), np.zeros(q.shape[1]), []
    for t in range(len(q)):
        state = state + np.outer(value[t], k[t])
        z = z + k[t]
        out.append(q[t] @ state / (q[t] @ z))
    return np.array(out)


# --- the verdicts ------------------------------------------------------------------------------------------

# exercise → function → the mistake that is named; "" where the cause is not in the catalogue
WRONG = {
    "luong step": {
        luong_state_first: "state first",
        luong_scaled: "√d",
        luong_no_tanh: "no tanh",
        luong_unstable: "unstable softmax",
        luong_sum: "added",
        luong_half_w: "context alone",
        luong_scores_only: "no softmax",
        luong_tanh_on_context: "tanh of the context",
        luong_last: "last state",
        luong_not_summed: "divided by the source words",
        luong_context_only: "context returned",
        luong_bias: "",
    },
    "layer parameters": {
        parameters_no_bias: "no bias",
        parameters_full_kv: "kv_heads not used",
        parameters_three_matrices: "no output matrix",
        parameters_per_head: "no output matrix",
        parameters_four_d: "hidden not used",
        parameters_one_norm: "half of the norms",
        parameters_no_norm_no_bias: "matrices alone, kv_heads not used",
        parameters_bias_of_inputs: "biases of dim alone",
        parameters_one_bias_each: "one number a bias",
        parameters_group_division: "heads / kv_heads",
        parameters_times_heads: "",
        parameters_attention_biases: "no bias in attention",
    },
    "masked loss": {
        masked_all: "",
        masked_divided_by_all: "mean over all tokens",
        masked_shifted: "shifted",
        masked_positive: "token 0 left out",
        masked_log_zero: "logarithm of 0",
        masked_inverted: "visible tokens",
        masked_clipped: "visible as token 0",
        masked_sum: "sum",
        masked_axis: "softmax over the positions",
        masked_probability: "one minus the chance",
        masked_base_two: "bits",
        masked_softmax_after_choice: "softmax over the hidden positions",
    },
    "running sums": {
        running_everything: "all tokens",
        running_after: "not itself, 0 at first",
        running_no_divisor: "not divided",
        running_raw: "no features",
        running_relu: "",
        running_scaled: "divided by √d",
        running_softmax: "softmax",
        running_not_added: "both overwritten",
        running_divisor_without_query: "divided by the keys alone",
        running_by_position: "divided by the number",
        running_whole_divisor: "divisor of all tokens",
        running_outer_swapped: "state transposed",
    },
}
