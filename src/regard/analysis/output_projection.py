"""Where a layer's heads come together: its output projection, found by its name, for every family that names it so.

Knows modules and their names; it looks at no call.
"""

from __future__ import annotations

import re

from torch import Tensor, nn

# What transformers, torch and Regard call the projection behind the heads.
NAMES = ("o_proj", "out_proj", "c_proj", "out_lin", "output", "dense", "o", "wo")
# What models call that which changes the heads' outputs before they are projected: gates, norms, differences of heads.
BETWEEN = re.compile(r"gate|^g_|sub_norm|^inner_attn|^group_?norm$|^o_norm|^lambda_")


def output_projection(model: nn.Module, layer: str, width: int) -> nn.Module | None:
    """The module that projects the outputs of a layer's heads together, as they are.

    Args:
        model: the layer's model.
        layer: name of a layer of attention; its class where it is the model itself.
        width: heads · value_dim.

    Returns:
        A module with a weight of two axes; None where none has a name that is known, or where something is between
        the heads and it.
    """
    parent = layer.rpartition(".")[0]
    around: list[nn.Module] = []
    # BERT's stands in the module around its attention.
    for name in (layer, parent, f"{parent}.output"):
        try:
            module = model.get_submodule(name.lstrip("."))
        except AttributeError:
            continue
        around.append(module)
        for leaf, child in module.named_children():
            if leaf in NAMES and _inputs(child) == width:
                if any(_alters(holder, width) for holder in around):
                    return None
                return child
    return None


def output_weight(model: nn.Module, layer: str, width: int) -> Tensor | None:
    """The weight `(width, embed_dim)` of a layer's `output_projection`, inputs first; None where it is not known.

    Args:
        model: the layer's model.
        layer: name of a layer of attention.
        width: heads · value_dim.
    """
    projection = output_projection(model, layer, width)
    if projection is None:
        return None
    return _inputs_first(projection).detach()


def _inputs(module: nn.Module) -> int | None:
    """How many inputs a projection has; None of what is none."""
    weight = getattr(module, "weight", None)
    if not isinstance(weight, Tensor) or weight.ndim != 2:
        return None
    return _inputs_first(module).shape[0]


def _inputs_first(projection: nn.Module) -> Tensor:
    weight = projection.weight
    assert isinstance(weight, Tensor)
    # GPT-2's Conv1D has its inputs first.
    if isinstance(projection, nn.Linear):
        return weight.T
    return weight


def _alters(module: nn.Module, width: int) -> bool:
    """Whether a module of attention changes its heads' outputs before it projects them."""
    names = [name for name, _ in module.named_children()]
    names += [name for name, _ in module.named_parameters(recurse=False)]
    if any(BETWEEN.search(name) for name in names):
        return True
    # Qwen 3 Next makes its gates in the projection of its queries, which is twice as wide for it.
    query = getattr(module, "q_proj", None)
    return isinstance(query, nn.Linear) and "k_proj" in names and query.out_features == 2 * width
