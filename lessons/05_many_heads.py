# %% [markdown]
# # 5. Many heads
#
# *20 minutes. You need: lessons 1 to 4.*
#
# One softmax gives each query one set of weights, and so one mean. If a word needs to know *who* did it and *when*, one
# mean has to do for both. Several heads ask several questions at once. We first build heads by hand, so that nothing is
# mysterious, and then let some be learned.

# %%
# %matplotlib inline
import math

import numpy as np
import torch

import regard as rg

rg.draw.structure(heads=4, dim=64, mask=False)

# %% [markdown]
# ## Heads by hand
#
# The ten words and eight features of lesson 1. A head that looks at column 2 alone asks about fruit and nothing else.
# Our four heads read 1, 2, 3 and 2 columns. Heads need not be of one width; in models they are, because that is faster.

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
    ]
)
columns = {"fruit": [2], "preference": [1, 3], "acidity": [4, 6, 7], "pronoun": [2, 5]}
pick = torch.eye(8)
heads = [(pick[chosen], pick[chosen], pick[chosen]) for chosen in columns.values()]
layer = rg.nn.MultiHeadAttention.from_projections(heads)
with torch.no_grad(), rg.watch(layer, keep="vectors", tokens=tokens) as record:
    joined = layer(features[None])[0]
rg.draw.heads(
    torch.stack([record[0].weights(head) for head in range(4)])[None],
    title="Fruit, preference, acidity, pronoun",
)

# %% [markdown]
# **Claim.** The heads' outputs, of 1, 2, 3 and 2 numbers, are joined to 8 numbers for each of the 10 words, and they
# are what a loop over the heads gives, each with its own √d.
#
# **Claim.** The fruit head sends *orange* to *apple* or itself, which it cannot tell apart: both have a 1 in the only
# column that it reads.
#
# **Claim.** A head is blind to what it does not read. *I* has no number in the acidity head's columns, so that head
# looks at all ten words alike, with an entropy of ln 10.

# %%
loop = [rg.attend(*[features[None, None, :, chosen]] * 3)[0, 0] for chosen in columns.values()]
assert [output.shape[1] for output in loop] == [1, 2, 3, 2] and joined.shape == (10, 8)
assert torch.allclose(torch.cat(loop, dim=1), joined, atol=1e-6)
fruit = record[0].weights(0)[tokens.index("orange")]
apple, orange = tokens.index("apple"), tokens.index("orange")
assert fruit[apple] == fruit[orange] == fruit.max()
acidity = record[0].weights(2)[tokens.index("I")]
assert math.isclose(torch.special.entr(acidity).sum(), math.log(10), rel_tol=1e-6)

# %% [markdown]
# ## How strong is the output? One head against four
#
# One head over all eight columns averages unlike things. The L2 norm of each word's output shows how much comes out.
#
# **Claim.** For *apple* and *orange* four narrow heads give a stronger output than one wide head: the fruit head finds
# fruit without the other columns in its way.

# %%
single = rg.attend(*[features[None, None]] * 3)[0, 0]
strength, many = single.norm(dim=1), joined.norm(dim=1)
assert many[apple] > strength[apple] and many[orange] > strength[orange]
rg.draw.strength({"one head": single, "four heads": joined}, tokens, title="Activation strength of each word")

# %% [markdown]
# ## Random heads, and what their numbers look like
#
# The usual case: eight tokens of 64 numbers, four heads of 16, projections drawn at random (Xavier). Nothing has been
# learned, and yet the heads differ.
#
# **Claim.** Their largest weights are 0.4718, 0.3527, 0.6292 and 0.3682.
#
# **Claim.** Their mean entropies are 1.9182, 1.9323, 1.7070 and 1.8562 nats, not far below ln 8 = 2.0794. The same
# tokens without projections, in lesson 3, had 0.5858: an untrained head is flat.

# %%
np.random.seed(42)
x = np.stack([np.sin(np.arange(64) * (i + 1) * 0.1) + 0.1 * np.random.randn(64) for i in range(8)])
w_q, w_k, w_v = (np.random.randn(4, 64, 16) * np.sqrt(2 / (64 + 16)) for _ in range(3))
query, key, value = (torch.from_numpy(np.einsum("nd,hde->hne", x, w))[None] for w in (w_q, w_k, w_v))
seen = rg.observe(query, key, value)
largest = [round(float(peak), 4) for peak in seen.max_weight[0].amax(-1)]
assert largest == [0.4718, 0.3527, 0.6292, 0.3682]
entropies = [round(float(mean), 4) for mean in seen.mean("entropy")[0]]
assert entropies == [1.9182, 1.9323, 1.7070, 1.8562] and round(math.log(8), 4) == 2.0794
plain = rg.observe(*[torch.from_numpy(x)[None, None]] * 3)
assert round(float(plain.mean("entropy")), 4) == 0.5858 and max(entropies) < math.log(8)
rg.draw.entropy(seen, title="Entropy of each query, head by head, with its bound")

# %% [markdown]
# ## One big matrix, or many small ones
#
# Libraries do not loop. One matrix makes all queries of all heads; its rows are then split. It is the same arithmetic.
#
# **Claim.** Projecting with one matrix of 64 × 64 and splitting gives the four heads' queries, to rounding.
#
# **Claim.** Splitting `(tokens, 64)` straight into `(heads, tokens, 16)` *without transposing* mixes up tokens and
# heads. Shapes are right and numbers are wrong, and no error says so.
#
# **Claim.** The number of parameters does not depend on the number of heads: 4 · 64² weights and 4 · 64 biases.
#
# **Claim.** A width that the heads do not divide is an error that says so.

# %%
together = torch.from_numpy(x @ np.concatenate(list(w_q), axis=1))
split = together.view(8, 4, 16).transpose(0, 1)
assert torch.allclose(split, query[0])
wrong = together.reshape(4, 8, 16)
assert wrong.shape == split.shape and not torch.allclose(wrong, split)
counts = {sum(p.numel() for p in rg.nn.MultiHeadAttention(64, heads).parameters()) for heads in (1, 2, 4, 8)}
assert counts == {4 * 64**2 + 4 * 64}
try:
    rg.nn.MultiHeadAttention(64, 5)
    message = ""
except rg.RegardError as error:
    message = str(error)
assert "must divide embed_dim, got 5 heads for an embed_dim of 64" in message

# %% [markdown]
# ## Learned heads: two questions need two heads
#
# A task that asks every token for two things: what stood **just before** it, and what stood **first**. Each token has a
# position (16 numbers, one of them 1) and eight random numbers, its content. One head must put its weight on two tokens
# at once and gets their contents added up; it cannot say which is which. Two heads of half the width can.


# %%
def trained(heads, steps=400):
    """A layer after training, and its last loss."""
    torch.manual_seed(0)
    model = rg.nn.MultiHeadAttention(24, heads)
    optimizer = torch.optim.Adam(model.parameters(), lr=0.02)
    for _ in range(steps):
        content = torch.randn(32, 16, 8)
        inputs = torch.cat([content, 3 * torch.eye(16).expand(32, 16, 16)], dim=2)
        wanted = torch.cat([content.roll(1, dims=1), content[:, :1].expand(32, 16, 8)], dim=2)
        loss = (model(inputs)[:, 1:, :16] - wanted[:, 1:]).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    with torch.no_grad(), rg.watch(model, keep="vectors") as seen:
        model(inputs)
    return loss.item(), seen[0]


loss_one, one = trained(1)
loss_two, two = trained(2)
print(f"mean squared error: one head {loss_one:.3f}, two heads {loss_two:.3f}; knowing nothing: 1")

# %% [markdown]
# **Claim.** With the same number of parameters, one head is left with an error above 0.3 and two heads get below 0.1.
#
# **Claim.** Nobody told the two heads who does what, and yet one puts most of its weight on the token before and the
# other on the first token.

# %%
assert loss_one > 0.3 and loss_two < 0.1
before = [float(two.weights(head)[2:].diagonal(1).mean()) for head in range(2)]
first = [float(two.weights(head)[2:, 0].mean()) for head in range(2)]
assert max(before) > 0.5 and max(first) > 0.5 and before.index(max(before)) != first.index(max(first))
rg.draw.heads(
    torch.stack([two.weights(head) for head in range(2)])[None],
    title="Two learned heads: one for the token before, one for the first",
)

# %% [markdown]
# Which head took which job is chance: another seed may swap them. That is why heads of two trainings are compared by
# what they do and never by their number.
#
# ## Play
#
# ```sh
# regard explore
# ```
# `#/playground?play.kind=self&play.embed_dim=64&play.num_heads=8`: eight heads side by side, and the parameter count that does not move
# when their number does.

# %% [markdown]
# ## Sources
# - A. Vaswani et al. 2017, [arXiv 1706.03762](https://arxiv.org/abs/1706.03762), section 3.2.2: multi-head attention.
# - X. Glorot, Y. Bengio 2010, *Understanding the difficulty of training deep feedforward neural networks*, AISTATS:
#   the random projections.
# - E. Voita et al. 2019, *Analyzing multi-head self-attention: specialized heads do the heavy lifting, the rest can be
#   pruned*, [arXiv 1905.09418](https://arxiv.org/abs/1905.09418).
