"""What the engine will not take, in words, and that asking for it by name never falls back."""

import pytest
import torch

import regard as rg
from regard.engines import triton as engine
from regard.spec import Spec
from regard.statistics.linear import Column
from regard.statistics.table import Wanted


def refusal(dtype=torch.float32, dim=8, want=None, **spec):
    query = torch.zeros(1, 2, 3, dim, dtype=dtype)
    return engine.refuses(query, query, query, Spec(1.0, **spec), want or Wanted())


def test_what_it_takes():
    assert refusal() is None
    assert refusal(bias=rg.alibi([1.0, 2.0])) is None
    assert refusal(want=Wanted(top=16)) is None


def test_every_reason():
    assert refusal(torch.float64) == "it computes in float32, bfloat16 and float16, got torch.float64"
    assert refusal(dim=257) == "dim and value_dim must be at most 256, got 257"
    assert refusal(want=Wanted(dropout=0.1)) == "it has no dropout"
    assert refusal(bias=rg.spec.bias.ScoreMod(max)) == "it cannot evaluate a bias of type ScoreMod"
    slopes = torch.ones(2, requires_grad=True)
    assert refusal(bias=rg.alibi(slopes)) == "it has no gradient of a bias"
    with torch.no_grad():
        assert refusal(bias=rg.alibi(slopes)) is None
    assert refusal(want=Wanted(top=17)) == "top must be at most 16, got 17"
    odd = Column("odd", lambda window, device: window.k(device) % 2)
    assert refusal(want=Wanted(columns=(odd,))) == "it cannot evaluate the column 'odd'"
    members = torch.ones(3, dtype=torch.bool)
    groups = tuple(rg.statistics.group(str(i), members).column for i in range(33))
    assert refusal(want=Wanted(columns=groups)) == "at most 32 groups of keys at once"


def test_without_the_interpreter_a_cpu_is_refused(monkeypatch):
    monkeypatch.delenv("TRITON_INTERPRET")
    assert refusal() == "the tensors must be on a CUDA device, got cpu"
    query = torch.zeros(1, 1, 2, 4)
    with pytest.raises(rg.errors.EngineError, match="triton: the tensors must be on a CUDA device, got cpu"):
        rg.observe(query, query, query, engine="triton")


def test_without_triton_it_says_how_to_get_it(monkeypatch):
    monkeypatch.setattr(engine, "installed", lambda: False)
    assert refusal() == 'Triton is not installed: pip install "regard[cuda]"'
