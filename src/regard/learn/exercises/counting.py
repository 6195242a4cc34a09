"""Where the parameters of a layer are."""

from __future__ import annotations

from regard.learn.exercise import Case, Exercise, Variant
from regard.learn.exercises.general import composed


def layer_parameters(dim, hidden, heads, kv_heads):
    """How many parameters a layer of an encoder has.

    dim: how many numbers a token has. hidden: how many the feed-forward network has between its two matrices. heads,
    kv_heads: of queries, and of keys and values; a head has dim / heads numbers. All are whole numbers, and so is what is
    returned.
    """
    kv_dim = dim // heads * kv_heads
    # A matrix and its bias, four times: query, key, value, output.
    attention = 2 * (dim * dim + dim) + 2 * (dim * kv_dim + kv_dim)
    feedforward = dim * hidden + hidden + hidden * dim + dim
    norms = 2 * (dim + dim)
    return attention + feedforward + norms


def _nothing(*sizes):
    return 0


# What a mistake adds to the right number: two mistakes add up.
def _count(*sizes, attention=_nothing, feedforward=_nothing, norms=_nothing):
    return layer_parameters(*sizes) + attention(*sizes) + feedforward(*sizes) + norms(*sizes)


def _linear(inputs, outputs):
    return inputs * outputs + outputs


def _kv(dim, heads, kv_heads):
    return dim // heads * kv_heads


def _kv_width(width):
    # Keys and values as wide as this, in place of what they are.
    return lambda d, f, h, g: 2 * _linear(d, width(d, h, g)) - 2 * _linear(d, _kv(d, h, g))


def _attention(dim, heads, kv_heads):
    return 2 * _linear(dim, dim) + 2 * _linear(dim, _kv(dim, heads, kv_heads))


WIDTH = "they have kv_heads heads of dim / heads numbers each."
ATTENTION = (
    (
        "kv_heads not used",
        f"Keys and values are counted as wide as the queries: {WIDTH}",
        {"attention": _kv_width(lambda d, h, g: d)},
    ),
    (
        "no bias in attention",
        "The biases of attention are missing: query, key, value and output have one each.",
        {"attention": lambda d, f, h, g: -2 * d - 2 * _kv(d, h, g)},
    ),
    (
        "no output matrix",
        "The output matrix of attention is missing: the joined heads go through one more, dim × dim, with a bias.",
        {"attention": lambda d, f, h, g: -_linear(d, d)},
    ),
    (
        "keys or values alone",
        "Keys or values are missing: both have a matrix and a bias, as wide as kv_heads heads of dim / heads numbers.",
        {"attention": lambda d, f, h, g: -_linear(d, _kv(d, h, g))},
    ),
    (
        "once for each head",
        "Attention is counted once for each head: heads share the columns of one matrix, and their number alone "
        "changes nothing.",
        {"attention": lambda d, f, h, g: (h - 1) * _attention(d, h, g)},
    ),
    (
        "one head of keys",
        f"Keys and values are counted as wide as one head: {WIDTH}",
        {"attention": _kv_width(lambda d, h, g: d // h)},
    ),
    (
        "dim / kv_heads",
        f"Keys and values are counted dim / kv_heads wide: {WIDTH}",
        {"attention": _kv_width(lambda d, h, g: d // g)},
    ),
    (
        "keys and values as narrow as kv_heads",
        f"Keys and values are counted kv_heads wide: {WIDTH}",
        {"attention": _kv_width(lambda d, h, g: g)},
    ),
    (
        "heads / kv_heads",
        f"Keys and values are counted dim · heads / kv_heads wide, the wrong way round: {WIDTH}",
        {"attention": _kv_width(lambda d, h, g: d * h // g)},
    ),
    (
        "biases of dim alone",
        "The biases of keys and values are counted with dim numbers: a bias has as many as come out of its matrix.",
        {"attention": lambda d, f, h, g: 2 * d - 2 * _kv(d, h, g)},
    ),
    (
        "heads as wide as the model",
        "Each head is counted as wide as the model: all heads together are, dim / heads each.",
        {
            "attention": lambda d, f, h, g: (
                _linear(d, h * d) + 2 * _linear(d, g * d) + _linear(h * d, d) - _attention(d, h, g)
            )
        },
    ),
    (
        "all as narrow as keys",
        "All four matrices of attention are counted as narrow as keys and values: query and output are dim × dim.",
        {"attention": lambda d, f, h, g: 2 * _linear(d, _kv(d, h, g)) - 2 * _linear(d, d)},
    ),
    (
        "no attention",
        "Attention is missing: it has four matrices with their biases.",
        {"attention": lambda d, f, h, g: -_attention(d, h, g)},
    ),
)
# Two thirds of the parameters are here, where hidden is 4 · dim.
FEEDFORWARD = (
    (
        "no bias in the feed-forward network",
        "The biases of the feed-forward network are missing: hidden numbers for the first matrix, dim for the second.",
        {"feedforward": lambda d, f, h, g: -f - d},
    ),
    (
        "one feed-forward matrix",
        "The second feed-forward matrix and its bias are missing: it leads back from hidden to dim.",
        {"feedforward": lambda d, f, h, g: -_linear(f, d)},
    ),
    (
        "hidden not used",
        "The feed-forward network is counted 4 · dim wide, as many are: here it is `hidden` wide.",
        {"feedforward": lambda d, f, h, g: 2 * d * (4 * d - f) + 4 * d - f},
    ),
    (
        "feed-forward matrix once",
        "dim × hidden is counted once: there are two such matrices, there and back.",
        {"feedforward": lambda d, f, h, g: -d * f},
    ),
    (
        "no second bias",
        "The bias of the second feed-forward matrix is missing: it has dim numbers.",
        {"feedforward": lambda d, f, h, g: -d},
    ),
    (
        "no first bias",
        "The bias of the first feed-forward matrix is missing: it has hidden numbers.",
        {"feedforward": lambda d, f, h, g: -f},
    ),
    (
        "both biases of dim",
        "Both feed-forward biases are counted with dim numbers: the first has hidden.",
        {"feedforward": lambda d, f, h, g: d - f},
    ),
    (
        "both biases of hidden",
        "Both feed-forward biases are counted with hidden numbers: the second has dim.",
        {"feedforward": lambda d, f, h, g: f - d},
    ),
    (
        "gate",
        "The feed-forward network is counted with three matrices, as one with a gate has: here it has two.",
        {"feedforward": lambda d, f, h, g: d * f},
    ),
    (
        "no feed-forward network",
        "The feed-forward network is missing: it has two matrices with their biases.",
        {"feedforward": lambda d, f, h, g: -_linear(d, f) - _linear(f, d)},
    ),
)
# Few numbers, and easily forgotten.
NORMS = (
    (
        "no norms",
        "The two norms are missing: each has a gain and a bias of dim numbers.",
        {"norms": lambda d, f, h, g: -4 * d},
    ),
    (
        "half of the norms",
        "Half of the norms is missing: there are two, and each has a gain and a bias of dim numbers.",
        {"norms": lambda d, f, h, g: -2 * d},
    ),
    (
        "three norms",
        "There is one norm too many: an encoder layer has two, of 2 · dim numbers each.",
        {"norms": lambda d, f, h, g: 2 * d},
    ),
    (
        "norm of hidden",
        "One norm is counted with gain and bias of hidden numbers: both have dim, as no norm is between the two "
        "feed-forward matrices.",
        {"norms": lambda d, f, h, g: 2 * f - 2 * d},
    ),
)


def _matrices(dim, hidden, heads, kv_heads):
    return 2 * dim * dim + 2 * dim * _kv(dim, heads, kv_heads) + 2 * dim * hidden


# The sizes have no common pattern: hidden is not always 4 · dim, and kv_heads not always heads.
COUNTING = Exercise(
    name="layer parameters",
    lesson=9,
    statement=(
        "Write how many parameters an encoder layer has. Attention has four matrices with a bias each; keys and "
        "values have kv_heads heads, all of one width, dim / heads. The feed-forward network has two matrices with a "
        "bias each. Two norms have a gain and a bias each."
    ),
    solution=layer_parameters,
    cases=tuple(
        Case(dict(zip(("dim", "hidden", "heads", "kv_heads"), sizes, strict=True)))
        for sizes in ((4, 8, 2, 1), (6, 24, 3, 3), (12, 10, 6, 2), (20, 14, 10, 5), (12, 48, 4, 1))
    ),
    variants=(
        *composed(
            _count,
            ATTENTION[:3],
            FEEDFORWARD[:3],
            NORMS[:2],
            leave_out=("no bias in attention + no bias in the feed-forward network",),
        ),
        *composed(_count, ATTENTION[3:]),
        *composed(_count, FEEDFORWARD[3:]),
        *composed(_count, NORMS[2:]),
        Variant(
            "matrices alone",
            "Only matrices are counted: biases and norms belong to the layer too, 2 · dim for each norm.",
            _matrices,
        ),
        Variant(
            "one number a bias",
            "Each bias is counted as one number: it has as many as come out of its matrix.",
            lambda d, f, h, g: _matrices(d, f, h, g) + 6 + 4 * d,
        ),
        Variant(
            "no bias",
            "No matrix has its bias: each has as many numbers as come out of it.",
            lambda d, f, h, g: _matrices(d, f, h, g) + 4 * d,
        ),
        Variant(
            "matrices alone, kv_heads not used",
            "Two things are wrong. First: only matrices are counted, without biases and norms. Second: keys and "
            f"values are counted as wide as the queries: {WIDTH}",
            lambda d, f, h, g: 4 * d * d + 2 * d * f,
        ),
        Variant(
            "attention alone",
            "Only attention is counted: a layer has a feed-forward network and two norms too.",
            lambda d, f, h, g: _attention(d, h, g),
        ),
        Variant(
            "12 d²",
            "12 · dim² is what it comes to about, for hidden = 4 · dim and without biases, norms and shared keys: "
            "count it exactly.",
            lambda d, f, h, g: 12 * d * d,
        ),
    ),
    hints=(
        "A matrix from a to b numbers with a bias has a · b + b parameters.",
        "Keys and values are dim // heads * kv_heads wide. Query and output are dim × dim.",
        "Add up: query and output, key and value, two feed-forward matrices, two norms of 2 · dim.",
    ),
    praise="Biases, norms and shared keys and values count as they are, and the number of heads alone changes nothing.",
)
