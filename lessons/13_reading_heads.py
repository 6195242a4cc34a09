# %% [markdown]
# # 13. Reading heads
#
# *20 minutes. You need: lessons 4, 5 and 10.*
#
# What do the heads of a trained model do? This lesson reads 32 of them: by their maps, by statistics, by roles, and by
# following tokens through the layers. The model is in the package: four layers of eight heads, trained on Python source.

# %%
# %matplotlib inline
import math

import torch
from transformers import AutoModelForCausalLM, AutoTokenizer

import regard as rg
from regard import embedded
from regard.statistics import token_groups

tokenizer = AutoTokenizer.from_pretrained(embedded.folder())
model = AutoModelForCausalLM.from_pretrained(embedded.folder()).eval()
ids = tokenizer(embedded.TEXT, return_tensors="pt")["input_ids"]
tokens = [tokenizer.decode(i) for i in ids[0]]
statistics = [*rg.statistics.TABLE, *token_groups(ids, [tokens])]
with torch.no_grad(), rg.watch(model, statistics=statistics, tokens=tokens, keep="vectors") as record:
    logits = model(ids).logits
print(embedded.TEXT)
rg.draw.heads(record)

# %% [markdown]
# ## First: watching changes nothing
#
# **Claim.** The model's output is the same, bit for bit, with and without the watch.
#
# **Claim.** There are 32 maps, and no key stands above the diagonal in any of them: the model is causal.

# %%
with torch.no_grad():
    assert torch.equal(model(ids).logits, logits)
count = sum(call.sizes.heads for call in record)
assert count == 32 and all(
    bool((call.weights(head).triu(1) == 0).all()) for call in record for head in range(8)
)

# %% [markdown]
# ## Second: how spread out?
#
# Under a causal mask query q sees q + 1 keys, so its entropy is at most ln(q + 1). To compare heads, one divides by that
# bound: the **entropy fraction**, 0 for one key, 1 for all alike.

# %%
rg.draw.entropy(record)

# %% [markdown]
# **Claim.** No query exceeds its bound, and the first query has entropy 0, as it has one key.
#
# **Claim.** The heads differ widely: the sharpest head's mean fraction is below 0.3, the flattest one's above 0.7.

# %%
bound = torch.arange(1, len(tokens) + 1).log()
assert all(bool((call.rows("entropy") <= bound + 1e-4).all()) for call in record)
assert all(float(call.rows("entropy")[0, :, 0].abs().max()) < 1e-5 for call in record)
fractions = record.heads["entropy_fraction"]
assert fractions.min() < 0.3 and fractions.max() > 0.7

# %% [markdown]
# ## Third: what for? Roles
#
# A **role** is a pattern that the field has a name for: previous token, first token, induction, duplicate token, local …
# Each head gets a score for each role, from 0 (what uniform weights would give) to 1 (the most that the mask allows), with
# an interval. `docs/roles.md` has the definitions and how often they are right.

# %%
roles = rg.analysis.roles(record)
print(roles[["layer", "head", "role", "score", "low", "high"]].round(2).to_string(index=False))
rg.draw.roles(record)

# %% [markdown]
# **Claim.** Layer 1 head 0 is a previous-token head: more than 0.8 of its weight is on the token just before.
#
# **Claim.** Layer 2 head 4 is an induction head: it looks at what came after the last occurrence of the current token.
#
# **Claim.** At least one head rests on the first token with more than half of its weight. Such a *sink* is common in trained
# models; lesson 16 says what it is for.

# %%
role = {(int(row.layer.split(".")[2]), row.head): row.role for row in roles.itertuples()}
assert role[1, 0] == "previous token" and float(record[1].mean("previous")[0, 0]) > 0.8
assert role[2, 4] == "induction"
assert (record.heads["first"] > 0.5).any()

# %% [markdown]
# ## Does the label hold elsewhere?
#
# A label from one short text is a guess. An induction head should continue *anything* that it has seen: random tokens,
# said twice.

# %%
length = 48
generator = torch.Generator().manual_seed(0)
start = model.config.bos_token_id
once = torch.randint(start + 1, model.config.vocab_size, (4, length), generator=generator)
rows = torch.cat([torch.full((4, 1), start), once, once], dim=1)
with torch.no_grad(), rg.watch(model, keep="vectors") as random:
    twice = model(rows).logits
losses = torch.nn.functional.cross_entropy(
    twice[:, :-1].flatten(0, 1), rows[:, 1:].flatten(), reduction="none"
)
first, second = losses.view(4, -1)[:, :length].mean(), losses.view(4, -1)[:, length + 1 :].mean()


def induction(call, head):
    """Mean weight from each token of the second copy to what followed its first one."""
    window = [
        call.weights(head, rows=slice(1 + length, None), columns=slice(2, 2 + length), batch=row).diagonal()
        for row in range(4)
    ]
    return float(torch.stack(window).mean())


scores = torch.tensor([[induction(call, head) for head in range(8)] for call in random])
best = divmod(int(scores.argmax()), 8)
print(
    f"loss: first copy {first:.1f} nats, second copy {second:.2f}; strongest: layer {best[0]}, head {best[1]}"
)
rg.draw.heatmap(
    random[best[0]].weights(best[1]),
    scale="sqrt",
    title=f"Layer {best[0]}, head {best[1]} on random tokens, said twice",
)

# %% [markdown]
# **Claim.** The model copies: the second copy costs it less than a twentieth of the first.
#
# **Claim.** Layer 2 head 4 does induct here too, with more than 0.3 of its weight. But the strongest head is another,
# layer 3 head 6. One text shows *a* head that does it, and not *the* one.

# %%
assert second < first / 20
assert scores[2, 4] > 0.3 and best == (3, 6) and scores[best] > scores[2, 4]

# %% [markdown]
# ## Fourth: through all layers
#
# After several layers a token is a mixture of mixtures. **Rollout** (Abnar and Zuidema 2020) multiplies the layers: half of
# each token comes through the residual connection, half through the mean of the heads. It is a picture of *where
# information could have come from*.

# %%
flow = rg.analysis.flow.rollout(record, -1, corrected=True)
rg.draw.rollout(flow, tokens=tokens, corrected=True)

# %% [markdown]
# **Claim.** The shares of all input tokens add up to 1.
#
# **Claim.** With equal weights everywhere, the first token would already get 1.5 times the share of the second and more,
# and each token more than the next one (but for the last, where we start): all paths of a causal model lead to the start.
# A rollout must be read beside that baseline, and `corrected` is the quotient.

# %%
assert math.isclose(float(flow.shares[0, 0].sum()), 1, rel_tol=1e-4)
baseline = flow.baseline.shares[0, 0]
assert baseline[0] > 1.5 * baseline[1] and bool((baseline[:-1].diff() < 0).all())
assert torch.allclose(flow.corrected[0, 0], flow.shares[0, 0] / baseline, rtol=1e-3)

# %% [markdown]
# Rollout knows weights and nothing of what is weighted. The next lesson says why that can mislead.
#
# ## Play
#
# ```sh
# regard explore
# ```
# The overview shows the same 32 heads: color and sort them by *previous*, *first* or a role, and open the ones above.

# %% [markdown]
# ## Sources
# - K. Clark et al. 2019, *What does BERT look at?*, [arXiv 1906.04341](https://arxiv.org/abs/1906.04341).
# - C. Olsson et al. 2022, [arXiv 2209.11895](https://arxiv.org/abs/2209.11895): induction heads.
# - S. Abnar, W. Zuidema 2020, *Quantifying attention flow in transformers*,
#   [arXiv 2005.00928](https://arxiv.org/abs/2005.00928).
# - J. Vig, Y. Belinkov 2019, *Analyzing the structure of attention in a transformer language model*,
#   [arXiv 1906.04284](https://arxiv.org/abs/1906.04284).
