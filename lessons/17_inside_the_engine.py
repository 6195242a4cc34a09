# %% [markdown]
# # 17. Inside the engine: why nothing n × n is needed
#
# *20 minutes. You need: lessons 2 and 3.*
#
# A head over a hundred thousand tokens has ten billion weights, or forty gigabytes. Yet its output, its entropy and its picture can be computed,
# exactly, with a few numbers for each row. The trick is a small algebra, which we now build in thirty lines: a **state**,
# and a way to **merge** two of them.

# %%
# %matplotlib inline
import math
import resource
import sys
from functools import reduce
from typing import NamedTuple

import torch

import regard as rg
from regard import reference
from regard.spec import Spec

# %% [markdown]
# ## What must be remembered of a row
#
# A softmax divides by a sum over all keys. Sums can be taken in pieces. The one difficulty is that `exp(score)` overflows,
# which is why one subtracts the largest score, and the largest score of *all* keys is not known in the middle. So we
# remember it, and correct when it changes:
#
#     m = largest score so far
#     l = Σ exp(s − m)
#     u = Σ exp(s − m) · (s − m)
#     o = Σ exp(s − m) · value


# %%
class State(NamedTuple):
    """What is remembered of each row: m, l, u `(rows,)` and o `(rows, value_dim)`."""

    m: torch.Tensor
    l: torch.Tensor
    u: torch.Tensor
    o: torch.Tensor


def lift(scores, values):
    """The state of one tile: scores (rows, keys), −∞ where blocked."""
    m = scores.amax(1)
    x = scores - torch.where(m == -torch.inf, 0.0, m)[:, None]
    terms = x.exp()
    return State(m, terms.sum(1), torch.where(terms > 0, terms * x, 0.0).sum(1), terms @ values)


def merge(a, b):
    """The state of both sets of keys together."""
    m = torch.maximum(a.m, b.m)
    safe = torch.where(m == -torch.inf, 0.0, m)
    # What a side's sums shrink by, now that they are about a larger m; exp(−∞) = 0 for an empty side.
    da, db = torch.where(a.m == -torch.inf, 0.0, a.m - safe), torch.where(b.m == -torch.inf, 0.0, b.m - safe)
    fa, fb = da.exp(), db.exp()
    u = fa * (a.u + da * a.l) + fb * (b.u + db * b.l)
    return State(m, fa * a.l + fb * b.l, u, fa[:, None] * a.o + fb[:, None] * b.o)


def read(state):
    """Output, entropy and largest weight."""
    l = torch.where(state.l == 0, 1.0, state.l)
    return state.o / l[:, None], l.log() - state.u / l, torch.where(state.l == 0, 0.0, 1 / l)


# %% [markdown]
# ## It is exact
#
# **Claim.** Tile by tile, output, entropy and largest weight are those of the textbook formula over all keys at once, to
# twelve digits.
#
# **Claim.** Regard's definition (`regard.reference`, dense, float64) and `rg.observe` say the same.

# %%
torch.manual_seed(0)
rows, keys, dim = 5, 97, 8
query, key, value = (torch.randn(n, dim, dtype=torch.float64) for n in (rows, keys, keys))
scores = 3 * query @ key.T
tiles = [lift(scores[:, first : first + 16], value[first : first + 16]) for first in range(0, keys, 16)]
output, entropy, largest = read(reduce(merge, tiles))
weights = scores.softmax(1)
textbook = weights @ value, torch.special.entr(weights).sum(1), weights.amax(1)
assert all(
    torch.allclose(*pair, rtol=1e-12) for pair in zip((output, entropy, largest), textbook, strict=True)
)
axes = [x[None, None] for x in (query, key, value)]
defined = reference.observe(*axes, Spec(scale=3.0, offset=keys - rows))
seen = rg.observe(*axes, scale=3.0)
for name, number in (("output", output), ("entropy", entropy), ("max_weight", largest)):
    assert torch.allclose(defined[name][0, 0], number) and torch.allclose(getattr(seen, name)[0, 0], number)

# %% [markdown]
# The entropy is the surprise. It is `−Σ w ln w` over weights that nobody stored. But `ln w = (s − m) − ln l`, and so
# `−Σ w ln w = ln l − u / l`: one more sum, taken along with the others.
#
# ## It is an algebra
#
# **Claim.** `merge` is associative and commutative: tiles may come in any order, and be joined in any tree, to rounding.
#
# **Claim.** The empty state, of no keys at all, changes nothing, not even another empty one. A row that may attend to
# nothing has output 0 and entropy 0.
#
# **Claim.** The usual way to merge parts, by output and log-sum-exp alone, has no such identity: empty with empty is NaN.

# %%
shuffled = [tiles[i] for i in torch.randperm(len(tiles))]
tree = merge(merge(shuffled[0], shuffled[1]), merge(shuffled[2], reduce(merge, shuffled[3:])))
assert all(torch.allclose(*pair, rtol=1e-10) for pair in zip(reduce(merge, tiles), tree, strict=True))
empty = lift(torch.full((rows, 4), -torch.inf, dtype=torch.float64), value[:4])
assert all(torch.equal(*pair) for pair in zip(merge(tiles[0], empty), tiles[0], strict=True))
nothing = read(merge(empty, empty))
assert all(bool((number == 0).all()) for number in nothing)
lse = torch.tensor([-torch.inf, -torch.inf])
assert bool((lse - lse.logsumexp(0)).exp().isnan().all())

# %% [markdown]
# One law, many uses. The same merge joins tiles in a loop, pieces of a cache, the steps of a generation, processors in a
# ring, and machines. And whatever is a *mean under the weights* is one more column beside the values: the mean distance, the
# share on the previous token, the share on a group of keys.
#
# **Claim.** With the position of each key as a column of the values, the mean attended position comes out, as `rg.observe`
# has it.

# %%
columns = torch.cat([value, torch.arange(keys, dtype=torch.float64)[:, None]], dim=1)
with_position = [
    lift(scores[:, first : first + 16], columns[first : first + 16]) for first in range(0, keys, 16)
]
position = read(reduce(merge, with_position))[0][:, -1]
assert torch.allclose(position, seen.position[0, 0]) and torch.allclose(position, defined["position"][0, 0])

# %% [markdown]
# ## Columns need a second walk
#
# How much a key *receives* is a sum over queries of weights, and a weight needs the final m and l of its row. So one walks
# the tiles a second time. Its merge is plain addition. The pooled picture of a head is made in the same walk.
#
# **Claim.** Two walks, tile by tile, give the column sums of the weights.

# %%
final = reduce(merge, tiles)
received = torch.cat(
    [
        ((scores[:, first : first + 16] - final.m[:, None]).exp() / final.l[:, None]).sum(0)
        for first in range(0, keys, 16)
    ]
)
assert torch.allclose(received, weights.sum(0)) and torch.allclose(received, seen.received[0, 0])

# %% [markdown]
# ## Memory
#
# Now at a size where it matters: one head over sixteen thousand tokens.

# %%
n = 16384
walk = torch.randn(1, 1, n, 16).cumsum(2)
long = 4 * walk / walk.norm(dim=-1, keepdim=True)


def peak():
    """The most memory that this process ever had, in bytes."""
    unit = 1 if sys.platform == "darwin" else 1024
    return unit * resource.getrusage(resource.RUSAGE_SELF).ru_maxrss


rg.observe(
    long[:, :, :256], long[:, :, :256], long[:, :, :256], mask=rg.causal(), map=256
)  # loads the engine
before = peak()
observed = rg.observe(long, long, long, mask=rg.causal(), map=256)
grown = peak() - before
print(
    f"{4 * n * n / 1e9:.2f} GB if stored; the process grew by {grown / 1e6:.0f} MB, engine {observed.engine}"
)
rg.draw.heatmap(observed, 0, scale="sqrt", title=f"{n:,} tokens of a random walk")

# %% [markdown]
# **Claim.** The weights would take 1.07 GB, and memory grew by less than a tenth of that.
#
# **Claim.** Nothing was approximated: all received mass together is 16 384, one for each query, and a window of exact weights
# agrees with the map of that part.

# %%
assert round(4 * n * n / 1e9, 2) == 1.07 and grown < 4 * n * n / 10
assert abs(float(observed.received.double().sum()) / 16384 - 1) < 1e-4
cell = observed.map.cell
block = rg.weights(long, long, mask=rg.causal(), rows=slice(n - cell, n), columns=slice(0, cell))
assert math.isclose(float(block.amax()), float(observed.map.peak[0, 0, -1, 0]), rel_tol=1e-3)

# %% [markdown]
# ## Skipping
#
# A mask answers for a whole tile at once: none, some, or all of its pairs. Tiles of which nothing is allowed are never
# computed. That is how sparse masks become sparse in *time* and not only in meaning.
#
# **Claim.** Of the 64 × 64 tiles of 256 tokens each, a causal window of 512 leaves 189 to compute: fewer than 5 %.

# %%
window = rg.causal() & rg.near(before=511)
kinds = [
    window.tile(256 * i, 256 * (i + 1), 256 * j, 256 * (j + 1)).name for i in range(64) for j in range(64)
]
left = len(kinds) - kinds.count("NONE")
print({kind: kinds.count(kind) for kind in sorted(set(kinds))})
assert left == 189 and left < 0.05 * 64 * 64

# %% [markdown]
# ## Play
#
# ```sh
# regard explore
# ```
# Zoom into the map of any head. Far out, a cell is a pooled mean or maximum of the second walk. Close by, single weights are
# computed from query, key and the log-sum-exp of their row, when you look at them.

# %% [markdown]
# ## Sources
# - M. Milakov, N. Gimelshein 2018, *Online normalizer calculation for softmax*,
#   [arXiv 1805.02867](https://arxiv.org/abs/1805.02867).
# - M. N. Rabe, C. Staats 2021, *Self-attention does not need O(n²) memory*,
#   [arXiv 2112.05682](https://arxiv.org/abs/2112.05682).
# - T. Dao et al. 2022, *FlashAttention*, [arXiv 2205.14135](https://arxiv.org/abs/2205.14135).
# - H. Liu, M. Zaharia, P. Abbeel 2023, *Ring attention*, [arXiv 2310.01889](https://arxiv.org/abs/2310.01889).
