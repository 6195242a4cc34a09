"""What a model's own eager attention does: its scores as they enter the softmax, statistics of them, and the budget."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch import Tensor

from regard.record import Call


@contextmanager
def recorded() -> Iterator[list[Tensor]]:
    """The inputs of every softmax over `(batch, heads, queries, keys)`, in order."""
    found: list[Tensor] = []
    original = torch.nn.functional.softmax

    def softmax(input: Tensor, *args: object, **kwargs: object) -> Tensor:
        if input.ndim == 4:
            found.append(input.detach().clone())
            kwargs.pop("dtype", None)  # float32 would make −inf, and then NaN, of float64's smallest number
        return original(input, *args, **kwargs)

    torch.nn.functional.softmax = softmax
    try:
        yield found
    finally:
        torch.nn.functional.softmax = original


def statistics(
    scores: Tensor, real: Tensor | None = None, *, keys: int | None = None, offset: int = 0
) -> dict[str, Tensor]:
    """Row and column statistics by their textbook formulas, in the type of the scores.

    Args:
        scores: `(batch, heads, queries, keys)`; −5e3 and below blocks. One more column than `keys` is a learned sink.
        real: `(batch, queries)`: queries that are no padding.
    """
    keys = scores.shape[3] if keys is None else keys
    allowed = scores[..., :keys] > -5e3
    if real is not None:
        allowed &= real[:, None, :, None]
    valid = allowed.any(3)
    scores = scores.clone()
    scores[..., :keys] = scores[..., :keys].masked_fill(~allowed, -torch.inf)
    lse = torch.logsumexp(scores, 3)
    joint = torch.where(valid[..., None], torch.exp(scores - lse[..., None]), 0)
    w = joint[..., :keys]
    tokens = w / w.sum(3, keepdim=True).clamp(min=1e-30)  # without the sink's share
    k = torch.arange(keys).to(w.dtype)
    q = torch.arange(offset, offset + scores.shape[2]).to(w.dtype)[:, None]
    return {
        "lse": torch.where(valid, lse, -torch.inf),
        "entropy": -torch.special.xlogy(joint, joint).sum(3),
        "max_weight": w.amax(3),
        "min_weight": torch.where(valid, w.where(allowed, torch.inf).amin(3), 0),
        "sum_squares": (joint * joint).sum(3),
        "distance": (tokens * (q - k).abs()).sum(3),
        "position": (tokens * k).sum(3),
        "first": w[..., 0],
        "self_mass": (w * (q == k)).sum(3),
        "previous": (w * (q - 1 == k)).sum(3),
        "sink": joint[..., keys:].sum(3),
        "allowed": allowed.sum(3),
        "received": w.sum(2),
        "received_max": w.amax(2),
    }


def assert_within_budget(
    call: Call, truth: dict[str, Tensor], naive: dict[str, Tensor], leave_out: tuple[str, ...] = ()
) -> None:
    """Statistics in float32 are as near to float64 as twice the naive float32 computation's, and rounding."""
    for name, want in truth.items():
        if name in leave_out:
            continue
        got = getattr(call, name)
        assert got.shape == want.shape, f"{call.layer} {name}: {tuple(got.shape)}, not {tuple(want.shape)}"
        finite = torch.isfinite(want)
        assert torch.equal(torch.isfinite(got), finite), f"{call.layer} {name}: another set of empty rows"
        error, allowed = _furthest(got, want, finite), 2 * _furthest(naive[name], want, finite)
        rounding = 4 * torch.finfo(torch.float32).eps * (1 + _furthest(want, torch.zeros_like(want), finite))
        assert error <= allowed + rounding, (
            f"{call.layer} {name}: off by {error:.1e}, naive computation {allowed / 2:.1e}"
        )


def _furthest(a: Tensor, b: Tensor, where: Tensor) -> float:
    return float((a.double() - b.double())[where].abs().max()) if bool(where.any()) else 0.0
