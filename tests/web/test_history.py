"""A history as a viewer is told it: the numbers and maps of the history itself."""

import numpy as np
import pytest
import torch

import regard as rg
from regard.errors import ArgumentError
from regard.record import History
from regard.web.history import Training, describe_history, history_code, maps_of, values_of


class Pair(torch.nn.Module):
    """Self-attention and cross-attention, so that some statistics mean nothing in one of them."""

    def __init__(self):
        super().__init__()
        self.own = rg.nn.MultiHeadAttention(8, 2, mask=rg.causal())
        self.cross = rg.nn.MultiHeadAttention(8, 4)

    def forward(self, x, memory):
        return self.cross(self.own(x), memory=memory)


@pytest.fixture(scope="module")
def history():
    torch.manual_seed(2)
    model, history = Pair().eval(), History()
    for step in (0, 3, 10):
        for parameter in model.parameters():
            parameter.data *= 1.5
        with torch.no_grad(), rg.watch(model, map=8) as record:
            model(torch.randn(2, 13, 8), torch.randn(2, 7, 8))
        history = history.merge(History.of(step, record, picture=step != 3))
    return history


def test_the_description_is_that_of_the_history(history):
    told = describe_history(Training("a pair", history, {5: 0.5, 1: 2.0, 9: float("nan")}, "history = ..."))
    assert (told.steps, told.pictured) == ([0, 3, 10], [0, 10])
    assert tuple(told.statistics) == history.statistics
    assert told.losses == [(1, 2.0), (5, 0.5)], "in the order of the steps, and none that JSON has not"
    own, cross = told.layers
    assert (own.layer, own.heads, own.first, cross.first) == ("own", 2, 0, 2)
    assert (own.queries, own.keys, cross.keys) == (13, 13, 7)
    assert own.without == [] and "distance" in cross.without and "entropy" not in cross.without
    assert cross.tops == [float(history.maps[1][:, head].max()) for head in range(4)]


def test_values_and_maps_are_those_of_the_history(history):
    values = values_of(history)["values"]
    assert np.array_equal(values, history.values, equal_nan=True) and bool(values.isfinite().any())
    maps = maps_of(history, 10)
    assert sorted(maps) == ["0", "1"]
    assert torch.equal(maps["1"], history.maps[1][1])
    with pytest.raises(ArgumentError, match="maps"):
        maps_of(history, 3)


def test_the_code_gives_the_same_numbers(history, tmp_path):
    history.save(tmp_path / "history.safetensors")
    load = f"import regard as rg\n\nhistory = rg.load({str(tmp_path / 'history.safetensors')!r})"
    training, names = Training("a pair", history, code=load), {}
    exec(history_code(training, "max_weight", 10), names)
    assert names["steps"] == history.steps
    assert np.array_equal(names["values"], history.of_statistic("max_weight"), equal_nan=True)
    assert all(torch.equal(maps, history.maps[index][1]) for index, maps in enumerate(names["maps"]))
    assert "maps" not in history_code(training, "entropy")
    assert "a pair" in history_code(Training("a pair", history), "entropy")


@pytest.mark.parametrize(("options", "words"), [(("fame",), "statistic"), (("entropy", 3), "maps")])
def test_code_of_what_is_not_there_is_refused(history, options, words):
    with pytest.raises(ArgumentError, match=words):
        history_code(Training("a pair", history), *options)
