# %% [markdown]
# # 14. What attention does not tell
#
# *20 minutes. You need: lesson 13.*
#
# A weight says where a head looked. It does not say that this mattered. Jain and Wallace (2019) wrote *Attention is not
# explanation*; Wiegreffe and Pinter (2019) answered *Attention is not not explanation*. Both are right about something,
# and each point can be measured. Four experiments.

# %%
# %matplotlib inline
import torch
from transformers import AutoModelForCausalLM, AutoTokenizer

import regard as rg
from regard import embedded
from regard.tasks.common import pretrained

tokenizer = AutoTokenizer.from_pretrained(embedded.folder())
model = AutoModelForCausalLM.from_pretrained(embedded.folder()).eval()
ids = tokenizer(embedded.TEXT, return_tensors="pt")["input_ids"]
with torch.no_grad(), rg.watch(model, keep="vectors") as record:
    model(ids)

# %% [markdown]
# ## 1. Other weights, the same output
#
# The output of a head is `w V`: n weights, d numbers. With more keys than numbers, many different `w` give the same output
# (Brunner et al. 2020). Take the last query of a real head, and move its weights as far as possible without moving the
# output.


# %%
def farthest(weights, values, tries=20):
    """Other weights, positive and of sum 1, that give the same output; the farthest that were found."""
    # What may be added: changes whose sum is 0 and that no value sees.
    free = torch.cat([values, torch.ones(len(values), 1, dtype=torch.float64)], dim=1)
    _, _, right = torch.linalg.svd(free.T)
    null = right[free.shape[1] :]
    generator, current = torch.Generator().manual_seed(0), weights.clone()
    for _ in range(tries):
        step = torch.randn(len(null), generator=generator, dtype=torch.float64) @ null
        # Away from where it began, and as far as all weights stay positive.
        step = step * torch.sign(step @ (current - weights) + 1e-12)
        limits = torch.where(step < 0, -current / step, torch.inf)
        current = current + limits.min() * step
    return current.clamp(min=0)


call, head = record[0], 0
query, key, value = (x.double() for x in (call.query, call.key, call.value))
weights = call.weights(head)[-1].double()
weights = weights / weights.sum()  # single precision leaves a rest
values = value[0, head // (call.sizes.heads // value.shape[1])]
other = farthest(weights, values)
distance = float((other - weights).abs().sum() / 2)
print(f"{len(weights)} keys, {values.shape[1]} numbers, {distance:.0%} of the weight moved")
rg.draw.heatmap(
    torch.stack([weights, other]),
    tokens=["as it is", "another"],
    values=False,
    scale="sqrt",
    title="Two rows of weights with one output",
)

# %% [markdown]
# **Claim.** The other weights are a distribution, and give the same output to nine digits.
#
# **Claim.** More than a tenth of the weight is on other keys, although the search was crude. From the output alone
# nobody can tell which of the two it was.

# %%
assert abs(float(other.sum()) - 1) < 1e-9 and bool((other >= 0).all())
assert float((other @ values - weights @ values).norm() / (weights @ values).norm()) < 1e-9
assert len(weights) > values.shape[1] + 1 and distance > 1 / 10

# %% [markdown]
# What this shows, and what not: the model *did* use these weights, and they were made by queries and keys, not by chance.
# "Another distribution exists" is not "the model could have made it" (Wiegreffe and Pinter).
#
# ## 2. A large weight on a short vector
#
# Head outputs are sums of weight times value. If a key's value is nearly 0, its weight moves nothing, however large it is.
# Kobayashi et al. (2020) multiply each weight with the length of the vector that it brings.

# %%
norms = rg.analysis.flow.norms(record, model)
table = norms.heads
sinks = table[table["first_mass"] > 0.5]
print(sinks[["call", "head", "first_mass", "first_norm", "ratio"]].round(2).to_string(index=False))
rg.draw.norms(norms)

# %% [markdown]
# **Claim.** Three heads give the first token more than half of their weight. Less than a third of what they move comes from
# there.
#
# **Claim.** In each of them the share of what is moved is less than 60 % of the share of the weight: such a head is at
# rest, although its map is the most striking one.

# %%
assert len(sinks) == 3 and (sinks["first_norm"] < 1 / 3).all()
assert (sinks["ratio"] < 0.60).all()

# %% [markdown]
# ## 3. Take the head out
#
# The best question is an experiment: what happens without it? `rg.intervene` sets the output of heads to zero while the
# model runs. The task: copying, the second half of random tokens that are said twice.

# %%
length = 48
generator = torch.Generator().manual_seed(0)
start = model.config.bos_token_id
once = torch.randint(start + 1, model.config.vocab_size, (6, length), generator=generator)
rows = torch.cat([torch.full((6, 1), start), once, once], dim=1)


@torch.no_grad()
def loss(heads=()):
    """Loss of the second copy, in nats a token, without these heads."""
    if not heads:
        logits = model(rows).logits
    else:
        with rg.intervene(model, list(heads), output="zero"):
            logits = model(rows).logits
    each = torch.nn.functional.cross_entropy(
        logits[:, :-1].flatten(0, 1), rows[:, 1:].flatten(), reduction="none"
    )
    return float(each.view(6, -1)[:, length + 1 :].mean())


plain = loss()
cost = {(layer, head): loss([(layer, head)]) - plain for layer in (1, 2, 3) for head in range(8)}
together = loss([(2, 0), (2, 4), (3, 6), (3, 7)]) - plain
print(
    f"plain {plain:.3f}; without 1.0: +{cost[1, 0]:.2f}, without 2.4: +{cost[2, 4]:.3f}, without 3.6: +{cost[3, 6]:.2f}"
)
print(f"without all four induction heads: +{together:.2f}")

# %% [markdown]
# **Claim.** Without the previous-token head, layer 1 head 0, copying is lost: more than 5 nats. It is the most costly of
# these 24 heads.
#
# **Claim.** Layer 2 head 4, which lesson 13 called an induction head by its map, costs less than 0.2 nats. What its map
# shows is there, and the model hardly needs it.
#
# **Claim.** All four induction heads together cost more than 5 nats, and more than five times the sum of what each costs
# alone: they stand in for each other. Neither a map nor the removal of single heads shows that.

# %%
assert cost[1, 0] > 5 and max(cost, key=cost.get) == (1, 0) and len(cost) == 24
assert cost[2, 4] < 0.2
single = sum(cost[pair] for pair in ((2, 0), (2, 4), (3, 6), (3, 7)))
assert together > 5 and together > 5 * single

# %% [markdown]
# Zeros are not neutral either: a head that always brings the same vector is missed for that vector. Its *mean* output in its
# place (`rg.analysis.mean_outputs`) asks a fairer question.
#
# ## 4. Not *not* explanation
#
# If weights did not matter, uniform ones would do. Wiegreffe and Pinter propose exactly this test. The translator of
# lesson 6, with each head of its crossings made uniform:

# %%
network, vocabulary = pretrained.load("translate", "transformer")
network.eval()
result = rg.tasks.look("translate", "Thursday, 3 March 2022")
source = torch.tensor([vocabulary.encode(result.record.source_tokens[0])])
crossings = [call.layer for call in result.record if call.kind == "cross"]
pairs = [(layer, head) for layer in crossings for head in range(4)]


@torch.no_grad()
def translated(**change):
    """What the model writes with its crossings changed."""
    with rg.intervene(network, pairs, **change):
        ids = network.generate(input_ids=source, max_new_tokens=20, do_sample=False)
    return vocabulary.decode(ids[0].tolist())


flat, sharp = translated(uniform=True), translated(top=1)
print("as it is:", result.said, "| uniform:", flat, "| only the largest weight:", sharp)

# %% [markdown]
# **Claim.** With uniform crossings the translation is wrong: here the weights carry what is needed.
#
# **Claim.** With nothing but the largest weight of each head and token it is right. So the *place of the maximum*, which we
# read as alignment, is what the model uses.

# %%
assert flat != result.said
assert sharp == result.said == "jeudi 3 mars 2022"

# %% [markdown]
# ## What to say, then
#
# | you saw | you may say | you may not say |
# |---|---|---|
# | a large weight | the head looked there | the answer rests on it |
# | a large weight × norm | much of the head's output came from there | the model used that output |
# | the loss rises without the head | the model needs it, on these texts | no other head could do it |
# | nothing happens without it | the model manages | the head does nothing |
#
# ## Play
#
# ```sh
# regard explore
# ```
# Open a head, change it (*off*, *uniform*, *top 1*), and see what every later head and the next token do.

# %% [markdown]
# ## Sources
# - S. Jain, B. C. Wallace 2019, *Attention is not explanation*, [arXiv 1902.10186](https://arxiv.org/abs/1902.10186).
# - S. Wiegreffe, Y. Pinter 2019, *Attention is not not explanation*,
#   [arXiv 1908.04626](https://arxiv.org/abs/1908.04626).
# - G. Brunner et al. 2020, *On identifiability in transformers*, [arXiv 1908.04211](https://arxiv.org/abs/1908.04211).
# - G. Kobayashi et al. 2020, *Attention is not only a weight*, [arXiv 2004.10102](https://arxiv.org/abs/2004.10102).
# - P. Michel, O. Levy, G. Neubig 2019, *Are sixteen heads really better than one?*,
#   [arXiv 1905.10650](https://arxiv.org/abs/1905.10650).
