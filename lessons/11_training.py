# %% [markdown]
# # 11. Training: the first steps, and the history of heads
#
# *20 minutes. You need: lessons 9 and 10, and what a gradient is.*
#
# Heads are not born with roles. This lesson looks at how a transformer begins: what the initial weights do to its
# attention, why the learning rate warms up, what clipping is and is not, and how heads come to be what they are.

# %%
# %matplotlib inline
import math

import torch

import regard as rg
from regard.record import History
from regard.tasks.common import pretrained

SYMBOLS, HALF = 16, 8


def model_of(**keywords):
    """A decoder of four layers for rows of random symbols that are said twice."""
    torch.manual_seed(0)
    config = rg.models.DecoderConfig(
        vocab_size=SYMBOLS,
        hidden_size=64,
        num_hidden_layers=4,
        num_attention_heads=4,
        dropout=0.0,
        position_embedding_type="rotary",
        **keywords,
    )
    return rg.models.DecoderForCausalLM(config)


def batch(rows=16):
    """Symbols, and labels for their second half, which can be known."""
    once = torch.randint(SYMBOLS, (rows, HALF))
    symbols = torch.cat([once, once], dim=1)
    return symbols, torch.cat([torch.full_like(once, -100), once], dim=1)


# %% [markdown]
# ## Three ways to begin
#
# - **Xavier** (Glorot and Bengio 2010): variances that keep the size of signals from layer to layer.
# - **small**: everything with the same small standard deviation, a fiftieth, as GPT-2 and BERT.
# - **zero**: the last projection of each block is 0, so that each block begins as nothing.
#
# **Claim.** "Small" begins with attention that is uniform to within a thousandth of its largest entropy; Xavier's heads are
# less flat from the start.
#
# **Claim.** "Zero" begins with inner projections whose gradient is exactly 0, since nothing of theirs gets out. After one
# step of the optimizer they have one.
#
# **Claim.** However it begins, a model without training knows nothing: its loss is above nine tenths of ln 16.

# %%
symbols, labels = batch()
flatness, losses, inner = {}, {}, {}
for init in ("xavier", "small", "zero"):
    model = model_of(init=init)
    with torch.no_grad(), rg.watch(model) as record:
        model(symbols)
    flatness[init] = float(record.heads["entropy_fraction"].mean())
    loss = model(symbols, labels=labels).loss
    loss.backward()
    losses[init] = loss.item()
    projections = [
        p for name, p in model.named_parameters() if ".attention." in name and "output" not in name
    ]
    inner[init] = sum(float(p.grad.norm()) for p in projections)
    if init == "zero":
        torch.optim.AdamW(model.parameters(), lr=1e-3).step()
        model.zero_grad()
        model(symbols, labels=labels).loss.backward()
        after_one_step = sum(float(p.grad.norm()) for p in projections)
print({name: round(value, 4) for name, value in flatness.items()})
assert flatness["small"] > 0.999 > flatness["xavier"]
assert inner["zero"] == 0 < after_one_step and inner["xavier"] > 0
assert all(loss > 0.9 * math.log(SYMBOLS) for loss in losses.values())

# %% [markdown]
# ## Warm-up: small steps first
#
# The original transformer has its norms *after* the blocks, and was known to need a **warm-up**: a learning rate that
# grows from 0 in the first steps. Here is why one might believe it, measured: 80 steps of a post-norm model, with a warm-up
# of 40 steps and without, at two learning rates.


# %%
def train(model, rate, warm_up, steps=80, look=()):
    """Train by AdamW; the losses, and the history of the heads at the steps of `look`."""
    optimizer, losses, history = torch.optim.AdamW(model.parameters(), lr=rate), [], History()
    fixed, _ = batch(4)
    for step in range(steps + 1):
        if step in look:
            with torch.no_grad(), rg.watch(model.eval(), map=32) as record:
                model(fixed)
            history = history.merge(History.of(step, record, picture=True))
        for group in optimizer.param_groups:
            group["lr"] = rate * min(1, (step + 1) / max(1, warm_up))
        symbols, labels = batch()
        loss = model.train()(symbols, labels=labels).loss
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return losses, history


LOOKS = (0, 5, 10, 20, 30, 40, 50, 60, 70, 80)
runs = {
    (rate, warm_up): train(model_of(init="xavier", norm_first=False), rate, warm_up, look=LOOKS)
    for rate in (0.002, 0.01)
    for warm_up in (40, 0)
}
panels = [
    rg.draw.Panel(
        f"Learning rate {rate}",
        "step",
        "loss, nats",
        {
            name: (list(range(81)), runs[rate, warm][0])
            for name, warm in (("with warm-up", 40), ("without", 0))
        },
        "y",
    )
    for rate in (0.002, 0.01)
]
rg.draw.series(panels, title="A post-norm model, with and without warm-up")

# %% [markdown]
# **Claim.** At a rate of 0.01 the warm-up decides. Without it the loss of the last ten steps is still above nine tenths of
# ln 16: nothing was learned. With it, it is below two thirds of ln 16, and falling.
#
# **Claim.** At a rate of 0.002 it does not: both learn, to below 0.6 nats, and without a warm-up it goes faster.

# %%
late = {pair: sum(losses[-10:]) / 10 for pair, (losses, _) in runs.items()}
print({pair: round(loss, 3) for pair, loss in late.items()})
assert late[0.01, 0] > 0.9 * math.log(SYMBOLS) and late[0.01, 40] < 2 / 3 * math.log(SYMBOLS)
assert max(late[0.002, 40], late[0.002, 0]) < 0.6 and late[0.002, 0] < late[0.002, 40]

# %% [markdown]
# So "transformers need warm-up" is a sentence with conditions: norms after the blocks, and a rate that is high for the
# model. Xiong et al. (2020) show that with norms before the blocks it can often be left out.
#
# ## Clipping, and what Adam makes of it
#
# Clipping shrinks a gradient whose norm is above a bound, direction unchanged. That matters much for plain gradient
# descent. Adam divides each gradient by its own recent size, so that a common factor cancels.
#
# **Claim.** `clip_grad_norm_` at 1 turns a gradient of norm 50 into one of norm 1 in the same direction.
#
# **Claim.** Plain descent with gradients 100 times as large goes 100 times as far. Adam goes equally far, to a
# thousandth.

# %%
weight = torch.nn.Parameter(torch.zeros(10))
weight.grad = torch.randn(10)
weight.grad *= 50 / weight.grad.norm()
direction = weight.grad / weight.grad.norm()
torch.nn.utils.clip_grad_norm_([weight], 1.0)
assert math.isclose(weight.grad.norm(), 1, rel_tol=1e-4) and torch.allclose(weight.grad, direction, atol=1e-4)


def moved(optimizer, factor):
    """How far ten steps go, with all gradients multiplied by a factor."""
    weight = torch.nn.Parameter(torch.zeros(10))
    chosen, generator = optimizer([weight]), torch.Generator().manual_seed(0)
    for _ in range(10):
        weight.grad = factor * torch.randn(10, generator=generator)
        chosen.step()
    return weight.detach().norm()


def descent(parameters):
    return torch.optim.SGD(parameters, lr=0.01)


def adam(parameters):
    return torch.optim.Adam(parameters, lr=0.01)


assert math.isclose(moved(descent, 100) / moved(descent, 1), 100, rel_tol=1e-3)
assert math.isclose(moved(adam, 100) / moved(adam, 1), 1, rel_tol=1e-3)

# %% [markdown]
# With Adam, clipping is insurance against single wild batches, which would spoil its running means for long. It is no
# substitute for a warm-up.
#
# ## The history of heads
#
# Which heads became sharp, and when? A **history** has statistics of the same heads at steps of the training, on a fixed
# batch. This is the run at the low rate, without a warm-up.

# %%
history = runs[0.002, 0][1]
rg.draw.history(history, "entropy_fraction", title="Entropy of each head along the steps")

# %% [markdown]
# **Claim.** Some head ends with less than half of the entropy that it began with. It became sharp by learning.
#
# **Claim.** Heads do not move together: when training ends, the sharpest and the flattest differ by more than 0.3 in their
# fraction of the largest entropy.

# %%
fractions = history.of_statistic("entropy_fraction")
ratio = fractions[-1] / fractions[0]
assert float(ratio.min()) < 0.5
assert float(fractions[-1].max() - fractions[-1].min()) > 0.3
sharpest = divmod(int(ratio.argmin()), 4)
rg.draw.strip(history, *sharpest, title=f"Layer {sharpest[0]}, head {sharpest[1]}: its map, step after step")

# %% [markdown]
# ## The same in a model of source code
#
# `regard-tasks` brings a decoder that was trained for 4000 steps on Python source, with its whole history.
#
# **Claim.** At step 0 every head was uniform, with an entropy fraction above 0.999. In the first 32 steps hardly anything
# happens to them, while from step 64 to step 256 they lose a quarter of it and more, on average.
#
# **Claim.** The mean weight on the previous token grows more than fivefold on the way, and later than the entropy falls.

# %%
kept = History.load(pretrained.folder("language", "decoder") / "history.safetensors")
means = kept.table.groupby("step")[["entropy_fraction", "previous"]].mean()
assert kept.steps[-1] == 4000 and float(kept.of_statistic("entropy_fraction")[0].min()) > 0.999
assert (
    means["entropy_fraction"][32] > 0.99
    and means["entropy_fraction"][256] < 0.75 * means["entropy_fraction"][64]
)
growth = means["previous"] / means["previous"][0]
assert growth[4000] > 5 and growth[256] < growth[4000] * 0.75
rg.draw.history(kept, "previous", title="Weight on the previous token, 20 heads of a model of source code")

# %% [markdown]
# Entropy that falls is no success by itself. Lesson 15 is about sharpness that is an illness.
#
# ## Play
#
# ```sh
# regard explore
# ```
# `#/playground?play.kind=causal&play.init=small` begins uniform. Compare it with *xavier* and *zero*.

# %% [markdown]
# ## Sources
# - X. Glorot, Y. Bengio 2010, *Understanding the difficulty of training deep feedforward neural networks*, AISTATS.
# - R. Xiong et al. 2020, [arXiv 2002.04745](https://arxiv.org/abs/2002.04745): norms before the blocks, and warm-up.
# - L. Liu et al. 2020, *Understanding the difficulty of training transformers*,
#   [arXiv 2004.08249](https://arxiv.org/abs/2004.08249).
# - D. Kingma, J. Ba 2015, *Adam*, [arXiv 1412.6980](https://arxiv.org/abs/1412.6980).
# - R. Pascanu, T. Mikolov, Y. Bengio 2013, *On the difficulty of training recurrent neural networks*,
#   [arXiv 1211.5063](https://arxiv.org/abs/1211.5063): clipping.
