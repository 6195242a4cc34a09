# %% [markdown]
# # 3. Scaled dot-product attention, and why √d
#
# *15 minutes. You need: lessons 1 and 2.*
#
# One formula is at the heart of every transformer (Vaswani et al. 2017, equation 1):
#
#     attention(Q, K, V) = softmax(Q Kᵀ / √d) V
#
# Rows of Q are queries, rows of K keys, rows of V values; d is how many numbers a query has. This lesson computes
# it by hand, compares, and then takes the √d away to see what it is for.

# %%
# %matplotlib inline
import math

import numpy as np
import torch

import regard as rg

# %% [markdown]
# ## By hand, in three lines of NumPy


# %%
def attention(query, key, value):
    """Output and weights; query (queries, d), key (keys, d), value (keys, value_dim)."""
    scores = query @ key.T / math.sqrt(query.shape[1])
    terms = np.exp(scores - scores.max(-1, keepdims=True))
    weights = terms / terms.sum(-1, keepdims=True)
    return weights @ value, weights


# %% [markdown]
# Eight tokens of 64 numbers each: sine waves of eight frequencies with a little noise. Query, key and value are all
# the tokens themselves, so this is **self-attention** in its plainest form.
#
# **Claim.** The weights, rounded to three digits, are those of the matrix in this cell.
#
# **Claim.** `rg.attend` and `rg.weights` give the same numbers as the three lines above.

# %%
np.random.seed(42)
x = np.stack([np.sin(np.arange(64) * (i + 1) * 0.1) + 0.1 * np.random.randn(64) for i in range(8)])
output, weights = attention(x, x, x)
printed = [
    [0.878, 0.017, 0.017, 0.020, 0.016, 0.016, 0.018, 0.018],
    [0.017, 0.879, 0.018, 0.016, 0.015, 0.017, 0.018, 0.019],
    [0.016, 0.017, 0.891, 0.015, 0.014, 0.015, 0.016, 0.017],
    [0.019, 0.016, 0.016, 0.886, 0.015, 0.015, 0.018, 0.016],
    [0.014, 0.014, 0.014, 0.014, 0.889, 0.017, 0.017, 0.022],
    [0.014, 0.015, 0.014, 0.014, 0.017, 0.896, 0.015, 0.015],
    [0.017, 0.018, 0.017, 0.018, 0.018, 0.017, 0.877, 0.019],
    [0.017, 0.019, 0.017, 0.016, 0.024, 0.016, 0.019, 0.872],
]
assert np.array_equal(weights.round(3), printed)
tokens = torch.from_numpy(x)[None, None]
ours = rg.attend(tokens, tokens, tokens)[0, 0], rg.weights(tokens, tokens)[0, 0]
assert np.allclose(ours[0], output) and np.allclose(ours[1], weights)
rg.draw.heatmap(weights, title="Eight waves: each attends to itself")

# %% [markdown]
# ## Its statistics
#
# **Claim.** The largest weight is 0.8964, the smallest 0.0135, and their mean 0.1250, which is 1/8 and could not be
# anything else: each of the 8 rows adds up to 1.
#
# **Claim.** The mean entropy is 0.5858 nats, of at most ln 8 = 2.0794. The least that an entropy can be is 0.
#
# **Claim.** Queries and keys may differ in number, and values in width: 3 queries, 8 keys and values of 5 numbers give
# 3 outputs of 5 numbers.

# %%
seen = rg.observe(tokens, tokens, tokens)
assert (round(float(seen.max_weight.max()), 4), round(float(weights.min()), 4)) == (0.8964, 0.0135)
assert round(float(seen.mean("entropy")), 4) == 0.5858 and round(math.log(8), 4) == 2.0794
assert round(float(weights.mean()), 4) == 0.1250 and bool((seen.entropy >= 0).all())
assert attention(x[:3], x, np.ones((8, 5)))[0].shape == (3, 5)

# %% [markdown]
# ## Without √d: how large do scores get?
#
# A score is a sum of d products. If all numbers are independent with mean 0 and variance 1, each product has variance
# 1, and variances of independent terms add up. So `Var(q · k) = d`, and dividing by √d brings it back to 1.
#
# **Claim.** Measured on 131 072 scores for each width, the variance is d to within 8 %, and after division by √d it is
# 1 to within 8 %.

# %%
results = rg.analysis.softmax_by_width(keys=64)
raw = {one.dim: one for one in results if not one.scaled}
scaled = {one.dim: one for one in results if one.scaled}
count = 2048 * 64
assert count == 131072 and all(abs(one.variance / dim - 1) < 0.08 for dim, one in raw.items())
assert all(abs(one.variance - 1) < 0.08 for one in scaled.values())
print("   d  largest weight, raw  scaled")
for dim in raw:
    print(f"{dim:4}  {raw[dim].largest_weight:19.3f}  {scaled[dim].largest_weight:6.3f}")

# %% [markdown]
# ## What that does to a softmax
#
# Scores that differ by many nats make a softmax hard: one key takes all, for no better reason than that d is large.
#
# **Claim.** Raw, the mean largest weight of 64 keys grows with every doubling of d, from 0.28 at d = 4 to 0.95 at
# d = 1 024. Scaled, it stays between 0.10 and 0.12 at every width.
#
# **Claim.** The gradient of the softmax goes with it. At d = 1 024 the typical query passes on less than a hundredth of
# the gradient that it passes on when scaled.

# %%
peaks = [raw[dim].largest_weight for dim in sorted(raw)]
assert peaks == sorted(peaks) and abs(peaks[0] - 0.28) < 0.01 and abs(raw[1024].largest_weight - 0.95) < 0.01
assert raw[1024].gradient < 0.01 * scaled[1024].gradient
assert all(0.10 < one.largest_weight < 0.12 for one in scaled.values())
widths = sorted(raw)
rg.draw.series(
    [
        rg.draw.Panel(
            "Largest weight",
            "d",
            "mean over queries",
            {
                "raw": (widths, [raw[dim].largest_weight for dim in widths]),
                "divided by √d": (widths, [scaled[dim].largest_weight for dim in widths]),
            },
            "x",
        ),
        rg.draw.Panel(
            "Gradient of the softmax",
            "d",
            "median norm",
            {
                "raw": (widths, [raw[dim].gradient for dim in widths]),
                "divided by √d": (widths, [scaled[dim].gradient for dim in widths]),
            },
            "xy",
        ),
    ],
    title="A softmax over 64 keys, with and without √d",
)

# %% [markdown]
# ## Why does the gradient vanish?
#
# The derivative of weight i with respect to score j is `wᵢ (δᵢⱼ − wⱼ)`: every entry has a weight as a factor and one
# minus a weight, or two weights. If one weight is 1 and the others 0, all of it is 0. A saturated softmax cannot learn
# that it is wrong.
#
# **Claim.** Autograd agrees with that formula.
#
# **Claim.** The norm of this matrix is 0 for a saturated row, and for n equal weights it is √(n − 1) / n. Between the
# two it can be larger than at either end: a softmax learns fastest neither flat nor saturated.

# %%
scores = torch.randn(7, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
w = scores.softmax(-1)
formula = torch.diag(w) - torch.outer(w, w)
assert torch.allclose(torch.func.jacrev(lambda s: s.softmax(-1))(scores), formula)
sizes = rg.analysis.softmax_gradient(
    torch.stack([torch.eye(8)[0], torch.full((8,), 1 / 8), torch.tensor([0.5, 0.5] + 6 * [0.0])])
)
assert sizes[0] == 0 and math.isclose(sizes[1], math.sqrt(7) / 8, rel_tol=1e-6) and sizes[2] > sizes[1]

# %% [markdown]
# Two things the formula does **not** say. It assumes independent numbers of variance 1, which holds at the start of
# training and not after it: trained heads have scores of any size, and may be as sharp as they like. And √d is not
# the only cure: norms on queries and keys (Henry et al. 2020) or a learned temperature do as well.
#
# ## Play
#
# ```sh
# regard explore
# ```
# `#/playground?play.kind=self&play.embed_dim=256&play.num_heads=1` has one wide head. Lower the temperature from 1 to
# 1/16 = 1/√256 and you see what the missing √d does.

# %% [markdown]
# ## Sources
# - A. Vaswani et al. 2017, *Attention is all you need*, [arXiv 1706.03762](https://arxiv.org/abs/1706.03762),
#   section 3.2.1 and its footnote 4.
# - A. Henry, P. R. Dachapally, S. Pawar, Y. Chen 2020, *Query-key normalization for transformers*,
#   [arXiv 2010.04245](https://arxiv.org/abs/2010.04245).
