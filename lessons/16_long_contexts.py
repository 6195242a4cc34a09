# %% [markdown]
# # 16. Long contexts: caches, sinks and windows
#
# *15 minutes. You need: lessons 4, 8 and 13.*
#
# A model that writes token by token holds the keys and values of everything before: the **KV cache**. It grows with every
# token and is soon larger than the model. What may be thrown away? That depends on where heads look, so we measure.

# %%
# %matplotlib inline
import inspect
import math
import textwrap

import torch
from transformers import AutoModelForCausalLM, AutoTokenizer, logging

import regard as rg
from regard import embedded

logging.set_verbosity_error()  # texts longer than the model's 512 tokens are on purpose
tokenizer = AutoTokenizer.from_pretrained(embedded.folder())
model = AutoModelForCausalLM.from_pretrained(embedded.folder()).eval()
ids = tokenizer(inspect.getsource(textwrap), return_tensors="pt")["input_ids"]
print(f"{ids.shape[1]} tokens of Python's textwrap module")

# %% [markdown]
# ## The cache
#
# **Claim.** Token by token with a cache gives what one pass over the whole text gives. Only the new token's query is
# computed; its keys are those of the past.
#
# **Claim.** For a model of 96 layers of 12 288 numbers (GPT-3), 2 048 tokens in two bytes a number take 9.66 GB, for each
# text in the batch. With 8 instead of 96 key-value heads it would be a twelfth.

# %%
torch.manual_seed(0)
layer = rg.nn.MultiHeadAttention(64, 8, num_kv_heads=2, positions=rg.nn.Rotary(8), mask=rg.causal()).eval()
x = torch.randn(1, 40, 64)
with torch.no_grad():
    cache = rg.nn.Cache(layer)
    steps = [layer(x[:, :30], cache=cache)] + [layer(x[:, t : t + 1], cache=cache) for t in range(30, 40)]
    assert torch.allclose(torch.cat(steps, dim=1), layer(x), atol=1e-5) and len(cache) == 40
keys_and_values, bytes_each = 2, 2
cached = keys_and_values * 96 * 12288 * 2048 * bytes_each
assert round(cached / 1e9, 2) == 9.66
assert cached * 8 / 96 == cached / 12

# %% [markdown]
# ## How far do heads look?
#
# `spans` says for each head how many tokens a window must reach back to hold a share of its mass, say nine tenths.

# %%
with torch.no_grad(), rg.watch(model, statistics=tuple(rg.statistics.TABLE), keep="vectors") as record:
    model(ids[:, :512])
spans = rg.analysis.spans(record)
print(spans.describe().round(0))
rg.draw.heads(record)

# %% [markdown]
# **Claim.** Heads differ by a factor of more than 100 in the window that holds 90 % of their mass. One window for all wastes
# on some and cuts off others.
#
# **Claim.** Heads look near more than far: averaged over them, more than 60 % of the mass is within 64 tokens, where equal
# weights would have 39 %.

# %%
share = 0.90
column = next(name for name in spans.columns if "90" in str(name) or str(name) == str(share))
assert spans[column].max() > 100 * spans[column].min().clip(1)
near = torch.stack([torch.stack([call.weights(head) for head in range(8)]) for call in record])
positions = torch.arange(512)
within = (positions[:, None] - positions).abs() <= 64
assert float((near * within).sum(-1).mean()) > 0.60
equal = torch.ones(512, 512).tril() / torch.arange(1, 513)[:, None]
assert round(float((equal * within).sum(-1).mean()), 2) == 0.39

# %% [markdown]
# ## Sinks
#
# Weights must add up to 1, so a head that has nothing to say needs a place to rest. Trained models use the first token,
# whatever it is: an **attention sink** (Xiao et al. 2023).
#
# **Claim.** Over 512 tokens, some head gives the first one more than ten times what equal weights would give it.
#
# **Claim.** It is rest and not content: the sink's value vector is short. Of what the three strongest such heads move, its
# share is less than half of its share of the weight.

# %%
first = record.heads["first"]
uniform = float((1 / torch.arange(1.0, 513)).mean())
assert first.max() > 10 * uniform
norms = rg.analysis.flow.norms(record, model).heads
resting = norms.nlargest(3, "first_mass")
assert (resting["first_norm"] < resting["first_mass"] / 2).all()
print(resting[["call", "head", "first_mass", "first_norm", "ratio"]].round(2).to_string(index=False))

# %% [markdown]
# ## Smaller caches
#
# Three policies for a cache of 64 keys a head: the **recent** ones; the **first** four **and** recent (StreamingLLM); and
# **heavy hitters**, half recent and half those that received most so far (H2O). `eviction` measures which share of each
# head's mass is still in the cache.

# %%
table = rg.analysis.eviction(record, [32, 64, 128])
means = table.groupby(["budget", "policy"])["mass"].mean().unstack()
print(means.round(3))
rg.draw.eviction(table)

# %% [markdown]
# **Claim.** With 64 keys, four first tokens in place of four recent ones raise the mean share of the mass. Heavy hitters do
# not: in this model, on this text, they hold less than the recent keys alone.
#
# **Claim.** For the head that loses most it is the other way round: heavy hitters hold most of it, the recent keys least.
#
# **Claim.** The mean hides the worst: for some head "recent" loses more than half of its mass.

# %%
at_64 = means.loc[64]
worst = table.groupby(["budget", "policy"])["mass"].min().unstack().loc[64]
assert worst["heavy hitters"] > worst["first and recent"] > worst["recent"]
assert at_64["first and recent"] > at_64["recent"] > at_64["heavy hitters"]
recent = table[(table["policy"] == "recent") & (table["budget"] == 64)]
assert recent["mass"].min() < 0.5

# %% [markdown]
# ## Does it matter to the loss?
#
# Mass is not loss (lesson 14). So the model itself is run with every head under a window.


# %%
@torch.no_grad()
def loss(mask=None):
    """Loss over the second half of 512 tokens, every head under a mask."""
    plan = [(layer, head) for layer in range(4) for head in range(8)]
    if mask is None:
        logits = model(ids[:, :512]).logits
    else:
        with rg.intervene(model, plan, mask=mask):
            logits = model(ids[:, :512]).logits
    return float(torch.nn.functional.cross_entropy(logits[0, 255:511], ids[0, 256:512]))


full = loss()
windows = {keys: loss(rg.near(before=keys - 1)) for keys in (2, 8, 64)}
print(f"all keys {full:.3f};", {keys: round(one, 3) for keys, one in windows.items()})

# %% [markdown]
# **Claim.** A window of 64 keys, which loses a quarter of the mass and more, changes the loss by less than 0.05 nats.
#
# **Claim.** A window of 2 keys costs more than half a nat. So the loss does depend on what heads see; it is just that most
# of the far mass was not needed here. Choose windows by the loss, and use mass only to find candidates.

# %%
assert at_64["recent"] < 3 / 4 and abs(windows[64] - full) < 0.05
assert windows[2] > full + 0.5

# %% [markdown]
# ## Beyond the trained length
#
# The model was trained on 512 tokens. Its rotary positions can be computed for any position; whether it can *use* them is
# another matter.
#
# **Claim.** Beyond 512 tokens the loss rises by more than a nat: the mean over tokens 1 024 to 1 536 against that over 256 to
# 512.
#
# **Claim.** Reading the same far tokens in rows of 512, each from position 0, has none of that: the text is not harder, the
# positions are.

# %%
most = min(1536, ids.shape[1])
with torch.no_grad():
    long = torch.nn.functional.cross_entropy(
        model(ids[:, :most]).logits[0, :-1], ids[0, 1:most], reduction="none"
    )
    far_row = ids[:, 1024:1536]
    row = torch.nn.functional.cross_entropy(model(far_row).logits[0, :-1], far_row[0, 1:], reduction="none")
near_loss, far_loss, same_text = (
    float(long[256:511].mean()),
    float(long[1024:1535].mean()),
    float(row[256:].mean()),
)
print(
    f"tokens 256 to 512: {near_loss:.2f}; 1024 to 1536: {far_loss:.2f}; those in a row of their own: {same_text:.2f}"
)
assert most == 1536 and far_loss > near_loss + 1
assert same_text < far_loss - 1 and math.isfinite(same_text)

# %% [markdown]
# ## Play
#
# ```sh
# regard explore
# ```
# Paste a long text into the embedded model. The maps of its heads are drawn at any length, and zoom down to single weights.

# %% [markdown]
# ## Sources
# - G. Xiao et al. 2023, *Efficient streaming language models with attention sinks*,
#   [arXiv 2309.17453](https://arxiv.org/abs/2309.17453).
# - Z. Zhang et al. 2023, *H2O: heavy-hitter oracle*, [arXiv 2306.14048](https://arxiv.org/abs/2306.14048).
# - I. Beltagy, M. Peters, A. Cohan 2020, [arXiv 2004.05150](https://arxiv.org/abs/2004.05150): windows.
# - S. Chen et al. 2023, [arXiv 2306.15595](https://arxiv.org/abs/2306.15595): beyond the trained length.
# - J. Ainslie et al. 2023, *GQA*, [arXiv 2305.13245](https://arxiv.org/abs/2305.13245): fewer key-value heads.
