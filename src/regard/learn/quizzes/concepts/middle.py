"""What lessons 7 to 12 say: the bottleneck, positions, layers, models, training, cheaper attention."""

from __future__ import annotations

import numpy as np

from regard.learn.quizzes.concepts.concept import Concept, weights_of
from regard.learn.quizzes.picture import Picture

DISTANCE = np.arange(8)[:, None] - np.arange(8)[None, :]
PENALTY = np.where(DISTANCE >= 0, -0.5 * DISTANCE, -np.inf)

MIDDLE = (
    Concept(
        7,
        "vector",
        "A translator hands its source over as one vector. Which rows of dates does it lose first?",
        "Long ones: the vector's size is fixed, and there is more to remember.",
        (
            "Short ones: they give the network too little to go by.",
            "Those with rare words, whatever their length: their vectors are the least trained.",
            "None, if it has more parameters than a model with attention.",
        ),
        "In lesson 7 one date comes through nearly always, three hardly ever, although that model has the most "
        "parameters. With attention the decoder looks back at every state.",
    ),
    Concept(
        7,
        "path",
        "How many steps lie between token 1 and output 32 in a recurrent network, and in attention?",
        "31 in the recurrent network, one in attention.",
        (
            "One in both.",
            "About 31 in both.",
            "One in the recurrent network, 32 in attention, token by token.",
        ),
        "A recurrent state is rewritten at every step, and so is the gradient on its way back. Attention joins any two "
        "tokens directly.",
    ),
    Concept(
        8,
        "set",
        "Self-attention without positions and without a mask is given a shuffled text. What comes out?",
        "The same outputs, shuffled likewise.",
        (
            "Other outputs for every token.",
            "The same outputs in the old order.",
            "The mean of all tokens everywhere, as nothing tells them apart.",
        ),
        "Scores depend on pairs of vectors alone. “dog bites man” and “man bites dog” have the same vectors until "
        "positions are added.",
    ),
    Concept(
        8,
        "rotary",
        "Query and key with rotary positions are both moved 100 tokens further. What becomes of their score?",
        "It stays: it depends on their distance alone.",
        ("It shrinks with the position.", "It is multiplied by 100.", "It changes sign."),
        "Each is rotated by an angle that grows with its position. The dot product sees the difference of the angles, "
        "which is that of the positions.",
    ),
    Concept(
        8,
        "alibi",
        "With ALiBi and all scores alike, how do the weights fall from one key to the next one further back?",
        "By the same factor e^(−slope) at every step.",
        ("By the same amount at every step.", "Not at all.", "With the square of the distance."),
        "ALiBi takes slope × distance off each score, and the softmax makes of a difference a factor.",
        Picture.of_weights(weights_of(PENALTY), title="Weights under ALiBi, slope 0.5, all scores alike"),
    ),
    Concept(
        9,
        "length",
        "How does the number of parameters of a transformer layer depend on the length of the text?",
        "Not at all.",
        (
            "It grows with the length.",
            "It grows with its square.",
            "It grows with its logarithm.",
        ),
        "All weights are projections of one token's vector. About 12 d² a layer, two thirds of them in the "
        "feed-forward network. Only a table of positions grows with the longest text.",
    ),
    Concept(
        9,
        "silent block",
        "The last projection of every block of a pre-norm transformer is 0. What do its layers compute?",
        "The identity: each block adds 0 to what passes by.",
        (
            "0 for every token.",
            "The mean of all tokens.",
            "A norm of each token, again and again, layer after layer.",
        ),
        "A residual connection adds what a block says to what was there. So depth is no obstacle at the start of "
        "training, for the token as for its gradient.",
    ),
    Concept(
        9,
        "grouped",
        "12 query heads share 2 key-value heads. What becomes of the KV cache?",
        "It takes a sixth of the memory.",
        (
            "It takes half of the memory.",
            "It stays as it is: queries decide.",
            "It takes a twelfth of the memory.",
        ),
        "The cache holds keys and values, and there are 2 heads of them in place of 12.",
    ),
    Concept(
        10,
        "families",
        "Which can fill a gap in the middle of a sentence from what stands after it, BERT or GPT?",
        "BERT: its attention has no causal mask.",
        (
            "GPT: predicting is what it was trained to do.",
            "Both, if they are large enough.",
            "Neither: attention looks back alone.",
        ),
        "GPT's weights above the diagonal are exactly 0, so nothing that follows can reach a token.",
    ),
    Concept(
        10,
        "induction",
        "What does an induction head look at?",
        "The token after an earlier occurrence of the current token.",
        (
            "An earlier occurrence of the current token.",
            "The token just before the current one, whatever that token is.",
            "The first token of the text.",
        ),
        "It continues what was seen before: after … A B … A it looks at B. It needs another head, in an earlier layer, "
        "that tells each token what stood before it.",
    ),
    Concept(
        11,
        "adam",
        "All gradients are multiplied by 100. How far do ten steps of Adam go?",
        "As far as before.",
        ("A hundred times as far.", "Ten times as far.", "A hundredth as far."),
        "Adam divides each gradient by a running size of itself, so a common factor cancels. Plain descent goes a "
        "hundred times as far.",
    ),
    Concept(
        11,
        "flat start",
        "All weights of a new model are drawn very small, with a spread of 0.02. How is its attention at first?",
        "Nearly uniform over the allowed keys.",
        (
            "All on the token itself.",
            "All on one key, which the initialization draws by chance.",
            "0 everywhere.",
        ),
        "Small queries and keys have scores near 0, and equal scores have equal weights. Heads become sharp by "
        "learning.",
    ),
    Concept(
        11,
        "clipping",
        "A gradient of norm 50 is clipped at norm 1. What becomes of its direction?",
        "It stays; every component is divided by 50.",
        (
            "It bends towards the small components, as the large ones are cut.",
            "It is replaced by that of the step before.",
            "It is reversed.",
        ),
        "Clipping by norm multiplies the whole gradient by one number. Clipping by value would change the direction.",
    ),
    Concept(
        12,
        "square law",
        "The text becomes twice as long. How many times the work is exact attention over all pairs?",
        "Four times.",
        ("Twice.", "Eight times.", "As much as before."),
        "n queries meet n keys. Not storing the weights saves memory, which then grows with n, and no time.",
    ),
    Concept(
        12,
        "linear",
        "Why does linear attention, with φ(q)·φ(k) in place of e^(q·k), need no pairs?",
        "Σ φ(k) vᵀ is one matrix that all queries share.",
        (
            "Most of its weights are 0 and are left out.",
            "It looks at near keys alone.",
            "It computes the same softmax in lower precision, pair by pair.",
        ),
        "φ(q) comes out of the sum over keys. With an exponential it does not, so this is another attention, and no "
        "approximation for free.",
    ),
)
