"""What lessons 1 to 6 say: similarity, soft look-up, scaling, masks, heads, cross-attention."""

from __future__ import annotations

import numpy as np

from regard.learn.quizzes.concepts.concept import Concept, weights_of
from regard.learn.quizzes.picture import Picture

SCORES = [2.0, 1.0, 0.0, -1.0]
DEGREES = (0.25, 1.0, 4.0)
EARLIER = np.tril(np.ones((6, 6)))

FIRST = (
    Concept(
        1,
        "length",
        "One vector is made a hundred times as long. What becomes of its dot product and of its cosine with another?",
        "The dot product is a hundred times as large, the cosine stays.",
        (
            "Both are a hundred times as large.",
            "The cosine is a hundred times as large, the dot product stays.",
            "Both stay.",
        ),
        "The dot product is |x| |y| cos: it grows with the length. A cosine is divided by both lengths, and so sees "
        "direction alone.",
    ),
    Concept(
        1,
        "own key",
        "Scores are dot products. Is the key most like a query always the query's own vector?",
        "No: a longer vector in a similar direction can have a larger dot product.",
        (
            "Yes: nothing is more like a vector than itself.",
            "Yes, as long as all numbers are positive, so that every dot product is too.",
            "No: a vector's dot product with itself is 0.",
        ),
        "x·x is |x|². A vector twice as long, in nearly the same direction, has nearly twice that. With a cosine "
        "nothing ranks above the vector itself.",
    ),
    Concept(
        2,
        "constant",
        "The same number is added to all scores of a query. What becomes of its weights?",
        "Nothing: they stay as they are.",
        ("They become flatter.", "They become sharper.", "They no longer add up to 1."),
        "e^(s + c) = e^s · e^c, and e^c is in the numerator and in the sum below. That is why the largest score may be "
        "subtracted before exp.",
    ),
    Concept(
        2,
        "temperature",
        "The temperature, by which scores are divided, is raised from 1 to 4. What becomes of the weights?",
        "They become flatter; the order of the keys stays.",
        (
            "They become sharper, and their entropy falls towards 0.",
            "They become four times as small.",
            "They become flatter, and the order of the keys may change.",
        ),
        "Differences of scores shrink, so terms e^(s/T) are more alike. The largest score stays the largest.",
        Picture.of_weights(
            np.stack([weights_of(SCORES, degree) for degree in DEGREES]),
            [f"T = {degree:g}" for degree in DEGREES],
            [f"score {score:g}" for score in SCORES],
            "The same scores at three temperatures",
        ),
    ),
    Concept(
        3,
        "root",
        "Why are scores divided by √d, with d the size of a head?",
        "Dot products of d random numbers have a spread that grows with √d, and the softmax would saturate.",
        (
            "So that the weights add up to 1.",
            "So that exp does not overflow: dot products of d random numbers grow with d², and with them the scores.",
            "So that heads of several sizes take the same time.",
        ),
        "With components of variance 1 a dot product has variance d, so its standard deviation is √d. Divided by √d it "
        "is 1 at any width, and the softmax passes gradient.",
    ),
    Concept(
        3,
        "shapes",
        "There are 3 queries, 8 keys, and values of 5 numbers. What shapes have the weights and the output?",
        "Weights (3, 8), output (3, 5).",
        (
            "Weights (8, 3), output (8, 5).",
            "Weights (3, 8), output (3, 8).",
            "Weights (3, 5), output (8, 5).",
        ),
        "One row of weights per query, one column per key. The output is weights times values: a mean of 8 values for "
        "each of 3 queries.",
    ),
    Concept(
        4,
        "order",
        "A causal mask is applied by setting weights to 0 after the softmax. What is wrong?",
        "Rows no longer add up to 1: the future was in the sum.",
        (
            "Nothing: a weight of 0 is 0, before or after the softmax.",
            "The first token attends nothing.",
            "Only the gradient differs.",
        ),
        "The softmax divides by a sum over all keys. Set scores to −inf before it, or divide each row by its new sum.",
        Picture.of_weights(
            EARLIER / EARLIER.sum(-1, keepdims=True), title="A causal mask, all allowed scores alike"
        ),
    ),
    Concept(
        4,
        "empty row",
        "A query may attend no key at all. What does Regard give as its output and its weights?",
        "Output 0 and weights 0, and the query is left out of every mean.",
        ("NaN, as 0 / 0 is.", "Equal weights on all keys, and so the mean of all the values.", "An error."),
        "There is nothing to take a mean of. NaN would spread to all that follows, and equal weights on blocked keys, "
        "which −1e9 gives, would be an invention.",
    ),
    Concept(
        4,
        "conventions",
        "A boolean mask is True for real tokens. Where does True mean “may attend”?",
        "In torch's scaled_dot_product_attention, but not in the key_padding_mask of nn.MultiheadAttention.",
        (
            "In both.",
            "In the key_padding_mask of nn.MultiheadAttention, but not in scaled_dot_product_attention.",
            "In neither.",
        ),
        "The function's boolean mask says which keys take part; the layer's says which are left out. The same tensor "
        "means the opposite.",
    ),
    Concept(
        5,
        "parameters",
        "A layer of embedding size 64 goes from 4 heads to 8. How many parameters has it then?",
        "As many as before.",
        ("Twice as many.", "Half as many.", "Four times as many."),
        "The four projections are 64 × 64, whatever the number of heads: their rows are split into more, smaller "
        "heads.",
    ),
    Concept(
        5,
        "why many",
        "A token must find the word before it and the first word of the text. Why do two heads help?",
        "One softmax is one set of weights, and so one mean.",
        (
            "Two heads have twice the parameters.",
            "One head cannot see more than one token at a time.",
            "Two heads have sharper weights than one.",
        ),
        "A head mixes all that it looks at into one vector. Two heads keep two answers apart, with the same number of "
        "parameters.",
    ),
    Concept(
        6,
        "square",
        "A translator reads 7 tokens and has written 5. What shape have the weights of a head of its cross-attention?",
        "5 × 7",
        ("7 × 5", "5 × 5", "7 × 7"),
        "Queries come from the text that is written, keys and values from the text that is read: a row for each "
        "written token.",
    ),
    Concept(
        6,
        "order of the source",
        "The tokens of the memory are shuffled, without positions in them. What becomes of the output of "
        "cross-attention?",
        "It stays; only the columns of the weights are shuffled.",
        (
            "It is shuffled likewise.",
            "It becomes the mean of the values, whatever the query.",
            "It becomes 0.",
        ),
        "Attention is a sum over a set. Order must be in the vectors themselves, by positions.",
    ),
)
