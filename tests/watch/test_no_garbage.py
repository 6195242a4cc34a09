"""A watch that is over leaves no tensors to the garbage collector: memory does not grow from text to text."""

from __future__ import annotations

import gc
import warnings
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn

import regard as rg
from watch.families import FAMILIES

TIMES = 3


def family(name: str, implementation: str | None = None) -> tuple[nn.Module, Callable[[], Any]]:
    model, inputs = FAMILIES[name].build(implementation), FAMILIES[name].inputs()
    return model, lambda: model(**inputs)


def torch_layer(fused: bool) -> tuple[nn.Module, Callable[[], Any]]:
    layer = nn.TransformerEncoderLayer(24, 6, 29, batch_first=True).train(not fused)
    x = torch.randn(2, 13, 24)
    return layer, lambda: layer(x)


def own_layer() -> tuple[nn.Module, Callable[[], Any]]:
    layer, x = rg.nn.MultiHeadAttention(24, 6), torch.randn(2, 13, 24)
    return layer, lambda: layer(x, mask=rg.causal())


def by_hand() -> tuple[nn.Module, Callable[[], Any]]:
    class Layer(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.project = nn.Linear(24, 72)

        def forward(self, x):
            q, k, v = self.project(x).unflatten(2, (3, 6, 4)).permute(2, 0, 3, 1, 4)
            return (q @ k.transpose(-1, -2) / 2).softmax(-1) @ v

    layer, x = Layer(), torch.randn(2, 13, 24)
    return layer, lambda: layer(x)


WAYS = {
    "GPT2 sdpa": lambda: family("GPT2"),
    "GPT2 eager": lambda: family("GPT2", "eager"),
    "Bert sdpa": lambda: family("Bert"),
    "Llama eager": lambda: family("Llama", "eager"),
    "T5": lambda: family("T5"),
    "torch layer": lambda: torch_layer(False),
    "torch layer, fused": lambda: torch_layer(True),
    "own layer": own_layer,
    "by hand": by_hand,
}


def collected(run: Callable[[], Any]) -> int:
    """How many tensors only the collector can free after a run."""
    run()  # what only the first run makes, such as a cache, is no garbage
    gc.disable()
    gc.freeze()  # what is there already is not counted
    try:
        for _ in range(TIMES):
            run()
        return tensors()
    finally:
        gc.enable()


def tensors() -> int:
    """How many there are that were not frozen."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return sum(issubclass(type(thing), torch.Tensor) for thing in gc.get_objects())


@pytest.mark.parametrize("name", WAYS)
@pytest.mark.parametrize("what", ["plain", "watch", "vectors", "intervene"])
def test_no_tensor_waits_for_the_collector(name, what):
    model, forward = WAYS[name]()

    @torch.no_grad()
    def run() -> None:
        if what == "plain":
            forward()
        elif what == "intervene":
            with rg.intervene(model, temperature=2.0), rg.watch(model):
                forward()
        else:
            with rg.watch(model, keep="vectors" if what == "vectors" else "statistics"):
                forward()

    assert collected(run) == 0


def test_a_survey_keeps_no_text():
    model, inputs = FAMILIES["GPT2"].build(), FAMILIES["GPT2"].inputs()
    assert collected(lambda: rg.survey(model, [inputs, inputs])) == 0


def test_garbage_is_counted():
    def circle() -> None:
        thing = [torch.ones(3)]
        thing.append(thing)

    assert collected(circle) == TIMES
