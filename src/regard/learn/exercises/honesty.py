"""What weights do not show: how much each key moves, and what is left without a head."""

from __future__ import annotations

import numpy as np

from regard.learn.exercise import Case, Exercise, Variant
from regard.learn.exercises.general import rounded, spoilt
from regard.learn.exercises.inputs import numbers


def norm_shares(weights, value):
    """Which share of what a query moves comes from each key.

    weights (queries, keys), value (keys, value_dim), not all 0; returns (queries, keys), rows that add up to 1.
    """
    # The length of a sum is not the sum of lengths: shares are of what each key brings.
    moved = weights * np.sqrt((value**2).sum(-1))[None, :]
    return moved / moved.sum(-1, keepdims=True)


def without_head(outputs, w_output, off):
    """The output of many heads with one of them switched off.

    outputs (heads, tokens, head_dim), w_output (heads · head_dim, dim): its first head_dim rows belong to head 0. off: the
    head whose output is 0. Returns (tokens, dim).
    """
    heads, tokens, head_dim = outputs.shape
    # A copy: the caller needs the outputs as they were.
    left = np.where(np.arange(heads)[:, None, None] == off, 0.0, outputs)
    return left.transpose(1, 0, 2).reshape(tokens, heads * head_dim) @ w_output


def _shared(seed, queries, keys, value_dim):
    parts = np.random.default_rng(seed).integers(1, 9, (queries, keys)).astype(float)
    return Case(
        {"weights": parts / parts.sum(-1, keepdims=True), "value": numbers(seed + 1, keys, value_dim)}
    )


def _moved(weights, value, size):
    with np.errstate(all="ignore"):
        moved = weights * size(value)
        return moved / moved.sum(-1, keepdims=True)


def _lengths(value):
    return np.sqrt((value**2).sum(-1))


# A large weight on a short vector moves little.
SHARES = Exercise(
    name="norm shares",
    lesson=14,
    statement=(
        "A weight says where a head looks; what it moves is weight times value. Write the share of each key: the "
        "weight times the length of its value, divided by the sum of these over all keys of the query."
    ),
    solution=norm_shares,
    cases=(_shared(621, 2, 2, 2), _shared(623, 3, 3, 3), _shared(625, 2, 5, 3), _shared(627, 5, 3, 2)),
    variants=(
        Variant(
            "weights alone",
            "It is the weights as they are: multiply with the values' lengths.",
            lambda w, v: w + 0.0,
        ),
        Variant(
            "not divided",
            "The products are not divided by their sum: each query's shares must add up to 1.",
            lambda w, v: w * _lengths(v),
        ),
        Variant(
            "lengths alone",
            "The weights are not used: the share is weight times length.",
            lambda w, v: _moved(np.ones_like(w), v, _lengths),
        ),
        Variant(
            "squared lengths",
            "The root is missing: the length of a value is √Σ v².",
            lambda w, v: _moved(w, v, lambda v: (v**2).sum(-1)),
        ),
        Variant(
            "sum of the sizes",
            "The sum of absolute values stands for the length, which is √Σ v².",
            lambda w, v: _moved(w, v, lambda v: abs(v).sum(-1)),
        ),
        Variant(
            "sum of the value",
            "The numbers of a value are added up, and may cancel: its length is √Σ v².",
            lambda w, v: _moved(w, v, lambda v: v.sum(-1)),
        ),
        Variant(
            "largest number",
            "The largest number of a value stands for its length, which is √Σ v².",
            lambda w, v: _moved(w, v, lambda v: abs(v).max(-1)),
        ),
        # From here on the sum runs over something else.
        Variant(
            "sum over the queries",
            "The sum runs over the queries: each query's shares must add up to 1, so sum over axis=-1.",
            lambda w, v: w * _lengths(v) / (w * _lengths(v)).sum(0),
        ),
        Variant(
            "sum over everything",
            "All queries are divided by one sum: each query's shares must add up to 1.",
            lambda w, v: w * _lengths(v) / (w * _lengths(v)).sum(),
        ),
        Variant(
            "divided by the output",
            "It is divided by the length of the whole output: vectors may cancel there, and shares then exceed 1.",
            lambda w, v: w * _lengths(v) / _lengths(w @ v)[:, None],
        ),
        Variant(
            "divided by the largest",
            "It is divided by the largest of the row: each query's shares must add up to 1.",
            lambda w, v: w * _lengths(v) / (w * _lengths(v)).max(-1, keepdims=True),
        ),
        # From here on the products are right, and what is done with them is not.
        Variant(
            "softmax",
            "A softmax is taken of the products: divide them by their sum.",
            lambda w, v: np.exp(w * _lengths(v)) / np.exp(w * _lengths(v)).sum(-1, keepdims=True),
        ),
        Variant(
            "divided by the lengths",
            "The weights are divided by the lengths: a longer value moves more.",
            lambda w, v: _moved(w, v, lambda v: 1 / _lengths(v)),
        ),
        Variant(
            "the output",
            "It is the output of the head: a share for each key is asked for.",
            lambda w, v: w @ v,
        ),
        *spoilt(norm_shares),
    ),
    hints=(
        "np.sqrt((value ** 2).sum(-1)) has the length of each value, (keys,).",
        "weights * lengths multiplies each column by its key's length; then divide each row by its sum.",
    ),
    praise="A sink with a short value has a small share, however large its weight.",
)


def _heads(seed, heads, tokens, head_dim, dim, off):
    arrays = {"outputs": numbers(seed, heads, tokens, head_dim)}
    return Case(arrays | {"w_output": numbers(seed + 1, heads * head_dim, dim), "off": off})


def _joined(outputs):
    return outputs.transpose(1, 0, 2).reshape(outputs.shape[1], -1)


def _without(outputs, off, value=0.0):
    changed = outputs.copy()
    changed[off] = value
    return changed


def _in_place(outputs, w_output, off):
    outputs[off] = 0.0
    return _joined(outputs) @ w_output


REMOVAL = Exercise(
    name="without a head",
    lesson=14,
    statement=(
        "What breaks without a head? Write the output of a layer of many heads with one head switched off: its output "
        "is 0; then the heads are joined, head 0 first, and multiplied by w_output."
    ),
    solution=without_head,
    cases=(
        _heads(631, 2, 2, 2, 4, 0),
        _heads(633, 3, 3, 2, 2, 1),
        _heads(635, 2, 5, 3, 4, 1),
        _heads(637, 5, 2, 3, 7, 3),
    ),
    variants=(
        Variant(
            "no head off",
            "No head is switched off: the output of this one must be 0.",
            lambda o, w, off: _joined(o) @ w,
        ),
        Variant(
            "the other heads off",
            "It is the wrong way round: all heads but this one are switched off.",
            lambda o, w, off: _joined(o - _without(o, off)) @ w,
        ),
        Variant(
            "off by one",
            "Off by one: heads are counted from 0, and here the one before is switched off.",
            lambda o, w, off: _joined(_without(o, off - 1)) @ w,
        ),
        Variant(
            "the next one",
            "Off by one: heads are counted from 0, and here the one after is switched off.",
            lambda o, w, off: _joined(_without(o, (off + 1) % len(o))) @ w,
        ),
        Variant(
            "a token off",
            "A token is set to 0, and not a head: the first axis of outputs has the heads.",
            lambda o, w, off: _joined(np.where(np.arange(o.shape[1])[None, :, None] == off, 0.0, o)) @ w,
        ),
        Variant(
            "mean in its place",
            "The head's mean over the tokens stands in the place of its output: often that is the "
            "fairer question, here it must be 0.",
            lambda o, w, off: _joined(_without(o, off, o[off].mean(0))) @ w,
        ),
        Variant(
            "ones in its place",
            "Its output is set to 1: it must be 0.",
            lambda o, w, off: _joined(_without(o, off, 1.0)) @ w,
        ),
        # From here on the heads are joined in another way.
        Variant(
            "reshape without transposing",
            "The heads are joined without transposing: bring the tokens to the front first, transpose(1, 0, 2).",
            lambda o, w, off: _without(o, off).reshape(o.shape[1], -1) @ w,
        ),
        Variant(
            "columns shuffled",
            "The heads are joined column by column: head 0 must give the first columns, transpose(1, 0, 2).",
            lambda o, w, off: _without(o, off).transpose(1, 2, 0).reshape(o.shape[1], -1) @ w,
        ),
        # From here on the right head is off.
        Variant(
            "not projected",
            "The joined heads are not multiplied by w_output.",
            lambda o, w, off: _joined(_without(o, off)),
        ),
        Variant(
            "scaled up",
            "What is left is made larger for the head that is missing, as dropout does: here it stays.",
            lambda o, w, off: without_head(o, w, off) * len(o) / (len(o) - 1),
        ),
        Variant(
            "w_output transposed",
            "w_output is transposed: it is joined @ w_output.",
            lambda o, w, off: _joined(_without(o, off)) @ w.T,
        ),
        Variant(
            "in place",
            "The outputs are changed in place, and whoever called still needs them: begin with a copy.",
            _in_place,
        ),
        *spoilt(without_head)[:5],
        *rounded(without_head)[:1],
    ),
    hints=(
        "Copy the outputs, and set [off] of the copy to 0.",
        'Then it is the exercise "merge heads", and one product with w_output.',
    ),
    praise="The other heads are untouched, and so are the arrays of the caller.",
)
