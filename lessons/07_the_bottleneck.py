# %% [markdown]
# # 7. The bottleneck that attention removed
#
# *15 minutes. You need: lesson 6, and what a recurrent network is.*
#
# Before attention, a translator was two recurrent networks. The encoder read the source word by word and handed over its
# last state, **one vector**, whatever the length of the text. The decoder wrote the translation from that vector alone.
# Bahdanau, Cho and Bengio (2015) let the decoder look back at every state of the encoder instead. This lesson measures
# what that is worth, and how Luong's attention (2015) differs.

# %%
# %matplotlib inline
import torch

import regard as rg
from regard.tasks.bottleneck.data import collate, pairs
from regard.tasks.common import pretrained
from regard.tasks.common.metrics import exact
from regard.tasks.common.scores import generate_texts
from regard.tasks.common.task import Data
from regard.tasks.translate.pairs import Pairs

# %% [markdown]
# ## One row of dates, twice
#
# The task: translate a row of dates. One date is easy. Each further one is more to remember. Both models were trained
# alike on rows of one to eight dates; the one without attention has *more* parameters, so size is not its problem.

# %%
row = "3 March 2022; 4 July 1994; 9 May 1976; 17 August 2035"
result = rg.tasks.look("bottleneck", row, model="fixed")
for line in (result.header, *result.rows):
    print("  ".join(f"{cell:>24}" for cell in line))

# %% [markdown]
# **Claim.** With attention all four dates come through; through one vector at most one does.
#
# **Claim.** What the fixed vector writes is still a row of four dates in French. It has not forgotten how dates look, but
# which ones they were.

# %%
through_vector = [line[1] for line in result.rows]
through_attention = [line[2] for line in result.rows]
assert (
    sum("✓" in cell for cell in through_attention) == 4 and sum("✓" in cell for cell in through_vector) <= 1
)
assert len(through_vector) == 4 and all(len(cell.split()) >= 3 for cell in through_vector)

# %% [markdown]
# ## Measured against length
#
# Sixteen held-out rows of each length from one date to six; no date in them was in the training data. A row counts if it
# is right to the letter.

# %%
LENGTHS = range(1, 7)


def score(name):
    """The part of rows without a fault, by number of dates."""
    model, vocabulary = pretrained.load("bottleneck", name)
    shares = []
    for length in LENGTHS:
        rows = pairs(16, length=length, held=True, seed=7)
        data = Data(lambda: None, Pairs(rows, vocabulary), collate, vocabulary)
        written = generate_texts(model, data, 100)
        shares.append(exact(written, [str(pair.target) for pair in rows]).mean())
    return shares


names = ["fixed", "luong-dot", "luong-general", "luong-concat", "bahdanau"]
scores = {name: score(name) for name in names}
lines = {name: (list(LENGTHS), shares) for name, shares in scores.items()}
rg.draw.series(
    [rg.draw.Panel("Rows without a fault", "dates in the row", "share", lines)],
    title="One vector, and four kinds of attention",
)

# %% [markdown]
# **Claim.** One date goes through the vector nearly always, in more than 80 % of rows.
#
# **Claim.** From three dates on, at most one row in sixteen survives the vector.
#
# **Claim.** Every kind of attention gets at least 80 % right at any of these lengths.
#
# **Claim.** The model without attention has the most parameters of the five.

# %%
assert scores["fixed"][0] > 0.80
assert max(scores["fixed"][2:]) <= 1 / 16
assert all(min(scores[name]) >= 0.80 for name in names[1:])
sizes = {name: pretrained.card("bottleneck", name)["parameters"] for name in names}
assert max(sizes, key=sizes.get) == "fixed"
print(sizes)

# %% [markdown]
# These are trained models of one seed each. With other seeds the vector fails as early every time, while Luong's dot
# product, which has to use one state both for saying and for looking, depends on its luck most: the card of the task
# (`regard_tasks/bottleneck/CARD.md`) has three seeds.
#
# ## Bahdanau and Luong
#
# | | Bahdanau 2015 | Luong 2015 |
# |---|---|---|
# | who asks | the decoder's state *before* this step | its state *after* this step |
# | score | additive | dot, general or concat |
# | what was found | goes into the recurrent cell | is joined to its output, and fed to the next step |
#
# **Claim.** Either way the decoder makes one set of weights for each token that it writes, over all source tokens, and
# each adds up to 1.
#
# **Claim.** On this row of dates, Bahdanau's decoder walks along the source: the place where it looks moves forward
# in at least three of four steps.

# %%
attention = rg.tasks.look("bottleneck", row, model="bahdanau")
(call,) = attention.record
weights = call.weights(0)
assert weights.shape == (len(attention.record.tokens[0]), len(attention.record.source_tokens[0]))
assert torch.allclose(weights.sum(-1), torch.ones(len(weights)), atol=1e-5)
steps = weights.argmax(-1)[:-1].diff()
assert (steps >= 0).float().mean() >= 3 / 4
written = [*attention.record.tokens[0][1:], "end"]
rg.draw.heatmap(
    weights,
    tokens=written,
    key_tokens=attention.record.source_tokens[0],
    values=False,
    title="Bahdanau: where it looks while it writes",
)

# %% [markdown]
# ## The same bottleneck, seen in gradients
#
# There is a second reason why one vector fails: training. What token i gives to output j must pass every step between
# them. We can compute exactly how strongly an output depends on an input, `‖∂zᵢ/∂xⱼ‖`, for a GRU and for an attention
# layer of the same width, both fresh and untrained.


# %%
torch.manual_seed(0)
text = torch.randn(48, 32)
layers = {
    "causal attention": rg.nn.MultiHeadAttention(32, 4, mask=rg.causal()),
    "GRU": torch.nn.GRU(32, 32, batch_first=True),
}
norms = {name: rg.analysis.jacobian_norms(layer, text) for name, layer in layers.items()}
rg.draw.flow(norms, title="How much an output depends on an input")

# %% [markdown]
# **Claim.** Next door, the GRU is the more sensitive of the two.
#
# **Claim.** Over 32 tokens less than a hundred-thousandth of that is left in the GRU; in attention more than a tenth is.

# %%
along = {name: rg.analysis.by_distance(norm) for name, norm in norms.items()}
assert along["GRU"][1] > along["causal attention"][1]
left = {name: float(mean[32] / mean[1]) for name, mean in along.items()}
assert left["GRU"] < 1e-5 and left["causal attention"] > 0.1
print({name: f"{share:.1e}" for name, share in left.items()})

# %% [markdown]
# Both are layers before training. A GRU can learn to hold a number for long. It has to *learn* it, through gradients
# that fade; attention has the short way from the start.
#
# ## Play
#
# ```sh
# regard explore bottleneck
# ```
# Give it longer and longer rows of dates, and watch the diagonal.

# %% [markdown]
# ## Sources
# - K. Cho et al. 2014, *On the properties of neural machine translation: encoder–decoder approaches*,
#   [arXiv 1409.1259](https://arxiv.org/abs/1409.1259): performance falls with length.
# - I. Sutskever, O. Vinyals, Q. V. Le 2014, *Sequence to sequence learning with neural networks*,
#   [arXiv 1409.3215](https://arxiv.org/abs/1409.3215).
# - D. Bahdanau, K. Cho, Y. Bengio 2015, [arXiv 1409.0473](https://arxiv.org/abs/1409.0473).
# - M.-T. Luong, H. Pham, C. D. Manning 2015, [arXiv 1508.04025](https://arxiv.org/abs/1508.04025).
# - S. Hochreiter 1998, *The vanishing gradient problem during learning recurrent neural nets and problem solutions*,
#   International Journal of Uncertainty, Fuzziness and Knowledge-Based Systems 6(2).
