# %% [markdown]
# # 10. BERT and GPT in small, and three tasks
#
# *20 minutes. You need: lessons 4, 6 and 9.*
#
# The same layers make two families. **GPT** is causal and learns to predict the next token. **BERT** sees the whole text
# and learns to fill in hidden tokens. We train one of each on the same toy language, see what each can and cannot know,
# and then look at three trained models: one that answers, one that summarizes, one that describes a picture.

# %%
# %matplotlib inline
import math

import torch

import regard as rg

SYMBOLS, HALF, HIDDEN = 24, 12, 24


def batch(rows=32):
    """Random symbols, and then the same once more: the second half can be known from the first."""
    once = torch.randint(SYMBOLS, (rows, HALF))
    return torch.cat([once, once], dim=1)


def hide(symbols):
    """A quarter of the first half hidden, and labels for the hidden ones alone."""
    hidden = torch.zeros_like(symbols, dtype=torch.bool)
    hidden[:, :HALF] = torch.rand(len(symbols), HALF) < 0.25
    return symbols.masked_fill(hidden, HIDDEN), symbols.masked_fill(~hidden, -100)


def train(model, steps, prepare):
    """Train with AdamW and a short warm-up; the losses."""
    optimizer, losses = torch.optim.AdamW(model.parameters(), lr=3e-3), []
    for step in range(steps):
        for group in optimizer.param_groups:
            group["lr"] = 3e-3 * min(1, (step + 1) / 30)
        inputs, labels = prepare(batch())
        loss = model(inputs, labels=labels).loss
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return losses


size = dict(
    vocab_size=SYMBOLS + 1,
    hidden_size=64,
    num_hidden_layers=2,
    num_attention_heads=4,
    dropout=0.0,
    position_embedding_type="rotary",
    init="xavier",
)
torch.manual_seed(0)
gpt = rg.models.DecoderForCausalLM(rg.models.DecoderConfig(**size))
bert = rg.models.EncoderForMaskedLM(rg.models.EncoderConfig(**size))
losses = {"GPT: next symbol": train(gpt, 130, lambda symbols: (symbols, symbols))}
losses["BERT: hidden symbols"] = train(bert, 170, hide)
rg.draw.series(
    [
        rg.draw.Panel(
            "Loss",
            "step",
            "nats a symbol",
            {name: (list(range(len(line))), line) for name, line in losses.items()},
        )
    ],
    title="Two small models learn a language of repetitions",
)

# %% [markdown]
# ## What can be known
#
# Nobody can guess a random symbol. In the second half everything can be known by looking back.
#
# **Claim.** The loss of the best possible guesser in the first half is ln 24 = 3.18 nats. GPT's loss is that to within
# 15 %, and in the second half less than a tenth of it.
#
# **Claim.** BERT fills in hidden symbols **of the first half** with more than 90 % right, as it may look ahead to the
# second. To GPT that is closed.
#
# **Claim.** GPT's attention has nothing above the diagonal. BERT's has.

# %%
torch.manual_seed(1)
symbols = batch(64)
with torch.no_grad(), rg.watch(gpt.eval(), keep="vectors") as causal:
    logits = gpt(symbols).logits[:, :-1]
each = torch.nn.functional.cross_entropy(
    logits.flatten(0, 1), symbols[:, 1:].flatten(), reduction="none"
).view(64, -1)
first, second = float(each[:, : HALF - 1].mean()), float(each[:, HALF:].mean())
assert round(math.log(24), 2) == 3.18 and abs(first / math.log(24) - 1) < 0.15 and second < first / 10
inputs, labels = hide(symbols)
with torch.no_grad(), rg.watch(bert.eval(), keep="vectors") as both:
    guesses = bert(inputs).logits.argmax(-1)
right = float((guesses == labels)[labels >= 0].double().mean())
assert right > 0.90
above = [float(record[1].weights(0).triu(1).sum()) for record in (causal, both)]
assert above[0] == 0 and above[1] > 0.5
print(f"GPT: {first:.2f} nats in the first half, {second:.3f} in the second; BERT: {right:.0%} right")

# %% [markdown]
# ## Where they look
#
# To say the next symbol, GPT must find where the current one stood before and look one further: an **induction head**, or
# a head with a fixed offset, as all our rows repeat after 12. BERT needs the symbol 12 places to the right or left.


# %%
def at_offset(record, offset):
    """The largest mean weight of any head on the key at this offset from the query, and that layer and head."""
    found = {}
    for layer, call in enumerate(record):
        for head in range(call.sizes.heads):
            weights = torch.stack([call.weights(head, batch=row) for row in range(8)]).mean(0)
            found[layer, head] = float(weights.diagonal(offset)[-(HALF - 1) :].mean())
    return max((weight, pair) for pair, weight in found.items())


back, head_of_gpt = at_offset(causal, 1 - HALF)
ahead, head_of_bert = at_offset(both, HALF)
rg.draw.heatmap(
    causal[head_of_gpt[0]].weights(head_of_gpt[1]),
    title="GPT: the head that looks 11 back, at what comes next",
)

# %% [markdown]
# **Claim.** In GPT one head of the last layers puts more than half of its weight, in the second half, on the symbol 11
# places back, which is the one that comes next.
#
# **Claim.** In BERT one head puts more than a fifth of its weight, on average, exactly 12 places ahead, where equal weights
# would give 1/24. It is less clear than in GPT: BERT may look either way, and its heads share the work.

# %%
assert back > 0.5 and HALF - 1 == 11
assert ahead > 1 / 5 > 1 / 24 and HALF == 12
print(f"GPT {head_of_gpt}: {back:.2f}; BERT {head_of_bert}: {ahead:.2f}")

# %% [markdown]
# ## Question answering: which sentence does the answer rest on?
#
# A small encoder was trained on stories with a question. The right sentences are known, so attention can be marked.

# %%
story = "Alice went to the kitchen. Alice took the key. Bruno went to the garden. Where is Alice?"
answer = rg.tasks.look("answer", story)
print(answer.said)
sentences = [row[1] for row in answer.rows]
shares = torch.tensor([float(row[2]) for row in answer.rows])
rg.draw.passage(sentences, shares, support=[0], title="Where is Alice?")

# %% [markdown]
# **Claim.** The answer is *kitchen*, and the sentence that says so has the largest share of the attention of the head
# that is shown.
#
# **Claim.** Change the fact, and the answer follows. So the model read it, and did not just like the word.

# %%
assert answer.said.endswith("kitchen") and int(shares.argmax()) == 0
assert rg.tasks.look("answer", story.replace("kitchen", "cellar")).said.endswith("cellar")

# %% [markdown]
# ## Summarization: one learned query chooses a sentence
#
# The model is an encoder and **one** query that looks at the end of each sentence. What it looks at most is the summary.

# %%
text = (
    "It should not be called directly. Read a table from a file and return its columns by their names. "
    "Empty cells become None. If a line is shorter than the first one, an error is raised."
)
summary = rg.tasks.look("summarize", text)
importance = torch.tensor([float(row[3]) for row in summary.rows])
rg.draw.passage([row[2] for row in summary.rows], importance, title="Which sentence sums it up?")

# %% [markdown]
# **Claim.** It chooses the second sentence, with more than half of the weight, and not the first.
#
# **Claim.** On held-out documents that is worth little: by its card, choosing by attention beats choosing the first
# sentence by less than 0.05 ROUGE-1, with a 95 % interval above 0.

# %%
assert int(importance.argmax()) == 1 and importance[1] > 0.5 and summary.said == summary.rows[1][2]
lead = rg.tasks.common.pretrained.card("summarize", "pointer")["scores"]["above"]["lead"]
level = 0.95  # of the card's intervals
assert 0 < lead["interval"][0] < lead["score"] < 0.05
print(lead)

# %% [markdown]
# ## Captions: which patch of the picture?
#
# Handwritten digits on a canvas, cut into 64 patches; the decoder writes and looks at patches while it does.

# %%
caption = rg.tasks.look("caption")
print(caption.said)
crossing = next(call for call in reversed(caption.record.calls) if call.kind == "cross")
tokens = caption.said.split()
weights = torch.stack([crossing.weights(head)[: len(tokens)] for head in range(4)]).mean(0)
rg.draw.heatmap(
    weights,
    tokens=tokens,
    key_tokens=caption.record.source_tokens[0],
    values=False,
    title="Words over patches (row, column), mean of four heads",
)

# %% [markdown]
# **Claim.** Each word that names a digit has its largest weight, in the head that is shown, on a patch of that digit.
#
# **Claim.** The caption names two to four digits and says how each lies to the one before.

# %%
marks = [row[3] for row in caption.rows if row[3]]
assert marks and all(mark == "✓" for mark in marks)
assert (
    2 <= len(marks) <= 4
    and caption.said.count(" of ") + caption.said.count("above") + caption.said.count("below")
    == len(marks) - 1
)

# %% [markdown]
# ## Play
#
# ```sh
# regard explore answer caption
# ```
# Write a story of your own, or drop a picture of digits.

# %% [markdown]
# ## Sources
# - A. Radford et al. 2018, *Improving language understanding by generative pre-training* (GPT), OpenAI.
# - J. Devlin et al. 2019, *BERT*, [arXiv 1810.04805](https://arxiv.org/abs/1810.04805).
# - C. Olsson et al. 2022, *In-context learning and induction heads*,
#   [arXiv 2209.11895](https://arxiv.org/abs/2209.11895).
# - J. Weston et al. 2015, *Towards AI-complete question answering*,
#   [arXiv 1502.05698](https://arxiv.org/abs/1502.05698): stories and supporting sentences.
# - A. See, P. J. Liu, C. D. Manning 2017, *Get to the point*, [arXiv 1704.04368](https://arxiv.org/abs/1704.04368):
#   attention that points.
# - K. Xu et al. 2015, *Show, attend and tell*, [arXiv 1502.03044](https://arxiv.org/abs/1502.03044).
