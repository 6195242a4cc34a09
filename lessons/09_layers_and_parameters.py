# %% [markdown]
# # 9. Encoder and decoder layers, and where the parameters are
#
# *15 minutes. You need: lessons 4 to 6.*
#
# A transformer is a stack of equal layers. Each layer is two or three blocks: attention, perhaps cross-attention, and a
# feed-forward network on each token by itself. Around each block there is a **residual** connection and a **norm**. That
# is all. At the end of this lesson you can count the parameters of GPT-3 on paper.

# %%
# %matplotlib inline
import torch

import regard as rg
from regard.nn import PUBLISHED, Config, parameters_of, parts_of

torch.manual_seed(0)
x = torch.randn(2, 7, 64)

# %% [markdown]
# ## An encoder layer, by hand
#
# There are two orders. The first paper normalized **after** each block (post-norm); nearly all later models normalize
# **before** it (pre-norm):
#
#     post-norm   x = norm(x + attention(x))      x = norm(x + feedforward(x))
#     pre-norm    x = x + attention(norm(x))      x = x + feedforward(norm(x))
#
# **Claim.** Written out, both orders give what the layer gives.
#
# **Claim.** After a post-norm layer every token has mean 0 and variance 1; after a pre-norm layer it does not, as nothing
# normalizes the sum. That is why a pre-norm stack ends with one more norm.

# %%
before = rg.nn.EncoderLayer(64, 4, norm_first=True, dropout=0.0).eval()
after = rg.nn.EncoderLayer(64, 4, norm_first=False, dropout=0.0).eval()
with torch.no_grad():
    step = x + before.attention(before.attention_norm(x))
    assert torch.allclose(step + before.feedforward(before.feedforward_norm(step)), before(x), atol=1e-5)
    step = after.attention_norm(x + after.attention(x))
    assert torch.allclose(after.feedforward_norm(step + after.feedforward(step)), after(x), atol=1e-5)
    post, pre = after(x), before(x)
assert post.mean(-1).abs().max() < 1e-5 and (post.var(-1, unbiased=False) - 1).abs().max() < 1e-3
assert (pre.var(-1, unbiased=False) - 1).abs().max() > 0.1

# %% [markdown]
# ## The residual stream
#
# Each block *adds* something to a token. If a block says nothing, the token passes unchanged, and so does its gradient.
# Depth is then no obstacle: a stack of blocks that say nothing is the identity.
#
# **Claim.** With the last projection of each block at zero, twelve layers are the identity, and the gradient of the output
# with respect to the input is the identity too.
#
# **Claim.** The feed-forward network sees one token at a time: change one token and the feed-forward output of the
# others stays. Only attention carries anything from token to token.

# %%
stack = rg.nn.Encoder(12, 64, 4, norm_first=True, init="zero", dropout=0.0).eval()
passed = x.clone().requires_grad_()
for layer in stack.layers:
    passed = layer(passed)
start = x.clone().requires_grad_()
out = start
for layer in stack.layers:
    out = layer(out)
(gradient,) = torch.autograd.grad(out.sum(), start)
assert torch.equal(passed, x) and torch.equal(gradient, torch.ones_like(x))
changed = x.clone()
changed[:, 3] += 1
with torch.no_grad():
    moved = (before.feedforward(changed) - before.feedforward(x)).abs().amax((0, 2)) > 0
    spread = (before.attention(changed) - before.attention(x)).abs().amax((0, 2)) > 0
assert moved.tolist() == [False] * 3 + [True] + [False] * 3 and bool(spread.all())

# %% [markdown]
# ## A decoder layer
#
# A decoder layer has causal self-attention, then cross-attention to the encoder's output, then the feed-forward network.
# GPT leaves the middle one out and is "decoder-only".
#
# **Claim.** A change of the last token changes no earlier output, while a change of the memory changes all of them.
#
# **Claim.** It is torch's layer: converted with its weights, `torch.nn.TransformerDecoderLayer` gives the same numbers.

# %%
memory = torch.randn(2, 5, 64)
decoder = rg.nn.DecoderLayer(64, 4, dropout=0.0).eval()
last = x.clone()
last[:, -1] += 1
with torch.no_grad(), rg.watch(decoder, keep="vectors") as record:
    plain = decoder(x, memory)
with torch.no_grad():
    assert torch.allclose(decoder(last, memory)[:, :-1], plain[:, :-1], atol=1e-6)
    assert bool(((decoder(x, memory + 1) - plain).abs().amax((0, 2)) > 0).all())
    theirs = torch.nn.TransformerDecoderLayer(64, 4, 256, dropout=0.0, batch_first=True).eval()
    causal = torch.nn.Transformer.generate_square_subsequent_mask(7)
    assert torch.allclose(rg.nn.from_torch(theirs)(x, memory), theirs(x, memory, tgt_mask=causal), atol=1e-5)
rg.draw.heads(record, title="One decoder layer: causal self-attention above, cross-attention below")

# %% [markdown]
# ## Counting parameters
#
# With embedding size d and a feed-forward network of 4d:
#
# | part | weights | biases |
# |---|---|---|
# | attention: query, key, value, output | 4 d² | 4 d |
# | feed-forward: d → 4d → d | 8 d² | 5 d |
# | two norms | 2 d | 2 d |
#
# About 12 d² a layer, two thirds of it in the feed-forward network, and none of it depends on the length of the text or
# on the number of heads.
#
# **Claim.** The table gives exactly what a layer that is built has.
#
# **Claim.** BERT-base has 109 482 240 parameters, BERT-large 335 141 888, GPT-2 small 124 439 808.
#
# **Claim.** GPT-3's 96 layers of 12 288 numbers come to 174 604 259 328 parameters: the "175 billion" of its name, which
# is 12 d² times 96 to within half a percent, without the embeddings.

# %%
d = 64
by_table = (4 * d**2 + 4 * d) + (8 * d**2 + 5 * d) + 4 * d
assert by_table == sum(p.numel() for p in rg.nn.EncoderLayer(d, 4).parameters())
counts = {name: parameters_of(config) for name, config in PUBLISHED.items()}
assert (counts["BERT-base"], counts["BERT-large"], counts["GPT-2 small"]) == (109482240, 335141888, 124439808)
giant = PUBLISHED["GPT-3 175B"]
assert (giant.num_hidden_layers, giant.hidden_size) == (96, 12288) and counts["GPT-3 175B"] == 174604259328
layers_only = counts["GPT-3 175B"] - parts_of(giant)["embeddings"]
assert abs(12 * 12288**2 * 96 / layers_only - 1) < 0.005
for name in ("BERT-base", "GPT-2 small", "GPT-3 175B"):
    print(f"{name:12}", {part: f"{count:,}" for part, count in parts_of(PUBLISHED[name]).items() if count})

# %% [markdown]
# **Claim.** In BERT-base, embeddings are more than a fifth of all parameters; in GPT-3 they are less than one percent. What
# is large in a small model is not what is large in a large one.
#
# **Claim.** Per layer, feed-forward has twice the parameters of attention, in every published size here.
#
# **Claim.** Two of the printed sizes of GPT-3 do not follow from its printed numbers: "350M" comes out as 356 million,
# and "13B" has a width of 5 140, which is no multiple of its 40 heads.

# %%
shares = {name: parts_of(config)["embeddings"] / counts[name] for name, config in PUBLISHED.items()}
assert shares["BERT-base"] > 1 / 5 and shares["GPT-3 175B"] < 0.01
ratios = [parts_of(c)["feedforward"] / parts_of(c)["attention"] for c in PUBLISHED.values()]
assert all(abs(ratio - 2) < 0.01 for ratio in ratios)
assert (
    round(counts["GPT-3 Medium"] / 1e6) == 356
    and PUBLISHED["GPT-3 13B"].hidden_size == 5140
    and 5140 % 40 > 0
)

# %% [markdown]
# ## Sharing keys: grouped queries
#
# In decoding, keys and values of all earlier tokens must be in memory. Letting several query heads share one key-value
# head makes that smaller (Ainslie et al. 2023). Parameters are the smaller gain.
#
# **Claim.** With 12 query heads and 2 key-value heads, GPT-2 small's keys and values take a sixth of the memory, while the
# model has only 9.5 % fewer parameters.

# %%
small = PUBLISHED["GPT-2 small"]
grouped = Config(
    small.vocab_size,
    768,
    12,
    12,
    num_key_value_heads=2,
    max_position_embeddings=small.max_position_embeddings,
)
saved = 1 - parameters_of(grouped) / counts["GPT-2 small"]
assert round(saved, 3) == 0.095
full, shared = rg.nn.MultiHeadAttention(768, 12), rg.nn.MultiHeadAttention(768, 12, num_kv_heads=2)
assert (
    parts_of(grouped)["attention"] == 12 * sum(p.numel() for p in shared.parameters())
    and shared.num_kv_heads * 6 == full.num_kv_heads
)
rg.draw.structure(heads=12, dim=768, kv_heads=2, mask=True)

# %% [markdown]
# ## Play
#
# ```sh
# regard explore
# ```
# `#/playground?play.kind=cross` shows cross-attention; the panel beside the map has the formula of the parameters, which
# follows the width and ignores the number of heads.

# %% [markdown]
# ## Sources
# - A. Vaswani et al. 2017, [arXiv 1706.03762](https://arxiv.org/abs/1706.03762), sections 3.1 and 3.3.
# - R. Xiong et al. 2020, *On layer normalization in the transformer architecture*,
#   [arXiv 2002.04745](https://arxiv.org/abs/2002.04745): before or after.
# - J. Devlin et al. 2019, *BERT*, [arXiv 1810.04805](https://arxiv.org/abs/1810.04805).
# - A. Radford et al. 2019, *Language models are unsupervised multitask learners* (GPT-2), OpenAI.
# - T. Brown et al. 2020, *Language models are few-shot learners* (GPT-3),
#   [arXiv 2005.14165](https://arxiv.org/abs/2005.14165), table 2.1.
# - J. Ainslie et al. 2023, *GQA*, [arXiv 2305.13245](https://arxiv.org/abs/2305.13245).
