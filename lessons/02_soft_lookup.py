# %% [markdown]
# # 2. A dictionary that answers softly
#
# *15 minutes. You need: lesson 1.*
#
# A Python dictionary compares a query with its keys. One matches, and its value is the answer; otherwise there is an
# error. **Attention is a dictionary in which every key matches a little.** The answer is a mean of all values, weighted
# by how well each key matches.

# %%
# %matplotlib inline
import math

import torch

import regard as rg

torch.manual_seed(0)
keys = torch.tensor([[1.0, 0.0], [0.0, 1.0], [-1.0, 0.0], [0.0, -1.0]], dtype=torch.float64)
values = torch.tensor([[10.0], [20.0], [30.0], [40.0]], dtype=torch.float64)
names = ["east", "north", "west", "south"]

# %% [markdown]
# ## From scores to weights: softmax
#
# Weights must be positive and add up to 1. The exponential makes anything positive, division by the sum does the rest:
#
#     wⱼ = exp(sⱼ) / (exp(s₁) + … + exp(sₙ))
#
# **Claim.** The weights add up to 1 and are all above 0.
#
# **Claim.** A constant added to all scores changes nothing. So the largest score may be taken off first, and no
# exponential overflows, however large scores are.


# %%
def softmax(scores):
    """Weights of scores, along the last axis."""
    terms = (scores - scores.max(-1, keepdim=True).values).exp()
    return terms / terms.sum(-1, keepdim=True)


query = torch.tensor([3.0, 1.0], dtype=torch.float64)
scores = keys @ query
weights = softmax(scores)
assert math.isclose(weights.sum(), 1) and bool((weights > 0).all())
huge = softmax(scores + 1e5)
assert torch.allclose(huge, weights) and bool((scores + 1e5).exp().isinf().all())
print({name: round(weight, 3) for name, weight in zip(names, weights.tolist(), strict=True)})

# %% [markdown]
# ## The answer
#
# The answer is the weighted mean of the values. A query that points mostly east gets mostly the value of *east*.
#
# **Claim.** More than four fifths of the weight is on *east*, and the answer is nearer to 10 than to any other value.
#
# **Claim.** The answer is always within the range of the values: a mean cannot leave it.
#
# **Claim.** `rg.attend` gives the same answer. Its tensors have four axes, `(batch, heads, tokens, dim)`.

# %%
answer = float(weights @ values)
assert weights[0] > 0.8 and min(values.flatten().tolist(), key=lambda value: abs(value - answer)) == 10
assert 10 <= answer <= 40
ours = rg.attend(query[None, None, None], keys[None, None], values[None, None], scale=1.0)
assert math.isclose(float(ours), answer)
print(f"answer {answer:.2f}")

# %% [markdown]
# ## Any dictionary is a special case
#
# Make the query longer, and the best key takes all. In the limit the soft dictionary is an ordinary one.
#
# **Claim.** With a query 100 times as long, the answer is 10 to ten digits.
#
# **Claim.** With a query of length 0 every key is as good as any other: the answer is the plain mean, 25.

# %%
assert abs(float(softmax(keys @ (100 * query)) @ values) - 10) < 1e-9
assert math.isclose(float(softmax(keys @ (0 * query)) @ values), 25)

# %% [markdown]
# ## Temperature: the dial between hard and soft
#
# Instead of a longer query, one divides the scores by a **temperature** T. Below 1 the weights get sharper, above 1
# flatter. What happens to a row of scores can be told by two numbers:
#
# - the **largest weight**, from 1/n (all alike) to 1 (one key has everything);
# - the **entropy** `−Σ w ln w`, from 0 to ln n, in nats. `exp(entropy)` is over how many keys the attention is spread.

# %%
spread = torch.randn(16, dtype=torch.float64)
rg.draw.temperatures(spread, title="The weights of one query under five temperatures")

# %% [markdown]
# **Claim.** From T = 0.05 to T = 20 the entropy never falls and the largest weight never rises.
#
# **Claim.** At T = 20 the entropy is within a hundredth of ln 16, and at T = 0.05 one key has more than 95 % of the
# weight.
#
# **Claim.** Whatever the temperature, the order of the keys stays as it is.

# %%
coldest, hottest = 0.05, 20
temperatures = torch.logspace(math.log10(coldest), math.log10(hottest), 60, dtype=torch.float64)
rows = softmax(spread / temperatures[:, None])
entropy, largest = torch.special.entr(rows).sum(-1), rows.max(-1).values
assert bool((entropy.diff() > -1e-12).all()) and bool((largest.diff() < 1e-12).all())
assert abs(entropy[-1] - math.log(16)) < 0.01 and largest[0] > 0.95
assert bool((rows.argsort(-1) == spread.argsort()).all())
rg.draw.sharpness(
    {"random scores": spread, "one key far ahead": torch.tensor([5.0] + 15 * [0.0])},
    title="Entropy and largest weight against temperature",
)

# %% [markdown]
# The two curves of the figure differ in shape. Where one key is far ahead, the weights stay sharp for long and then
# let go of it quickly. Where scores are spread, they soften gradually.
#
# ## Any score will do
#
# What compares query and key need not be a dot product. These are the scores that the field has used:
#
# | score | formula | parameters |
# |---|---|---|
# | dot | q · k | none |
# | scaled dot | q · k / √d | none |
# | cosine | q · k / (‖q‖ ‖k‖) | none |
# | general (Luong) | q · W k | a matrix |
# | concat (Luong) | v · tanh(W [q; k]) | a matrix and a vector |
# | additive (Bahdanau) | v · tanh(W q + U k + b) | two matrices, two vectors |
#
# **Claim.** General with W = 1 is the dot product, and the scaled dot product is the dot product at T = √d.
#
# **Claim.** Concat and additive are one idea: with `W = [W₁ W₂]` and no b they give the same numbers.
#
# **Claim.** A cosine ignores how long vectors are; a dot product does not.

# %%
q, k = torch.randn(1, 1, 3, 8, dtype=torch.float64), torch.randn(1, 1, 5, 8, dtype=torch.float64)
dot, scaled = rg.nn.Dot()(q, k), rg.nn.ScaledDot()(q, k)
general = rg.nn.General(8).double()
concat, additive = rg.nn.Concat(8, 8, 10).double(), rg.nn.Additive(8, 8, 10, bias=False).double()
with torch.no_grad():
    general.weight.copy_(torch.eye(8)[None])
    additive.query.weight.copy_(concat.join.weight[:, :8])
    additive.key.weight.copy_(concat.join.weight[:, 8:])
    additive.combine.weight.copy_(concat.combine.weight)
    assert torch.allclose(general(q, k), dot) and torch.allclose(scaled, dot / math.sqrt(8))
    assert torch.allclose(concat(q, k), additive(q, k))
cosine = rg.nn.Cosine()
assert torch.allclose(cosine(7 * q, k), cosine(q, k)) and not torch.allclose(rg.nn.Dot()(7 * q, k), dot)

# %% [markdown]
# A cosine lies between −1 and 1, so its softmax can hardly be sharp: the largest ratio of two weights is e². Models
# that use it divide by a small temperature, often a learned one.
#
# **Claim.** Of two keys, one in the query's direction and one opposite, a cosine gives the better one 0.88 of the
# weight; at T = 0.1 it gives it more than 0.99.

# %%
pair = torch.tensor([[[[1.0, 0.0], [-1.0, 0.0]]]], dtype=torch.float64)
plain = softmax(cosine(pair[:, :, :1], pair))[0, 0, 0, 0]
tempered = rg.nn.Tempered(cosine, 0.1)
sharper = softmax(tempered(pair[:, :, :1], pair))[0, 0, 0, 0]
assert round(float(plain), 2) == 0.88 and sharper > 0.99
assert math.isclose(plain / (1 - plain), math.e**2)

# %% [markdown]
# ## Play
#
# ```sh
# regard explore
# ```
# `#/playground?play.kind=self&play.temperature=0.2` in the address is a cold softmax. Move the temperature, and watch
# the entropy of every query under the map.

# %% [markdown]
# ## Sources
# - A. Graves, G. Wayne, I. Danihelka 2014, *Neural Turing machines*,
#   [arXiv 1410.5401](https://arxiv.org/abs/1410.5401): a memory that is read softly, with a sharpness.
# - D. Bahdanau, K. Cho, Y. Bengio 2015, [arXiv 1409.0473](https://arxiv.org/abs/1409.0473): the additive score.
# - M.-T. Luong, H. Pham, C. D. Manning 2015, *Effective approaches to attention-based neural machine translation*,
#   [arXiv 1508.04025](https://arxiv.org/abs/1508.04025): dot, general, concat.
# - G. Hinton, O. Vinyals, J. Dean 2015, *Distilling the knowledge in a neural network*,
#   [arXiv 1503.02531](https://arxiv.org/abs/1503.02531): the temperature of a softmax.
