"""How strongly each output of a layer depends on each input: exact Jacobians, as one norm for each pair of tokens.

Knows a module and its input only, so attention and recurrent layers are measured alike.
"""

from __future__ import annotations

import copy

import torch
from torch import Tensor, nn

from regard.checks.arguments import checked
from regard.errors import ArgumentError, ShapeError


@checked
def jacobian_norms(module: nn.Module, x: Tensor) -> Tensor:
    """Frobenius norm of the Jacobian ∂z_i/∂x_j for every pair of tokens, where z = module(x), exact in float64.

    The text is given to a copy of the module once for each number of an output token, side by side in one batch, so
    that one backward pass gives all rows of the Jacobians of a token: one forward and `tokens` backward passes, of
    batch `output_dim`. Dropout is off, and the module itself is left as it is.

    Args:
        module: from `(batch, tokens, embed_dim)` to `(batch, tokens, output_dim)`, each row of the batch by itself; of
            several outputs, as `nn.GRU` has, the first counts.
        x: `(tokens, embed_dim)`, one text.

    Returns:
        `(tokens, tokens)`, float64: row i for the output, column j for the input.

    Raises:
        ShapeError: x or the output has other axes.
        ArgumentError: x is not of real numbers.
    """
    if x.ndim != 2 or 0 in x.shape:
        raise ShapeError(f"x must be one text, (tokens, embed_dim), no axis empty, got {tuple(x.shape)}")
    if not x.is_floating_point():
        raise ArgumentError(f"x must be real numbers, got {x.dtype}: give the embeddings of tokens")
    # A copy, as the module must keep its precision, its mode and its gradients.
    exact = copy.deepcopy(module).double().eval().requires_grad_(False)
    text = x.detach().double()
    with torch.no_grad():
        output_dim = _output(exact, text[None]).shape[2]
    # A caller may have switched gradients off; here they are the result.
    with torch.enable_grad():
        # clone: views of one row would add up their gradients in it.
        inputs = text.expand(output_dim, -1, -1).clone().requires_grad_()
        output = _output(exact, inputs)
        return torch.stack([_row(output, inputs, token) for token in range(len(text))])


@checked
def by_distance(norms: Tensor) -> Tensor:
    """Mean of a table over the pairs with j = i − d, for each distance d into the past.

    Args:
        norms: `(tokens, tokens)`, as `jacobian_norms` returns it.

    Returns:
        `(tokens,)`: distance 0 is the token itself, and the last has a single pair.

    Raises:
        ShapeError: the table is not square.
    """
    if norms.ndim != 2 or norms.shape[0] != norms.shape[1]:
        raise ShapeError(f"norms must be (tokens, tokens), got {tuple(norms.shape)}")
    # A diagonal below the main one holds the pairs of one distance into the past.
    return torch.stack([norms.diagonal(-distance).mean() for distance in range(len(norms))])


def _output(module: nn.Module, x: Tensor) -> Tensor:
    result = module(x)
    output = result
    if isinstance(result, tuple):
        output = result[0]
    if not isinstance(output, Tensor) or output.ndim != 3 or output.shape[:2] != x.shape[:2]:
        got: object = type(output).__name__
        if isinstance(output, Tensor):
            got = tuple(output.shape)
        raise ShapeError(f"the module must return (batch, tokens, …) for {tuple(x.shape)}, got {got}")
    return output


def _row(output: Tensor, inputs: Tensor, token: int) -> Tensor:
    """Norms of ∂z_token/∂x_j for every j: the batch's row c asks for the gradient of the output's number c."""
    unit = torch.zeros_like(output)
    # Row c of the batch is multiplied by the unit vector c: together they are the whole Jacobian of the token.
    unit[:, token].fill_diagonal_(1.0)
    # The graph is walked once for each token, and may not be freed before the last.
    (gradient,) = torch.autograd.grad(output, inputs, unit, retain_graph=True)
    return gradient.square().sum((0, 2)).sqrt()
