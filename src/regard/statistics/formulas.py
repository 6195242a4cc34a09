"""How the row statistics are read from a state: the formulas of the table, for tensors and for NumPy's arrays."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import Tensor

from regard.checks.transforms import tracing, transforming
from regard.statistics.state import SUMS, State
from regard.statistics.table import PLAIN, Wanted


def read(
    state: State, want: Wanted, keys_only: State, dtype: torch.dtype = torch.float64
) -> dict[str, Tensor]:
    """Row statistics from a state, by name; groups by `group:name`.

    Args:
        state: of the keys and the learned sink, if there is one.
        want: what was asked for.
        keys_only: of the keys alone: positions are means over tokens, masses are shares of everything.
        dtype: of the results; counts and keys are int64.
    """
    # With a sink the largest weight is no 1/l: its bits are to be those of torch's exponential, as in the top weights.
    if keys_only is not state or not _plain(state):
        values = _formulas(torch, state, want, keys_only)
        for name in ("max_weight", "min_weight"):
            if name in values:
                values[name] = values[name].detach()
        for name, tensor in values.items():
            if tensor.dtype != torch.int64:
                values[name] = tensor.to(dtype)
        return values
    # The same formulas on the same memory: for a few rows torch takes longer to be asked than to compute.
    numbers = _arrays(state)
    with np.errstate(all="ignore"):
        values = _formulas(np, numbers, want, numbers)
    exact: type = np.float32
    if dtype == torch.float64:
        exact = np.float64
    for name, array in values.items():
        if array.dtype != np.int64:
            array = array.astype(exact)
        values[name] = torch.from_numpy(array)
    return values


def _plain(state: State) -> bool:
    """Whether the state is numbers in memory, of which no derivative can be asked."""
    sums = (state.l, state.u, state.r, state.c)
    graded = any(t is not None and t.requires_grad for t in sums)
    hidden = tracing(state.l) or transforming(*sums) or type(state.l) is not Tensor
    return state.l.device.type == "cpu" and not graded and not hidden


def _arrays(state: State) -> Any:
    """The state with NumPy's arrays for its tensors, on the same memory."""
    held = {name: getattr(state, name) for name in SUMS if name != "o"}
    arrays: dict[str, Any] = {name: tensor.numpy() for name, tensor in held.items() if tensor is not None}
    return State(**arrays)


def _formulas(xp: Any, state: Any, want: Wanted, keys_only: Any) -> dict[str, Any]:
    """The table's row statistics; `xp` is torch or NumPy, whose names agree, and computes on what the states hold."""
    empty, alone = state.l == 0, keys_only is state
    total = xp.where(empty, 1.0, state.l)
    # m in the type of the sums.
    log, m = xp.log(total), state.m + xp.zeros_like(total)
    center = xp.where(empty, 0.0, m)
    # With a sink m may be its logit: the largest weight is that of a key.
    largest = m
    if not alone:
        largest = keys_only.m
    peak = xp.exp(xp.where(empty, -xp.inf, largest - center)) / total
    values = {"lse": m + log}
    if state.u is not None:
        values["entropy"] = log - state.u / total
        values["effective_keys"] = xp.where(empty, 0.0, xp.exp(values["entropy"]))
    if state.r is not None:
        values["sum_squares"] = state.r / (total * total)
    if state.top_keys is not None:
        values["max_weight"] = peak
        values["argmax"] = xp.where(xp.isnan(state.l), -1, state.top_keys[..., 0])
    if state.least is not None:
        values["min_weight"] = xp.exp(xp.where(empty, -xp.inf, state.least - center)) / total
    if state.c is not None:
        fractions = means = state.c / total[..., None]
        if not alone:
            means = keys_only.c / xp.where(keys_only.l == 0, 1.0, keys_only.l)[..., None]
        for i, column in enumerate(want.columns):
            of = fractions
            if column.name in PLAIN:
                of = means
            values[column.name] = of[..., i]
    if "square" in values:
        # The position is near the square's root in a long text, so the difference may be rounded below 0.
        variance = values["square"] - values["position"] * values["position"]
        # Set aside before the root, whose derivative there is infinite.
        flat = variance <= 0
        values["spread"] = xp.sqrt(xp.where(flat, 1.0, variance)) * ~flat
    if "sink" in want.names:
        values["sink"] = xp.zeros_like(total)
        if not alone:
            values["sink"] = xp.where(empty, 0.0, 1 - peak * keys_only.l)
    if state.count is not None:
        values["allowed"] = state.count
    return {name: values[name] for name in values if name in want.names}


def named(keys: Tensor, state: State) -> Tensor:
    """The keys of the largest weights; −1 in a row whose weights are NaN, as nothing is the largest of them."""
    return torch.where(state.l.isnan()[..., None], -1, keys)
