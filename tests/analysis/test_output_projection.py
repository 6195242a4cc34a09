"""Output projections that are found by name are given the heads' outputs as they are, or are not found."""

from typing import Any

import pytest
import torch
from torch import Tensor, nn

import regard as rg
from regard.analysis.output_projection import output_projection, output_weight
from regard.watch import Change
from regard.watch.changes import HeadOutput, Seen
from watch.families import FAMILIES, GROUPED

# Its projection is a parameter of three axes.
UNKNOWN = {"XLNet"}
# Multiples of 16 bytes, which torch's grouped product asks for.
EXPERTS = {
    "moe_intermediate_size": 8,
    "shared_expert_intermediate_size": 8,
    "num_experts": 3,
    "num_experts_per_tok": 2,
}
# A norm of the heads' outputs, a gate in the projection of the queries, and differences of heads.
BETWEEN = {
    "BitNet": {},
    "Qwen3Next": EXPERTS | {"layer_types": ["full_attention"] * 2},
    "DiffLlama": {},
}


def inputs_of_projections(model: nn.Module, given: dict[str, Tensor]) -> dict[str, Any]:
    """By layer the outputs of its heads beside what the projection that is found is given; None where none is."""
    heads: dict[str, Tensor] = {}
    found: dict[str, Any] = {}

    def see(outputs: HeadOutput) -> Tensor:
        output = outputs.output
        layer, width = outputs.layer, output.shape[1] * output.shape[3]
        heads[layer] = output.detach().transpose(1, 2).flatten(2)
        found.setdefault(layer, None)
        projection = output_projection(model, layer, width)
        if projection is not None:
            assert output_weight(model, layer, width).shape[0] == width
            hooks.append(projection.register_forward_pre_hook(lambda _, args: found.update({layer: args[0]})))
        return output

    hooks: list[Any] = []
    with torch.no_grad(), rg.intervene(model, Change(output=Seen(see))):
        model(**given)
    for hook in hooks:
        hook.remove()
    return {layer: (heads[layer], given) for layer, given in found.items()}


@pytest.mark.parametrize("name", FAMILIES)
def test_projections_of_families_are_given_the_heads(name: str) -> None:
    model = FAMILIES[name].build()
    pairs = inputs_of_projections(model, FAMILIES[name].inputs())
    assert pairs
    for heads, given in pairs.values():
        assert (given is None) == (name in UNKNOWN)
        if given is not None:
            torch.testing.assert_close(heads, given.reshape(heads.shape))


@pytest.mark.parametrize("name", BETWEEN)
def test_a_projection_of_something_else_is_not_found(name: str) -> None:
    transformers = pytest.importorskip("transformers")
    config = getattr(transformers, f"{name}Config")(**GROUPED, **BETWEEN[name], pad_token_id=0)
    model = getattr(transformers, f"{name}Model")(config).eval()
    pairs = inputs_of_projections(model, {"input_ids": torch.randint(97, (2, 11))})
    assert len(pairs) == 2 and all(given is None for _, given in pairs.values())


def test_a_layer_that_is_the_model_and_one_of_torch() -> None:
    layer = rg.nn.MultiHeadAttention(24, 4, value_dim=5)
    assert output_projection(layer, "MultiHeadAttention", 20) is layer.output
    assert output_projection(layer, "MultiHeadAttention", 24) is None
    torch.testing.assert_close(output_weight(layer, "MultiHeadAttention", 20), layer.output.weight.T)
    block = nn.TransformerEncoderLayer(24, 4)
    assert output_projection(block, "self_attn", 24) is block.self_attn.out_proj
    assert output_projection(block, "no such layer", 24) is None
