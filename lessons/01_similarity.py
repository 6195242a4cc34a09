# %% [markdown]
# # 1. Similarity
#
# *10 minutes. You need: Python, and what a vector is.*
#
# Attention compares things and mixes them by how alike they are. Before there is any attention, there is a question:
# when are two lists of numbers alike? This lesson has four answers, which are really two: the **dot product** and
# the **angle**.

# %%
# %matplotlib inline
import math

import torch

import regard as rg

x = torch.tensor([1.0, 2.0, 3.0, 4.0], dtype=torch.float64)
y = torch.tensor([1.2, 2.1, 2.9, 3.7], dtype=torch.float64)

# %% [markdown]
# ## The dot product
#
# Multiply number by number, and add:
#
#     x · y = x₁y₁ + x₂y₂ + … + xₙyₙ
#
# It is large where both vectors have large numbers in the same positions.
#
# **Claim.** The dot product of these two is 28.90.
#
# **Claim.** Order does not matter, and a factor comes out: `(2x)·y = 2(x·y)`.

# %%
dot = float(x @ y)
assert round(dot, 2) == 28.90
assert x @ y == y @ x and math.isclose(2 * x @ y, 2 * dot)
print(f"x · y = {dot:.2f}")

# %% [markdown]
# ## The norm: how long a vector is
#
# The dot product of a vector with itself is the square of its length, by Pythagoras:
#
#     ‖x‖ = √(x · x)
#
# **Claim.** The norms are 5.48 and 5.29.
#
# **Claim.** No dot product is larger than the product of the norms (the Cauchy–Schwarz inequality). We try it on ten
# thousand random pairs.

# %%
norm_x, norm_y = math.sqrt(x @ x), math.sqrt(y @ y)
assert (round(norm_x, 2), round(norm_y, 2)) == (5.48, 5.29)
torch.manual_seed(0)
many, others = torch.randn(2, 10_000, 4, dtype=torch.float64)
assert bool(((many * others).sum(1).abs() <= many.norm(dim=1) * others.norm(dim=1)).all())
print(f"‖x‖ = {norm_x:.2f}, ‖y‖ = {norm_y:.2f}")

# %% [markdown]
# ## The cosine: which way a vector points
#
# A dot product grows when a vector gets longer, even if it says nothing new. Divide both lengths out, and what is
# left is the cosine of the angle between the vectors:
#
#     cos(x, y) = x · y / (‖x‖ ‖y‖)
#
# It is 1 for the same direction, 0 for a right angle, −1 for opposite directions.
#
# **Claim.** Our vectors have a cosine of 0.9980, which is an angle of 3.59 degrees: nearly the same direction.
#
# **Claim.** A vector that is a hundred times as long has the same cosine and a hundred times the dot product.

# %%
cosine = dot / (norm_x * norm_y)
degrees = math.degrees(math.acos(cosine))
assert round(cosine, 4) == 0.9980 and round(degrees, 2) == 3.59
longer = 100 * y
assert math.isclose(x @ longer / (norm_x * longer.norm()), cosine) and math.isclose(x @ longer, 100 * dot)
print(f"cosine {cosine:.4f}, angle {degrees:.2f}°")

# %% [markdown]
# ## Unit vectors: then both are one
#
# Divide a vector by its norm, and its length is 1. Between unit vectors the dot product *is* the cosine.
#
# **Claim.** Divided by their norms, the vectors are (0.183, 0.365, 0.548, 0.730) and (0.227, 0.397, 0.549, 0.700).
#
# **Claim.** Their dot product is 0.9980, the cosine from above.
#
# **Claim.** Between unit vectors, distance says the same thing once more: `‖x − y‖² = 2 − 2 cos(x, y)`.

# %%
x_unit, y_unit = x / norm_x, y / norm_y
rounded = [[round(number, 3) for number in unit.tolist()] for unit in (x_unit, y_unit)]
assert rounded == [[0.183, 0.365, 0.548, 0.730], [0.227, 0.397, 0.549, 0.700]]
assert round(float(x_unit @ y_unit), 4) == 0.9980
assert math.isclose((x_unit - y_unit).norm() ** 2, 2 - 2 * cosine)

# %% [markdown]
# ## A sentence, compared with itself
#
# Ten words, each described by eight numbers that somebody chose by hand. Counted from 0, column 2 is for fruit, columns
# 1 and 3 for liking one thing over another, column 6 for acidity. The numbers are made up. In a model they are learned.
# (The figure's bar says *attention weight*; here the numbers are dot products, and no softmax was taken.)

# %%
tokens = ["I", "prefer", "apple", "over", "orange", "because", "it", "is", "less", "acidic"]
features = torch.tensor(
    [
        [1.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0],
        [0.0, 1.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0],
        [0.0, 0.1, 1.0, 0.2, 0.0, 0.0, 0.1, 0.0],
        [0.0, 0.0, 0.0, 1.0, 0.0, 0.0, 0.0, 0.0],
        [0.0, 0.1, 1.0, 0.2, 0.0, 0.0, 0.3, 0.0],
        [0.0, 0.0, 0.0, 0.0, 1.0, 0.0, 0.1, 0.0],
        [0.0, 0.0, 0.4, 0.0, 0.0, 1.0, 0.1, 0.0],
        [0.0, 0.0, 0.0, 0.0, 0.2, 0.0, 0.0, 0.0],
        [0.0, 0.0, 0.0, 0.0, 0.1, 0.0, 0.4, 1.0],
        [0.0, 0.0, 0.2, 0.0, 0.4, 0.0, 1.0, 0.0],
    ],
    dtype=torch.float64,
)
dots = features @ features.T
rg.draw.heatmap(dots, tokens=tokens, title="Dot products: which words are alike?")

# %% [markdown]
# The table is symmetric, and its diagonal holds the squared norms. Two words stand out.
#
# **Claim.** Of all pairs of different words, *apple* and *orange* have the largest dot product.
#
# **Claim.** *orange* is more like *apple* than *apple* is like itself, if the dot product is to judge. Length wins over
# likeness here; a cosine never ranks anything above a vector itself.

# %%
apple, orange = tokens.index("apple"), tokens.index("orange")
others = dots - torch.diag(torch.diag(dots))
assert divmod(int(others.argmax()), len(tokens)) == (apple, orange)
units = features / features.norm(dim=1, keepdim=True)
cosines = units @ units.T
assert dots[apple, orange] > dots[apple, apple] and bool((cosines <= 1 + 1e-12).all())
rg.draw.heatmap(cosines, tokens=tokens, title="Cosines: length no longer counts")

# %% [markdown]
# ## In many dimensions, nearly everything is at a right angle
#
# In the plane, two random directions can have any angle. In the 64 to 128 dimensions that a head of a transformer
# works in, they hardly ever meet: the cosine of two random vectors of d numbers has mean 0 and standard deviation
# about 1/√d. So a cosine of one half is ordinary in three dimensions and strong evidence in a hundred.
#
# **Claim.** In 3 dimensions more than a third of random pairs have a cosine beyond one half, either way. In 128
# dimensions, of ten thousand pairs, none has.
#
# **Claim.** The standard deviation times √d is 1, to within three percent, for d = 3, 16 and 128.

# %%
spreads, beyond = {}, {}
for dim in (3, 16, 128):
    pairs = torch.nn.functional.normalize(torch.randn(2, 10_000, dim, dtype=torch.float64), dim=-1)
    angles = (pairs[0] * pairs[1]).sum(1)
    spreads[dim], beyond[dim] = (
        float(angles.std()) * math.sqrt(dim),
        float((angles.abs() > 0.5).double().mean()),
    )
assert beyond[3] > 1 / 3 and beyond[128] == 0
assert all(abs(spread - 1) < 0.03 for spread in spreads.values())
print({dim: round(share, 4) for dim, share in beyond.items()})

# %% [markdown]
# ## Where this goes
#
# Attention scores a query against a key by their dot product. That is fast (one matrix product for all pairs), and the
# length of a vector becomes a volume knob that a model can learn. The next lesson turns scores into weights.
#
# ## Play
#
# ```sh
# regard explore
# ```
# In the address, put `#/playground?play.kind=self&play.made=clusters`: tokens come in clusters of similar vectors, and
# attention finds the clusters.

# %% [markdown]
# ## Sources
# - G. Strang, *Introduction to Linear Algebra*, 5th edition 2016, chapter 1: dot products, lengths, angles.
# - R. Vershynin, *High-Dimensional Probability*, 2018, chapter 3: random vectors are nearly at right angles.
# - D. Bahdanau, K. Cho, Y. Bengio 2015, *Neural machine translation by jointly learning to align and translate*,
#   [arXiv 1409.0473](https://arxiv.org/abs/1409.0473): a learned score chooses what to read.
