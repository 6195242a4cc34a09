# %% [markdown]
# # 4. Masks: who may attend to whom
#
# *15 minutes. You need: lesson 3.*
#
# A mask takes keys away from queries. A language model must not see the word that it is to predict. A batch of texts of
# different lengths is filled up with padding, which is no text. Both are the same thing: some pairs of query and key are
# blocked. Most bugs with attention are bugs with masks, so this lesson is careful.

# %%
# %matplotlib inline
import numpy as np
import torch
from torch.nn.functional import scaled_dot_product_attention as sdpa

import regard as rg

np.random.seed(42)
waves = np.stack([np.sin(np.arange(64) * (i + 1) * 0.1) + 0.1 * np.random.randn(64) for i in range(8)])
x = torch.from_numpy(waves)[None, None]

# %% [markdown]
# ## Causal: no look into the future
#
# In Regard a mask is a value, and it draws itself. A filled square: this query (row) *may attend* this key (column).

# %%
print(rg.causal())
weights = rg.weights(x, x, mask=rg.causal())[0, 0]
rg.draw.heatmap(weights, title="Eight waves under a causal mask")

# %% [markdown]
# **Claim.** The weights above the diagonal are 0: not small, but exactly 0. Every row still adds up to 1.
#
# **Claim.** Rounded to three digits, they are those of the matrix in this cell. The first token can look at nothing but
# itself, so its weight is 1; the last row is that without a mask.

# %%
assert bool((weights.triu(1) == 0).all()) and torch.allclose(
    weights.sum(-1), torch.ones(8, dtype=torch.float64)
)
printed = [
    [1.000, 0, 0, 0, 0, 0, 0, 0],
    [0.018, 0.982, 0, 0, 0, 0, 0, 0],
    [0.017, 0.018, 0.965, 0, 0, 0, 0, 0],
    [0.020, 0.017, 0.017, 0.946, 0, 0, 0, 0],
    [0.015, 0.015, 0.014, 0.015, 0.941, 0, 0, 0],
    [0.014, 0.016, 0.015, 0.014, 0.017, 0.924, 0, 0],
    [0.017, 0.018, 0.017, 0.018, 0.018, 0.017, 0.894, 0],
    [0.017, 0.019, 0.017, 0.016, 0.024, 0.016, 0.019, 0.872],
]
assert np.array_equal(weights.numpy().round(3), printed)
assert torch.allclose(weights[-1], rg.weights(x, x)[0, 0, -1])

# %% [markdown]
# ## Before the softmax, not after it
#
# A mask sets scores to −∞, and exp(−∞) = 0. What happens if one sets *weights* to 0 instead?
#
# **Claim.** Then rows no longer add up to 1, and the numbers are wrong: the future has taken its part of the softmax
# before it was removed.
#
# **Claim.** Dividing each row by its new sum mends that exactly. It is the same mask, computed the long way round.

# %%
late = rg.weights(x, x)[0, 0].tril()
assert late.sum(-1)[0] < 0.9 and not torch.allclose(late, weights)
assert torch.allclose(late / late.sum(-1, keepdim=True), weights)

# %% [markdown]
# ## Three conventions in the wild
#
# One tensor of True and False means *opposite* things to two parts of torch itself:
#
# | convention | who uses it |
# |---|---|
# | True (or 1): may attend | `scaled_dot_product_attention`, `attention_mask` of transformers |
# | True: blocked | `torch.nn.MultiheadAttention` and `torch.nn.Transformer` |
# | a number that is added to the score: 0 or −∞ | most code inside of models |
#
# **Claim.** Given the same Boolean tensor, torch's function attends exactly where torch's layer does not.
#
# **Claim.** In Regard one says which convention it is: `keep=`, `drop=` or `additive=`. All three give one mask.
#
# **Claim.** Without a name it is an error and not a guess.

# %%
lower = torch.ones(5, 5).tril() > 0
layer = torch.nn.MultiheadAttention(8, 1, batch_first=True)
some = torch.randn(1, 5, 8)
# A checkerboard: every row has True and False, so that neither of them leaves a query without keys.
board = torch.arange(25).view(5, 5) % 2 == 0
by_layer = layer(some, some, some, attn_mask=board)[1][0]
# With the identity for values, the output is the weights.
by_function = sdpa(some, some, torch.eye(5)[None], attn_mask=board)[0]
assert torch.equal(by_function > 0, board) and torch.equal(by_layer > 0, ~board)
added = torch.zeros(5, 5).masked_fill(~lower, -torch.inf)
masks = [rg.dense(keep=lower), rg.dense(drop=~lower), rg.dense(additive=added), rg.causal()]
assert all(torch.equal(mask.dense(5, 5), lower[None, None]) for mask in masks)
try:
    rg.dense(lower)
    message = ""
except rg.RegardError as error:
    message = str(error)
assert "without a name" in message

# %% [markdown]
# ## Padding
#
# Texts of 6 and 4 tokens in one batch: the second row ends with two tokens of padding.
#
# **Claim.** No query gives padding any weight, and the output of each text is what it would be alone.
#
# **Claim.** Even NaN in a padded key and value leaks into nothing. In code that multiplies masked weights with values it
# does, since 0 · NaN is NaN.

# %%
batch, lengths = torch.randn(2, 1, 6, 16), torch.tensor([6, 4])
mask = rg.padding(lengths)
output = rg.attend(batch, batch, batch, mask=mask)
alone = rg.attend(*[batch[1:, :, :4]] * 3)
assert bool((rg.weights(batch, batch, mask=mask)[1, 0, :, 4:] == 0).all()) and torch.allclose(
    output[1:, :, :4], alone, atol=1e-6
)
broken = batch.clone()
broken[1, :, 4:] = torch.nan
naive = rg.weights(batch, batch, mask=mask) @ broken
assert bool(naive[1].isnan().all()) and torch.allclose(
    rg.attend(broken, broken, broken, mask=mask)[1:, :, :4], alone, atol=1e-6
)

# %% [markdown]
# ## The row that may attend to nothing
#
# With padding on the left and a causal mask, the first query has no key at all. What is the softmax of nothing?
# Textbook code gives NaN; code that adds −1e9 in place of −∞ gives a mean over everything, padding included, without
# a word. Neither is an answer. Here such a row is empty: output 0, weights 0, and it counts in no mean.
#
# **Claim.** Plain softmax gives NaN, and −1e9 gives equal weights on blocked keys.
#
# **Claim.** Regard's row is 0, `valid()` says that it attends nothing, and the mean entropy leaves it out.

# %%
row = torch.tensor([[0.3, 1.0, -2.0]])
assert bool((row - torch.inf).softmax(-1).isnan().all())
assert torch.allclose((row * 0 - 1e9).softmax(-1), torch.tensor([[1 / 3, 1 / 3, 1 / 3]]))
left = rg.causal() & rg.padding(torch.tensor([4]), start=torch.tensor([2]))
seen = rg.observe(batch[:1], batch[:1], batch[:1], mask=left)
assert seen.valid()[0, 0].tolist() == [False, False, True, True, True, True]
assert bool((seen.output[0, 0, :2] == 0).all()) and torch.isclose(
    seen.mean("entropy")[0, 0], seen.entropy[0, 0, 2:].mean()
)

# %% [markdown]
# ## Masks are made of masks
#
# `&` is *and*, `|` is *or*, `~` is *not*. `near(before=2)` counts *other* keys: two before, and the token itself.
#
# **Claim.** A causal window of 2 keys before, with the first token for everybody, blocks 10 of the 28 earlier pairs of
# eight tokens.

# %%
window = rg.causal() & (rg.near(before=2) | rg.global_tokens([0]))
print(window)
earlier = rg.causal().dense(8, 8)[0, 0].tril(-1)
assert int(earlier.sum()) == 28 and int((earlier & ~window.dense(8, 8)[0, 0]).sum()) == 10

# %% [markdown]
# ## Where the queries stand
#
# In decoding there is one new query and many keys. Regard puts queries at the **end** of the keys, unless told
# otherwise. `is_causal=True` of torch puts them at the **start**, where a single query sees one key only.
#
# **Claim.** One query against eight keys: at the end it sees all of them, and at the start the first alone.

# %%
one = x[:, :, -1:]
end, start = (rg.observe(one, x, x, mask=rg.causal(), align=align) for align in ("end", "start"))
assert int(end.allowed) == 8 and int(start.allowed) == 1
assert torch.allclose(start.output, sdpa(one, x, x, is_causal=True)) and torch.allclose(
    end.output, sdpa(one, x, x)
)

# %% [markdown]
# ## Play
#
# ```sh
# regard explore
# ```
# `#/playground?play.kind=window&play.window=4` is a window; change the kind to *strided*, *random* or *global*, and see
# what each leaves out.

# %% [markdown]
# ## Sources
# - A. Vaswani et al. 2017, [arXiv 1706.03762](https://arxiv.org/abs/1706.03762), section 3.2.3: masks in the decoder.
# - I. Beltagy, M. Peters, A. Cohan 2020, *Longformer*, [arXiv 2004.05150](https://arxiv.org/abs/2004.05150): windows and
#   global tokens.
# - PyTorch 2.13, 2026: documentation of `scaled_dot_product_attention` and `MultiheadAttention`, for the two meanings of
#   True.
