"""The answers of questions anew: dense weights in float64 from the vectors, by the textbook; nothing of the quiz."""

import numpy as np


def dense(call, head, batch, allowed):
    """`(queries, keys)` of one head; `allowed`, `(queries, keys)` bool, is what the test knows of the model's mask."""
    group = call.query.shape[1] // call.key.shape[1]
    query = call.query[batch, head].double().numpy()
    key = call.key[batch, head // group].double().numpy()
    scores = np.where(allowed, query @ key.T / np.sqrt(query.shape[1]), -np.inf)
    return softmax(scores), scores


def softmax(scores):
    terms = np.exp(scores - scores.max(-1, keepdims=True))
    return terms / terms.sum(-1, keepdims=True)


def entropy(weights):
    return -(weights * np.log(np.where(weights > 0, weights, 1))).sum(-1)


def statistic(name, weights):
    """The mean of a row statistic over all queries."""
    queries, keys = weights.shape
    q, k = np.arange(queries)[:, None] + keys - queries, np.arange(keys)[None]
    match name:
        case "entropy":
            return entropy(weights).mean()
        case "effective_keys":
            return np.exp(entropy(weights)).mean()
        case "first":
            return weights[:, 0].mean()
        case "distance":
            return (weights * abs(q - k)).sum(-1).mean()
        case "previous":
            return (weights * (k == q - 1)).sum(-1).mean()
        case "self_mass":
            return (weights * (k == q)).sum(-1).mean()
    raise AssertionError(name)


def right_answers(question, record, allowed):
    """Indices of the choices that are right; for a number, [0] where it is right to half of the tolerance.

    Args:
        question: generated from the record. allowed: gives for a call and a row of the batch what may be attended, and
            which queries are real.
    """
    subject, choices = question.subject, question.choices
    batch = subject["batch"]

    def of(call, head):
        mask, real = allowed(record[call], batch)
        weights, scores = dense(record[call], head, batch, mask)
        return weights, scores, real

    if "statistic" in subject:
        values = [statistic(subject["statistic"], of(*pair)[0][of(*pair)[2]]) for pair in subject["heads"]]
        return best(values, smallest=subject["smallest"], apart=0.05)
    call, head = subject["heads"][0]
    weights, scores, real = of(call, head)
    match question.template:
        case "rest":
            row = weights[subject["query"]]
            # Clear among all keys, and not only among those to choose from.
            assert row.max() - np.sort(row)[-2] > 0.04
            return [i for i, key in enumerate(subject["keys"]) if row[key] == row.max()]
        case "temperature":
            value = entropy(softmax(scores[subject["query"]] / subject["temperature"]))
            return close(choices, value, 0.07)
        case "sharpen":
            return close(choices, softmax(2 * scores[subject["query"]]).max(), 0.025)
        case "window":
            value = softmax(scores[subject["query"], subject["keys"]])[subject["keys"].index(subject["key"])]
        case "ceiling":
            value = np.log(np.isfinite(scores[subject["query"]]).sum())
        case "effective keys":
            value = np.exp(entropy(weights[subject["query"]]))
        case "allowed keys":
            value = np.isfinite(scores[subject["query"]]).sum()
        case "most received":
            received = weights[real].sum(0)
            assert received.argmax() == subject["keys"][question.right]
            return best([received[key] for key in subject["keys"]], apart=0.4)
        case "shared keys":
            shared = record[call].key[:, np.arange(record[call].sizes.heads) // record[call].sizes.group]
            return [i for i, other in enumerate(subject["chosen"]) if shared[:, other].equal(shared[:, head])]
        case other:
            raise AssertionError(other)
    return [0] if abs(value - question.number) <= question.tolerance / 2 + 1e-9 else []


def best(values, *, smallest=False, apart=0.0):
    """The index of the largest, or smallest, value, if it is so much ahead of all others."""
    order = np.argsort(values) if smallest else np.argsort(values)[::-1]
    return [int(order[0])] if abs(values[order[0]] - values[order[1]]) >= apart else []


def close(choices, value, tolerance):
    """Choices whose text, as a learner reads it, is near the value."""
    return [i for i, choice in enumerate(choices) if abs(float(choice.text.split()[0]) - value) <= tolerance]
