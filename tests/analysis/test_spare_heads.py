"""Heads that add nothing, heads that another one stands for, and heads that a loss can do without."""

import numpy as np
import torch
from torch import nn

import regard as rg
from helpers.ill_heads import Layer, Model, batches, found, noise, of, on_key, previous
from regard.analysis import diagnose_model
from regard.analysis.diagnosis.diagnosis import Heads
from regard.analysis.diagnosis.head_norms import HeadNorms

N = 61
CAUSAL = rg.causal()


def test_a_head_that_adds_nothing_is_dead_and_a_quiet_one_is_not():
    ill = of(Layer(noise(4, N), CAUSAL, sizes=[1.0, 0.0, 0.1, 1.0]))
    assert found(ill) == [("dead head", "warning", 0, 1)]
    assert "behind the output projection" in ill.findings[0].sentence


def test_a_head_whose_part_of_the_output_projection_is_zero_is_dead():
    layer = Layer(noise(3, N), CAUSAL)
    with torch.no_grad():
        layer.out_proj.weight[:, 16:] = 0
    assert found(of(layer)) == [("dead head", "warning", 0, 2)]


def test_a_head_that_speaks_at_one_token_alone_is_not_dead():
    sizes = torch.ones(3, N)
    sizes[1] = 0
    sizes[1, 5] = 1
    layer = Layer(torch.cat((noise(1, N), previous(N), noise(1, N))), CAUSAL, sizes=sizes)
    assert found(of(layer), "dead head") == []


def test_a_dead_layer_of_one_head_is_found_against_other_layers():
    layers = [Layer(noise(1, N), CAUSAL) for _ in range(3)] + [Layer(noise(1, N), CAUSAL, sizes=[1e-9])]
    assert found(of(*layers)) == [("dead head", "warning", 3, 0)]


def test_norms_are_those_of_a_dense_computation():
    layer = Layer(noise(3, N), CAUSAL)
    x = torch.randn(1, 53, 8)
    norms = HeadNorms(layer)
    with torch.no_grad():
        norms.run({"x": x})
        weights = (
            layer.scores[:, :53, :53].masked_fill(torch.ones(53, 53).triu(1).bool(), -torch.inf).softmax(-1)
        )
        values = layer.value(x)[0].view(53, 3, 8).transpose(0, 1)
        parts = layer.out_proj.weight.T.view(3, 8, 8)
        truth = (weights @ values @ parts).norm(dim=-1).amax(-1)
    measured = norms.norms([Heads("Layer", "self", 3)])
    assert measured.projected.all()
    np.testing.assert_allclose(measured.norms, truth.numpy(), rtol=1e-4)


# --- heads that are not needed ---------------------------------------------------------------------------------


def test_a_copy_of_a_head_is_redundant_and_two_resting_heads_are_not():
    scores = noise(3, N, 2.0)
    scores = torch.cat((scores, scores[1:2] + 0.01 * noise(1, N), on_key(N, 0), on_key(N, 0)))
    diagnosis = of(Layer(scores, CAUSAL))
    assert found(diagnosis, "redundant head") == [("redundant head", "note", 0, 3)]
    assert "head 1" in diagnosis.findings[0].sentence


def test_heads_without_which_the_loss_stays_are_safe_to_prune():
    model = Model(Layer(noise(3, N), CAUSAL, sizes=[3.0, 1e-4, 3.0]))

    def loss(result, batch):
        return nn.functional.cross_entropy(result[:, :-1].flatten(0, 1), batch["input_ids"][:, 1:].flatten())[
            None
        ]

    diagnosis = diagnose_model(model, batches(), ablate=True, loss=loss)
    safe = [f for f in diagnosis.findings if f.name == "head safe to prune"]
    assert 1 in [f.head for f in safe] and all(f.severity == "note" for f in safe)
    assert all(f.high <= f.threshold for f in safe)
    assert abs(next(f for f in safe if f.head == 1).value) < 1e-3


def test_a_head_that_the_loss_needs_is_not_safe_to_prune():
    model = Model(Layer(torch.cat((on_key(N, 0), noise(1, N))), CAUSAL, sizes=[50.0, 1e-6]))
    text = batches()

    def loss(result, batch):
        # The first token's logits, which head 0 brings to every position.
        return (result[:, 1:] - reference[len(batch["input_ids"][0])]).square().mean()[None] + 1e-3

    with torch.no_grad():
        reference = {len(batch["input_ids"][0]): model(**batch)[:, 1:] for batch in text}
    diagnosis = diagnose_model(model, text, ablate=True, loss=loss)
    assert [f.head for f in diagnosis.findings if f.name == "head safe to prune"] == [1]
