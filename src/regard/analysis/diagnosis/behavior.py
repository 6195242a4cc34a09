"""What a model does when an input changes that must not matter: the token behind a query, padding behind a text.

Knows inputs and outputs; it looks at no attention, so it also finds what goes another way.
"""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor, nn

from regard.analysis.diagnosis.evidence import ANY, DECODER, Movement

# Tokens of padding that are appended: not a multiple of anything.
APPENDED = 7
CAUSAL_CLASSES = ("ForCausalLM", "LMHeadModel")
IDS, WRITTEN, REAL = "input_ids", "decoder_input_ids", "attention_mask"


class Unknown(Exception):
    """The model cannot be asked so; says why."""


def declared_causal(model: nn.Module) -> str:
    """Which layers the class or the config says are causal: "any" for all, "decoder", or "" where neither says."""
    config = getattr(model, "config", None)
    if getattr(config, "is_encoder_decoder", False):
        return DECODER
    if type(model).__name__.endswith(CAUSAL_CLASSES) or getattr(config, "is_decoder", False):
        return ANY
    return ""


def first_text(model: nn.Module, inputs: Mapping[str, Any]) -> dict[str, Any]:
    """The first text of a batch without its padding: ids, what goes with each of them, and what a decoder is given.

    Raises:
        Unknown: there are no ids.
    """
    ids = inputs.get(IDS)
    if not isinstance(ids, Tensor) or ids.ndim != 2 or ids.is_floating_point():
        raise Unknown("the inputs have no input_ids to change")
    real = inputs.get(REAL)
    there = torch.ones_like(ids[0], dtype=torch.bool)
    if isinstance(real, Tensor) and real.shape == ids.shape:
        there = real[0].bool()
    # Segments and the like: whatever has a number for each token.
    text = {
        name: value[:1, there] if _by_token(value, ids) else value
        for name, value in inputs.items()
        if name not in (REAL, WRITTEN, "labels")
    }
    if isinstance(inputs.get(WRITTEN), Tensor):
        text[WRITTEN] = inputs[WRITTEN][:1]
    elif isinstance(inputs.get("labels"), Tensor) and hasattr(model, "prepare_decoder_input_ids_from_labels"):
        labels = inputs["labels"][:1]
        # Labels that count for nothing are padding, which no decoder is given.
        shift: Any = model.prepare_decoder_input_ids_from_labels
        text[WRITTEN] = shift(labels=labels[:, labels[0] >= 0])
    elif getattr(getattr(model, "config", None), "is_encoder_decoder", False):
        raise Unknown("the inputs have no decoder_input_ids")
    return text


def _by_token(value: Any, ids: Tensor) -> bool:
    return isinstance(value, Tensor) and value.shape[:2] == ids.shape


def with_padding(model: nn.Module, text: Mapping[str, Any]) -> dict[str, Any]:
    """A text with padding behind it, and the mask that says so.

    Raises:
        Unknown: the model takes no attention_mask, or has no room.
    """
    if REAL not in inspect.signature(model.forward).parameters:
        raise Unknown("the model takes no attention_mask")
    config = getattr(model, "config", None)
    ids = text[IDS]
    limit, count = getattr(config, "max_position_embeddings", None), ids.shape[1]
    if isinstance(limit, int):
        count = min(count, limit - APPENDED)
    if count < 1:
        raise Unknown("there is no room for padding")
    filler = getattr(config, "pad_token_id", None)
    if not isinstance(filler, int) or filler < 0:
        filler = 0
    padded = {}
    for name, value in text.items():
        padded[name] = value
        if _by_token(value, ids):
            tail = value.new_full((1, APPENDED, *value.shape[2:]), filler if name == IDS else 0)
            padded[name] = torch.cat((value[:, :count], tail), 1)
    real = torch.ones_like(padded[IDS])
    real[:, count:] = 0
    return {**padded, REAL: real}


def future(model: nn.Module, text: Mapping[str, Any]) -> Movement:
    """How far the outputs of all tokens but the last move when the last one is another.

    Raises:
        Unknown: a text of one token, or no output for each token.
    """
    name = IDS
    if WRITTEN in text:
        name = WRITTEN
    ids = text[name]
    if ids.shape[1] < 2:
        raise Unknown("the text has one token")
    changed = ids.clone()
    others = ids[0, :-1][ids[0, :-1] != ids[0, -1]]
    # One of its own tokens, which the model is known to take; where all are one, 0 or 1.
    changed[0, -1] = 1 - ids[0, -1].clamp(max=1)
    if len(others):
        changed[0, -1] = others[0]
    before = outputs(model, text, ids.shape[1])
    after = outputs(model, {**text, name: changed}, ids.shape[1])
    return _movement(before[:, :-1], after[:, :-1])


def padding(model: nn.Module, text: Mapping[str, Any], padded: Mapping[str, Any]) -> Movement:
    """How far the outputs of a text move when padding stands behind it.

    Raises:
        Unknown: no output for each token.
    """
    count = int(padded[REAL].sum())
    ids = padded[IDS]
    alone = {
        name: value[:, :count] if name != WRITTEN and _by_token(value, ids) else value
        for name, value in padded.items()
    }
    if WRITTEN in text:
        steps = text[WRITTEN].shape[1]
        return _movement(outputs(model, alone, steps), outputs(model, padded, steps))
    before = outputs(model, alone, count)
    after = outputs(model, padded, padded[IDS].shape[1])
    return _movement(before, after[:, :count])


def outputs(model: nn.Module, inputs: Mapping[str, Any], tokens: int) -> Tensor:
    """What the model gives for each token, `(1, tokens, …)`.

    Raises:
        Unknown: it gives nothing of this shape.
    """
    try:
        result = model(**inputs)
    # Another length or token may be none that a model takes: its own code says so, as it pleases.
    except Exception as error:
        reason = str(error).partition("\n")[0]
        raise Unknown(f"the model does not run so: {type(error).__name__}: {reason:.200}") from error
    for candidate in _tensors(result):
        if candidate.is_floating_point() and candidate.ndim >= 2 and candidate.shape[:2] == (1, tokens):
            return candidate
    raise Unknown("the model gives no output for each token")


def _tensors(result: Any) -> list[Tensor]:
    """The tensors of an output, those that are called so first."""
    if isinstance(result, Tensor):
        return [result]
    named = [getattr(result, name, None) for name in ("logits", "last_hidden_state", "start_logits")]
    values: Any = result
    if isinstance(result, Mapping):
        values = result.values()
    if not isinstance(values, list | tuple) and not isinstance(result, Mapping):
        values = ()
    return [value for value in (*named, *values) if isinstance(value, Tensor)]


def _movement(before: Tensor, after: Tensor) -> Movement:
    """The largest change, as a part of the largest output; up to the root of the precision it is rounding."""
    # Blocked outputs are −inf before and after, and have not moved.
    same = before == after
    moved = torch.where(same, 0.0, (after.double() - before.double()).abs())
    size = before.double()[before.isfinite()].abs()
    if not moved.numel() or not size.numel():
        raise Unknown("there is no finite output")
    scale = max(float(size.max()), 1e-30)
    return Movement(float(moved.max()) / scale, torch.finfo(before.dtype).eps ** 0.5)


def finite_parts(result: Any) -> list[Tensor]:
    """The tensors of an output that must be finite: not those in which −inf means blocked."""
    return [value for value in _tensors(result)[:1] if value.is_floating_point()]
