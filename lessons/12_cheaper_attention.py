# %% [markdown]
# # 12. Cheaper attention, and what it costs
#
# *20 minutes. You need: lessons 3 and 4.*
#
# Attention compares every query with every key: n² pairs. For twice the text it is four times the work. This lesson has the
# three families of ways out: **sparse** (leave pairs out), **linear** (change the softmax) and **low rank** (fewer keys),
# and measures for each how wrong it is.

# %%
# %matplotlib inline
import math

import torch

import regard as rg

torch.manual_seed(0)

# %% [markdown]
# ## What n² means
#
# `rg.analysis.predicted` counts operations and bytes by formulas, for one head layout, before anything runs.
#
# **Claim.** Twice the tokens are four times the operations of exact attention, and twice those of a window or of linear
# attention.
#
# **Claim.** Storing the weights takes n² memory. Exact attention without storing them (lesson 17) takes n: the time is
# what is left to save.


# %%
def factor(mechanism, what):
    """By how much twice the tokens raise operations or bytes."""
    one, two = (rg.analysis.predicted(mechanism, n) for n in (16384, 32768))
    return getattr(two, what) / getattr(one, what)


assert math.isclose(factor("exact", "operations"), 4, rel_tol=0.02)
assert all(math.isclose(factor(name, "operations"), 2, rel_tol=0.02) for name in ("window", "linear"))
assert math.isclose(factor("stored", "bytes"), 4, rel_tol=0.05) and math.isclose(
    factor("exact", "bytes"), 2, rel_tol=0.05
)
lengths = [2**power for power in range(8, 18)]
lines = {
    name: (lengths, [rg.analysis.predicted(name, n).operations for n in lengths])
    for name in ("exact", "window", "linear", "slots")
}
rg.draw.series(
    [rg.draw.Panel("Operations", "tokens", "multiply-adds", lines, "xy")],
    title="What each mechanism has to compute",
)

# %% [markdown]
# ## Sparse: leave pairs out
#
# | pattern | who attends whom |
# |---|---|
# | local | neighbors: `near(before, after)` |
# | strided | every s-th key: `strided(s)` |
# | random | some blocks, drawn once: `random_blocks` |
# | global | a few tokens see all, and are seen by all: `global_tokens` |
#
# **Claim.** Joined, they give BigBird's pattern. At 2 048 tokens it has less than a tenth of all pairs.
#
# **Claim.** What a mask leaves in is exact: the output is that of dense attention under the same mask.

# %%
bigbird = rg.near(32, 32) | rg.random_blocks(1, block=32, seed=0) | rg.global_tokens(range(16))
n = 2048
query, key, value = torch.randn(3, 1, 2, n, 32).unbind()
allowed = rg.observe(query, key, value, mask=bigbird).allowed
share = float(allowed.sum()) / (2 * n * n)
assert share < 0.10 and n == 2048
dense = (query @ key.mT / math.sqrt(32)).masked_fill(~bigbird.dense(n, n), -torch.inf).softmax(-1) @ value
assert torch.allclose(rg.attend(query, key, value, mask=bigbird), dense, atol=1e-4)
print(bigbird)
print(f"{share:.1%} of all pairs")

# %% [markdown]
# ## How wrong is it?
#
# Error: `‖approximate − exact‖ / ‖exact‖`. Answering 0 would have an error of 1. Two texts: in the **random** one each key
# is unlike all others, the hardest case there is. In the **smooth** one neighbors are alike, as in real text, sound or
# pictures.


# %%
def smooth(x, width=65):
    """Each number replaced by a mean over its neighbors in the text, and brought back to variance 1."""
    flat = x.transpose(2, 3).flatten(0, 2)[:, None]
    kernel = torch.ones(1, 1, width) / math.sqrt(width)
    mean = torch.nn.functional.conv1d(flat, kernel, padding=width // 2)
    return mean[:, 0].view(1, 2, 32, n).transpose(2, 3)


def error(output, exact):
    """Relative error."""
    return float((output - exact).norm() / exact.norm())


texts = {"random": (query, key, value), "smooth": tuple(smooth(x) for x in (query, key, value))}
exacts = {name: rg.attend(*text) for name, text in texts.items()}
windows = (16, 64, 256, 1024)
sparse = {
    name: [error(rg.attend(*text, mask=rg.near(width, width)), exacts[name]) for width in windows]
    for name, text in texts.items()
}
print({name: [round(one, 2) for one in line] for name, line in sparse.items()})

# %% [markdown]
# **Claim.** The wider the window, the smaller the error, on both texts.
#
# **Claim.** A narrow window of 16 keys each way is *worse than answering 0*, on both: its mean over few keys is far
# larger than a mean over all.

# %%
assert all(line == sorted(line, reverse=True) for line in sparse.values())
assert all(line[0] > 1 for line in sparse.values()) and windows[0] == 16

# %% [markdown]
# That is no argument against windows. These heads were made to look everywhere. In trained models many heads look nearby
# anyway, and lose nothing. Which ones is a matter of measurement: `rg.analysis.sparsify`, lesson 16.
#
# ## Linear: weights without a softmax
#
# Write the weight as a product of features, `φ(q) · φ(k)`, and the sum over keys can be taken first:
#
#     Σⱼ (φ(q)·φ(kⱼ)) vⱼ = φ(q) · (Σⱼ φ(kⱼ) vⱼᵀ)
#
# The bracket is one matrix for all queries. With `φ = elu + 1` (Katharopoulos et al. 2020) it is another attention, and no
# approximation. With **random features** (the Performer) it approximates the softmax, better the more features.
#
# **Claim.** The shortcut gives exactly what its n × n weights give.
#
# **Claim.** Causal linear attention is a recurrent network: token by token, with a state of fixed size, it gives the same
# outputs.

# %%
short = [x[:, :, :40] for x in (query, key, value)]
features = rg.nn.Elu()
shortcut = rg.nn.linear_attention(*short, features)
assert torch.allclose(rg.nn.linear_weights(*short[:2], features) @ short[2], shortcut, atol=1e-4)
mapped_query, mapped_key = (torch.nn.functional.elu(x) + 1 for x in short[:2])
state, normalizer, outputs = torch.zeros(1, 2, 32, 32), torch.zeros(1, 2, 32), []
for t in range(40):
    state = state + mapped_key[:, :, t, :, None] * short[2][:, :, t, None]
    normalizer = normalizer + mapped_key[:, :, t]
    asked = mapped_query[:, :, t]
    outputs.append((asked[..., None] * state).sum(2) / (asked * normalizer).sum(2, keepdim=True))
assert torch.allclose(
    torch.stack(outputs, 2), rg.nn.linear_attention(*short, features, causal=True), atol=1e-4
)

# %% [markdown]
# **Claim.** With 512 random features instead of 32, the error falls on small scores (queries and keys halved), to below
# 0.35.
#
# **Claim.** On full-sized scores, even 512 features have an error above 1. The error grows steeply with |q + k|².

# %%
halved = (query / 2, key / 2, value)
few, many = rg.nn.errors_by_rank(*halved, [32, 512], rg.nn.by_features(seed=0)).mean((1, 2)).tolist()
(large,) = rg.nn.errors_by_rank(query, key, value, [512], rg.nn.by_features(seed=0)).mean((1, 2)).tolist()
print(f"small scores: 32 features {few:.2f}, 512 features {many:.2f}; full scores: {large:.2f}")
assert many < few and many < 0.35
assert large > 1

# %% [markdown]
# ## Low rank: fewer keys
#
# **Slots** (Linformer) mix the n keys into r, here by means of segments. **Landmarks** (Nyström) go through r means of
# queries and of keys. Both cost n · r.

# %%
ranks = [16, 64, 256]
lowrank = {
    f"{kind}, {name}": (ranks, rg.nn.errors_by_rank(*text, ranks, approximate).mean((1, 2)).tolist())
    for kind, approximate in (("slots", rg.nn.by_slots()), ("landmarks", rg.nn.by_landmarks()))
    for name, text in texts.items()
}
rg.draw.series(
    [rg.draw.Panel("Error of low rank", "rank", "relative error", lowrank, "xy")],
    title="Where neighbors are alike, their mean can stand for them",
)

# %% [markdown]
# **Claim.** On the smooth text 256 slots have an error below 0.10, on the random one above 0.5.
#
# **Claim.** So no number of this lesson is a property of a method alone. It belongs to a method *and a text*.

# %%
final = {name: line[1][-1] for name, line in lowrank.items()}
assert final["slots, smooth"] < 0.10 and final["slots, random"] > 0.5
assert all(final[f"{kind}, smooth"] < final[f"{kind}, random"] for kind in ("slots", "landmarks"))
print({name: round(one, 3) for name, one in final.items()})

# %% [markdown]
# ## Play
#
# ```sh
# regard explore
# ```
# `#/playground?play.kind=linear&play.length=128`, then *low%20rank* and *window*: the panel beside the map has predicted
# operations and memory of each.

# %% [markdown]
# ## Sources
# - R. Child et al. 2019, *Generating long sequences with sparse transformers*,
#   [arXiv 1904.10509](https://arxiv.org/abs/1904.10509): strided.
# - M. Zaheer et al. 2020, *Big Bird*, [arXiv 2007.14062](https://arxiv.org/abs/2007.14062).
# - A. Katharopoulos et al. 2020, *Transformers are RNNs*, [arXiv 2006.16236](https://arxiv.org/abs/2006.16236).
# - K. Choromanski et al. 2021, *Rethinking attention with Performers*,
#   [arXiv 2009.14794](https://arxiv.org/abs/2009.14794).
# - S. Wang et al. 2020, *Linformer*, [arXiv 2006.04768](https://arxiv.org/abs/2006.04768).
# - Y. Xiong et al. 2021, *Nyströmformer*, [arXiv 2102.03902](https://arxiv.org/abs/2102.03902).
