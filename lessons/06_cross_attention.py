# %% [markdown]
# # 6. Cross-attention, and alignment
#
# *15 minutes. You need: lessons 3 and 5.*
#
# So far a text looked at itself. In **cross-attention** queries come from one text and keys and values from another: a
# translator writes a French word and looks at the English source. The weights then say which source word each written
# word came from. That is called an **alignment**, and it is the oldest use of attention (Bahdanau et al. 2015).

# %%
# %matplotlib inline
import torch

import regard as rg

torch.manual_seed(0)
source, target = torch.randn(1, 7, 32), torch.randn(1, 5, 32)
layer = rg.nn.MultiHeadAttention(32, 4).eval()
with torch.no_grad(), rg.watch(layer, keep="vectors") as record:
    output = layer(target, source)
print(record)

# %% [markdown]
# **Claim.** There are 5 queries and 7 keys, so every head has 5 × 7 weights, and 5 tokens come out.
#
# **Claim.** The order of the source means nothing: shuffle it, and the output stays, while the columns of the weights
# are shuffled with it. Attention reads a *set*. Lesson 8 is about what puts the order back in.

# %%
weights = record[0].weights(0)
assert weights.shape == (5, 7) and output.shape == (1, 5, 32) and record[0].kind == "cross"
order = torch.randperm(7)
with torch.no_grad(), rg.watch(layer, keep="vectors") as shuffled:
    other = layer(target, source[:, order])
assert torch.allclose(other, output, atol=1e-6)
assert torch.allclose(shuffled[0].weights(0), weights[:, order], atol=1e-6)

# %% [markdown]
# ## A translator of dates
#
# `regard-tasks` brings a small transformer that translates English dates to French and German. It has about a million
# parameters, two layers of encoder and two of decoder, and was trained on made-up dates, of which every word's partner
# is known. So here we can ask not only where attention looks, but whether it is **right**.

# %%
result = rg.tasks.look("translate", "March 3, 2022", into="fr")
print(result.said)
for row in result.rows:
    print("  ".join(f"{cell:>10}" for cell in row))
print(result.record)

# %% [markdown]
# The record has three kinds of attention: the encoder's (source to source), the decoder's own (target to target, causal)
# and the crossing (target to source).
#
# **Claim.** The translation is right.
#
# **Claim.** Self-attention of the encoder is square, the decoder's own is square and causal, and the crossings have as
# many rows as the target and as many columns as the source have tokens.

# %%
assert result.said == "3 mars 2022"
written, read = len(result.record.tokens[0]), len(result.record.source_tokens[0])
shapes = {
    call.layer.split(".")[0] + " " + call.kind: (call.sizes.queries, call.sizes.keys)
    for call in result.record
}
assert shapes == {
    "encoder self": (read, read),
    "decoder self": (written, written),
    "decoder cross": (written, read),
}
inner = next(call for call in result.record if call.layer.startswith("decoder") and call.kind == "self")
assert bool((inner.weights(0).triu(1) == 0).all())

# %% [markdown]
# ## The words change places
#
# English writes the month first, French the day. A head that aligns must therefore cross over.


# %%
def best(record):
    """The crossing and head whose alignment was best on held-out dates, as its card says."""
    found = rg.tasks.common.pretrained.card("translate", "transformer")["scores"]["alignment"]["best"]
    return record[found["layer"]], found["head"]


call, head = best(result.record)
keys = [token.removeprefix("##") for token in result.record.source_tokens[0]]
words = result.said.split()
alignment = call.weights(head)
rg.draw.heatmap(
    alignment,
    tokens=[*words, "end"],
    key_tokens=keys,
    title="Which English word does each French word look at?",
)

# %% [markdown]
# **Claim.** While it writes *3* it looks most at *3*, at *mars* most at *March*, at *2022* most at *2022*.
#
# **Claim.** So the first written word looks further to the right than the second: the alignment crosses over.

# %%
looked_at = [keys[int(row.argmax())] for row in alignment[: len(words)]]
assert looked_at == ["3", "March", "2022"]
assert int(alignment[0].argmax()) > int(alignment[1].argmax())

# %% [markdown]
# ## How often is it right?
#
# One example proves nothing. Twelve texts, in two styles, into two languages; `✓` and `✗` come from the grammar of dates,
# not from the model.

# %%
texts = [
    "March 3, 2022",
    "Thursday, 3 March 2022",
    "July 4, 1994",
    "Sunday, 9 May 1976",
    "17 August 2035",
    "June 2, 1908",
]
marks = []
for text in texts:
    for language in ("fr", "de"):
        one = rg.tasks.look("translate", text, into=language)
        marks += [row[-1] for row in one.rows if row[-1]]
right = marks.count("✓") / len(marks)
print(f"{marks.count('✓')} of {len(marks)} words with a partner: {right:.2f}")

# %% [markdown]
# **Claim.** Attention of that one head is on the right word for more than 90 % of the words that have a partner.
#
# **Claim.** It is not a property of every head: the worst head of the crossings is right less often than the best by
# at least ten points, on 2 000 held-out dates.

# %%
assert right > 0.9 and len(marks) >= 36
scores = rg.tasks.common.pretrained.card("translate", "transformer")
heads = [score for layer in scores["scores"]["alignment"]["heads"].values() for score in layer]
assert max(heads) - min(heads) > 0.10 and scores["held_out_examples"] == 2000 and len(heads) == 8

# %% [markdown]
# ## What an alignment is not
#
# That a head looks at the right word does not prove that the model *uses* what it sees there. It could have been told
# by another head. Whether it does is a question for an experiment: lesson 14 turns heads off.
#
# ## Play
#
# ```sh
# regard explore translate
# ```
# Type a date of your own, open a crossing of the decoder, and point at a written word: the source is colored by what it
# looks at.

# %% [markdown]
# ## Sources
# - D. Bahdanau, K. Cho, Y. Bengio 2015, [arXiv 1409.0473](https://arxiv.org/abs/1409.0473), section 5.2: alignments.
# - A. Vaswani et al. 2017, [arXiv 1706.03762](https://arxiv.org/abs/1706.03762), section 3.2.3: encoder–decoder attention.
# - P. Koehn, R. Knowles 2017, *Six challenges for neural machine translation*,
#   [arXiv 1706.03872](https://arxiv.org/abs/1706.03872), section 3.5: attention is not always an alignment.
