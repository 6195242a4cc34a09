"""Wrong solutions of the second exercises, written once their catalogues were mended: none may be explained wrongly."""

import math

import numpy as np


def softmax(x, axis=-1):
    e = np.exp(x - np.max(x, axis=axis, keepdims=True))
    return e / np.sum(e, axis=axis, keepdims=True)


def logs_of(x):
    return x - np.logaddexp.reduce(x, axis=-1, keepdims=True)


def elu1(x):
    return np.where(x > 0, x + 1, np.exp(x))


def nearest_to_itself(x):
    lengths = np.linalg.norm(x, axis=1)
    lengths[lengths == 0] = 1
    return (x @ x.T / np.outer(lengths, lengths)).argmax(1)


def nearest_eye_subtracted(x):
    lengths = np.linalg.norm(x, axis=1, keepdims=True)
    units = x / np.where(lengths == 0, 1, lengths)
    return (units @ units.T - np.eye(len(x))).argmax(1)


def nearest_only_one_length(x):
    lengths = np.linalg.norm(x, axis=1, keepdims=True)
    scores = x @ x.T / np.where(lengths == 0, 1, lengths)
    np.fill_diagonal(scores, -np.inf)
    return scores.argmax(1)


def nearest_one_based(x):
    lengths = np.linalg.norm(x, axis=1, keepdims=True)
    units = x / np.where(lengths == 0, 1, lengths)
    scores = units @ units.T
    np.fill_diagonal(scores, -1e9)
    return scores.argmax(1) + 1


def look_up_temperature_squared(query, key, value, temperature):
    q = query / np.linalg.norm(query, axis=1, keepdims=True) / temperature
    k = key / np.linalg.norm(key, axis=1, keepdims=True) / temperature
    return softmax(q @ k.T) @ value


def look_up_keys_forgotten(query, key, value, temperature):
    q = query / np.linalg.norm(query, axis=1, keepdims=True)
    return softmax(q @ key.T / temperature) @ value


def look_up_without_softmax(query, key, value, temperature):
    q = query / np.linalg.norm(query, axis=1, keepdims=True)
    k = key / np.linalg.norm(key, axis=1, keepdims=True)
    return (q @ k.T / temperature) @ value


def look_up_of_distances(query, key, value, temperature):
    distances = np.array([[math.dist(q, k) for k in key] for q in query])
    return softmax(-distances / temperature) @ value


def variance_of_products(query, key):
    products = query[:, None] * key[None]
    return np.array([products.var(), products.var() / query.shape[1]])


def variance_first_alone(query, key):
    return (query @ key.T).var()


def variance_both_scaled(query, key):
    scores = query @ key.T / math.sqrt(query.shape[1])
    return np.array([scores.var(), scores.var()])


def variance_mean_of_rows(query, key):
    scores = query @ key.T
    return np.array([scores.var(1).mean(), scores.var(1).mean() / query.shape[1]])


def alignment_of_columns(weights, partner):
    right = [np.argmax(weights[:, p]) == i for i, p in enumerate(partner) if p >= 0]
    return sum(right) / len(right)


def alignment_sum_of_weights(weights, partner):
    return sum(weights[i, p] for i, p in enumerate(partner) if p != -1)


def alignment_wrong_ones(weights, partner):
    has = partner >= 0
    return np.mean(weights[has].argmax(1) != partner[has])


def alignment_of_all_counted(weights, partner):
    right = 0
    for i in range(len(partner)):
        if partner[i] >= 0 and weights[i].argmax() == partner[i]:
            right += 1
    return right / len(partner)


def luong_forgot_state(state, states, w):
    context = softmax(states @ state) @ states
    return np.tanh(np.concatenate([context, context]) @ w)


def luong_plain_mean(state, states, w):
    return np.tanh(np.concatenate([states.mean(axis=0), state]) @ w)


def luong_scores_divided(state, states, w):
    scores = states @ state
    return np.tanh(np.concatenate([scores / scores.sum() @ states, state]) @ w)


def luong_scaled_backwards(state, states, w):
    context = softmax(states @ state / math.sqrt(len(state))) @ states
    return np.tanh(np.concatenate([state, context]) @ w)


def parameters_no_biases_or_norms(dim, hidden, heads, kv_heads):
    kv = dim * kv_heads // heads
    return 2 * dim * dim + 2 * dim * kv + 2 * dim * hidden


def parameters_one_feedforward_bias(dim, hidden, heads, kv_heads):
    kv = dim * kv_heads // heads
    return 2 * (dim + 1) * dim + 2 * (dim + 1) * kv + 2 * dim * hidden + hidden + 4 * dim


def parameters_gain_alone(dim, hidden, heads, kv_heads):
    kv = dim * kv_heads // heads
    return 2 * (dim + 1) * dim + 2 * (dim + 1) * kv + (dim + 1) * hidden + (hidden + 1) * dim + dim + dim


def parameters_attention_alone(dim, hidden, heads, kv_heads):
    kv = dim * kv_heads // heads
    return 2 * (dim + 1) * dim + 2 * (dim + 1) * kv


def masked_with_zeros(logits, labels):
    known = labels >= 0
    chosen = logs_of(logits)[np.arange(len(labels)), np.where(known, labels, 0)]
    return -(chosen * known).mean()


def masked_no_shift_back(logits, labels):
    logits, labels = logits[1:], labels[:-1]
    known = labels >= 0
    return -logs_of(logits[known])[np.arange(known.sum()), labels[known]].mean()


def masked_sign(logits, labels):
    known = labels >= 0
    return logs_of(logits[known])[np.arange(known.sum()), labels[known]].mean()


def masked_argmax(logits, labels):
    known = labels >= 0
    return (logits.argmax(1)[known] == labels[known]).mean()


def running_softmaxed_features(query, key, value):
    weights = np.exp(elu1(query) @ elu1(key).T) * np.tri(len(query))
    return weights / weights.sum(1, keepdims=True) @ value


def running_strict(query, key, value):
    weights = np.tril(elu1(query) @ elu1(key).T, -1)
    return weights / weights.sum(1, keepdims=True) @ value


def running_key_raw(query, key, value):
    weights = np.tril(elu1(query) @ key.T)
    return weights / weights.sum(1, keepdims=True) @ value


def running_upper(query, key, value):
    weights = np.triu(elu1(query) @ elu1(key).T)
    return weights / weights.sum(1, keepdims=True) @ value


# exercise → function → the mistake that is named; "" where the cause is not in the catalogue
WRONG = {
    "nearest": {
        nearest_to_itself: "itself",
        nearest_eye_subtracted: "1 subtracted on the diagonal",
        nearest_only_one_length: "dot product",
        nearest_one_based: "counted from 1",
    },
    "look up": {
        look_up_temperature_squared: "temperature squared",
        look_up_keys_forgotten: "length of the query alone",
        look_up_without_softmax: "no softmax",
        look_up_of_distances: "distance",
    },
    "score variance": {
        variance_of_products: "products",
        variance_first_alone: "only the first",
        variance_both_scaled: "both divided",
        variance_mean_of_rows: "mean of the rows",
    },
    "alignment": {
        alignment_of_columns: "words that look most at the partner",
        alignment_sum_of_weights: "",
        alignment_wrong_ones: "wrong ones",
        alignment_of_all_counted: "all words",
    },
    "luong step": {
        luong_forgot_state: "context twice",
        luong_plain_mean: "plain mean",
        luong_scores_divided: "no exponential",
        luong_scaled_backwards: "√d + state first",
    },
    "layer parameters": {
        parameters_no_biases_or_norms: "matrices alone",
        parameters_one_feedforward_bias: "no second bias",
        parameters_gain_alone: "half of the norms",
        parameters_attention_alone: "attention alone",
    },
    "masked loss": {
        masked_with_zeros: "mean over all tokens",
        masked_no_shift_back: "shifted the other way",
        masked_sign: "sign",
        masked_argmax: "",
    },
    "running sums": {
        running_softmaxed_features: "softmax of the features",
        running_strict: "not itself",
        running_key_raw: "features of the query alone",
        running_upper: "from the end",
    },
}
