"""Wrong solutions of the second exercises of lessons 1 to 6, as learners write them: none may be explained wrongly."""

import numpy as np


def softmax(x, axis=-1):
    e = np.exp(x - np.max(x, axis=axis, keepdims=True))
    return e / np.sum(e, axis=axis, keepdims=True)


def unit(x):
    return x / np.maximum(np.linalg.norm(x, axis=-1, keepdims=True), 1e-12)


# --- nearest -----------------------------------------------------------------------------------------------


def nearest_plain(x):
    return np.argmax(x @ x.T, axis=1)


def nearest_norm_without_axis(x):
    c = (x @ x.T) / (np.linalg.norm(x) * np.linalg.norm(x))
    np.fill_diagonal(c, -np.inf)
    return c.argmax(axis=1)


def nearest_naive_units(x):
    u = x / np.linalg.norm(x, axis=1, keepdims=True)
    c = u @ u.T
    return np.argsort(c, axis=1)[:, -2]


def nearest_diagonal_zero(x):
    c = unit(x) @ unit(x).T
    c = c - np.diag(np.diag(c))
    return c.argmax(1)


def nearest_min(x):
    c = unit(x) @ unit(x).T
    np.fill_diagonal(c, np.inf)
    return c.argmin(1)


def nearest_euclid_self(x):
    d = np.sqrt(((x[:, None] - x[None]) ** 2).sum(-1))
    return d.argmin(1)


def nearest_euclid(x):
    d = np.sqrt(((x[:, None] - x[None]) ** 2).sum(-1))
    d[np.diag_indices(len(x))] = np.inf
    return d.argmin(1)


def nearest_names(x):
    c = unit(x) @ unit(x).T
    np.fill_diagonal(c, -2)
    return [f"row {i}" for i in c.argmax(1)]


def nearest_next_only(x):
    u = unit(x)
    return np.array(
        [int(np.argmax(u[i + 1 :] @ u[i])) + i + 1 if i + 1 < len(x) else 0 for i in range(len(x))]
    )


def nearest_axis_zero(x):
    u = x / np.linalg.norm(x, axis=0, keepdims=True)
    c = u @ u.T
    np.fill_diagonal(c, -np.inf)
    return c.argmax(1)


def nearest_removed_row(x):
    # The other rows are numbered anew.
    u = unit(x)
    return np.array([np.argmax(np.delete(u, i, 0) @ u[i]) for i in range(len(x))])


def nearest_pairs(x):
    c = unit(x) @ unit(x).T
    np.fill_diagonal(c, -np.inf)
    return np.stack([np.arange(len(x)), c.argmax(1)], 1)


# --- look up -----------------------------------------------------------------------------------------------


def look_up_dot(query, key, value, temperature):
    return softmax(query @ key.T / temperature) @ value


def look_up_forgot_heat(query, key, value, temperature):
    return softmax(unit(query) @ unit(key).T) @ value


def look_up_heat_times(query, key, value, temperature):
    return softmax((unit(query) @ unit(key).T) * temperature) @ value


def look_up_unstable(query, key, value, temperature):
    e = np.exp(unit(query) @ unit(key).T / temperature)
    return e / e.sum(1, keepdims=True) @ value


def look_up_axis_zero(query, key, value, temperature):
    return softmax(unit(query) @ unit(key).T / temperature, axis=0) @ value


def look_up_values_normed(query, key, value, temperature):
    return softmax(unit(query) @ unit(key).T / temperature) @ unit(value)


def look_up_sqrt_d(query, key, value, temperature):
    return softmax(unit(query) @ unit(key).T / np.sqrt(query.shape[1]) / temperature) @ value


def look_up_norm_no_axis(query, key, value, temperature):
    s = query @ key.T / (np.linalg.norm(query) * np.linalg.norm(key))
    return softmax(s / temperature) @ value


def look_up_dot_no_heat(query, key, value, temperature):
    return softmax(query @ key.T) @ value


def look_up_one_hot(query, key, value, temperature):
    s = unit(query) @ unit(key).T / temperature
    return value[s.argmax(axis=-1)]


def look_up_heat_on_weights(query, key, value, temperature):
    return softmax(unit(query) @ unit(key).T) / temperature @ value


def look_up_times_d(query, key, value, temperature):
    w = softmax(unit(query) @ unit(key).T / temperature)
    return (w[:, :, None] * value).mean(1)


# --- score variance ----------------------------------------------------------------------------------------


def variance_std(query, key):
    s = query @ key.T
    return np.array([s.std(), (s / np.sqrt(query.shape[1])).std()])


def variance_by_d(query, key):
    s = query @ key.T
    return np.array([s.var(), (s / query.shape[1]).var()])


def variance_len(query, key):
    s = query @ key.T
    return np.array([s.var(), (s / np.sqrt(len(query))).var()])


def variance_axis(query, key):
    s = query @ key.T
    return np.array([s.var(axis=1), (s / np.sqrt(query.shape[1])).var(axis=1)])


def variance_tuple(query, key):
    s = query @ key.T
    return s.var(), (s / np.sqrt(query.shape[1])).var() + 1


def variance_bessel(query, key):
    s = (query @ key.T).ravel()
    m = s.mean()
    v = ((s - m) ** 2).sum() / (len(s) - 1)
    return np.array([v, v / query.shape[1]])


def variance_root_outside(query, key):
    v = (query @ key.T).var()
    return np.array([v, v / np.sqrt(query.shape[1])])


def variance_softmaxed(query, key):
    s = query @ key.T
    return np.array([softmax(s).var(), softmax(s / np.sqrt(query.shape[1])).var()])


def variance_elementwise(query, key):
    n = min(len(query), len(key))
    s = (query[:n] * key[:n]).sum(1)
    return np.array([s.var(), s.var() / query.shape[1]])


def variance_squares(query, key):
    s = query @ key.T
    return np.array([np.mean(s**2), np.mean(s**2) / query.shape[1]])


def variance_reversed(query, key):
    s = query @ key.T
    return np.array([(s / np.sqrt(query.shape[1])).var(), s.var()])


def variance_scaled_both(query, key):
    d = np.sqrt(query.shape[1])
    return np.array([(query @ key.T).var(), ((query / d) @ (key / d).T).var()])


# --- alignment ---------------------------------------------------------------------------------------------


def alignment_all(weights, partner):
    return np.mean(weights.argmax(1) == partner)


def alignment_positive(weights, partner):
    has = partner > 0
    return (weights.argmax(1) == partner)[has].mean()


def alignment_count(weights, partner):
    return np.sum(weights.argmax(1) == partner)


def alignment_weight(weights, partner):
    return np.mean([weights[i, p] for i, p in enumerate(partner) if p >= 0])


def alignment_weight_everywhere(weights, partner):
    return weights[np.arange(len(partner)), partner].mean()


def alignment_axis(weights, partner):
    looked = weights.argmax(0)
    return np.mean(looked[: len(partner)] == partner[: len(looked)])


def alignment_threshold(weights, partner):
    has = partner >= 0
    return (weights[np.arange(len(partner)), partner][has] >= 0.5).mean()


def alignment_percent(weights, partner):
    has = partner >= 0
    return 100 * (weights.argmax(1)[has] == partner[has]).sum() / has.sum()


def alignment_no_mean(weights, partner):
    has = partner >= 0
    return weights.argmax(1)[has] == partner[has]


def alignment_renumbered(weights, partner):
    # The rows are not chosen with the partners.
    chosen = partner[partner >= 0]
    return np.mean(weights.argmax(1)[: len(chosen)] == chosen)


def alignment_divided_by_rows(weights, partner):
    right = 0
    for i, p in enumerate(partner):
        if p == -1:
            continue
        if np.argmax(weights[i]) == p:
            right += 1
    return right / weights.shape[1]


def alignment_off_by_one(weights, partner):
    has = partner >= 0
    return np.mean(abs(weights.argmax(1)[has] - partner[has]) <= 1)


# --- the verdicts ------------------------------------------------------------------------------------------

# exercise → function → the mistake that is named; "" where the cause is not in the catalogue
WRONG = {
    "nearest": {
        nearest_plain: "dot product + itself",
        nearest_norm_without_axis: "dot product",
        nearest_naive_units: "rows of zeros + second largest",
        nearest_diagonal_zero: "itself as 0",
        nearest_min: "least alike",
        nearest_euclid_self: "distance + itself",
        nearest_euclid: "distance",
        nearest_names: "",
        nearest_next_only: "rows behind alone",
        nearest_axis_zero: "lengths of columns",
        nearest_removed_row: "counted among the others",
        nearest_pairs: "",
    },
    "look up": {
        look_up_dot: "dot product",
        look_up_forgot_heat: "no temperature",
        look_up_heat_times: "multiplied by the temperature",
        look_up_unstable: "unstable softmax",
        look_up_axis_zero: "softmax over the queries",
        look_up_values_normed: "values of length 1",
        look_up_sqrt_d: "divided by √d too",
        look_up_norm_no_axis: "one length for all",
        look_up_dot_no_heat: "dot product + no temperature",
        look_up_one_hot: "hard",
        look_up_heat_on_weights: "temperature after",
        look_up_times_d: "divided by the keys",
    },
    "score variance": {
        variance_std: "standard deviation",
        variance_by_d: "divided by d",
        variance_len: "√queries",
        variance_axis: "",
        variance_tuple: "",
        variance_bessel: "n − 1",
        variance_root_outside: "fourth root",
        variance_softmaxed: "weights",
        variance_elementwise: "one query and one key",
        variance_squares: "mean of the squares",
        variance_reversed: "other order",
        variance_scaled_both: "divided by d",
    },
    "alignment": {
        alignment_all: "all words",
        alignment_positive: "first source word left out",
        alignment_count: "number",
        alignment_weight: "weight of the partner",
        alignment_weight_everywhere: "weight of the partner + all words",
        alignment_axis: "",
        alignment_threshold: "more than half",
        alignment_percent: "percent",
        alignment_no_mean: "not averaged",
        alignment_renumbered: "first rows",
        alignment_divided_by_rows: "divided by the source words",
        alignment_off_by_one: "neighbors too",
    },
}
