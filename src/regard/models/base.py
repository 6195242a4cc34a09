"""What the models share: how weights start, checkpoints within layers, losses, and targets moved by one token.

Everything else that a Hugging Face model can do is `PreTrainedModel`'s.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, ClassVar, TypeVar

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from transformers import PreTrainedModel
from transformers.utils.generic import can_return_tuple

from regard.errors import ArgumentError
from regard.nn.init import SMALL
from regard.nn.layers import Layer

IGNORED = -100  # a label that no loss looks at
Forward = TypeVar("Forward", bound=Callable[..., Any])


class Model(PreTrainedModel):  # type: ignore[misc]  # typed on their side only
    """Base of the models: a `PreTrainedModel` whose blocks are those of `regard.nn`, so that `rg.watch` sees them."""

    supports_gradient_checkpointing = True
    # Trainer then says how many labels there are in all accumulated batches together.
    accepts_loss_kwargs = True
    main_input_name = "input_ids"
    # A residual adds what both ends hold: `device_map` keeps each layer on one device.
    _no_split_modules: ClassVar[list[str]] = ["EncoderLayer", "DecoderLayer"]
    _complete = False
    # A new model to take missing weights from; in a tuple, as a module that is an attribute becomes a submodule.
    _new: tuple[nn.Module, ...] = ()
    _tables: tuple[str, ...] = ()  # where the embeddings of tokens are

    def post_init(self) -> None:
        """What `PreTrainedModel` does when all modules are there; they have drawn their own weights by then."""
        super().post_init()
        self._complete = True

    def _tie(self, *tables: str) -> None:
        """Name the embeddings whose `tokens` are one table; `lm_head` is that too where the config says so."""
        self._tables = tables
        shared = [f"{table}.tokens.weight" for table in tables]
        if hasattr(self, "lm_head") and self.config.tie_word_embeddings:
            shared.append("lm_head.weight")
        self._tied_weights_keys = dict.fromkeys(shared[1:], shared[0])

    def get_expanded_tied_weights_keys(self, all_submodels: bool = False) -> dict[str, str]:
        """Which weights are which others; parts of a model tie nothing by themselves."""
        return dict(self._tied_weights_keys or {})

    def initialize_weights(self) -> None:
        """Give every module what a checkpoint lacks."""
        super().initialize_weights()
        for part in self.modules():
            if isinstance(part, Model):
                # It has served its purpose, and takes as much memory as the model.
                part._new = ()

    @torch.no_grad()
    def _init_weights(self, module: nn.Module) -> None:
        """Give a module what a checkpoint lacks: its weights in a new model."""
        # transformers calls this from within `__init__` as well, when modules have just drawn their own weights.
        if not self._complete:
            return
        name = next((name for name, part in self.named_modules() if part is module), None)
        if name is None:  # a table or a projection that was resized
            nn.init.normal_(module.get_parameter("weight"), std=SMALL)
            return
        # A whole new model, as modules draw their weights in their constructors and nowhere else.
        self._new = self._new or (type(self)(self.config),)
        new = self._new[0].get_submodule(name)
        tensors = (*module.named_parameters(recurse=False), *module.named_buffers(recurse=False))
        for key, tensor in tensors:
            # transformers marks what came from the checkpoint.
            if not getattr(tensor, "_is_hf_initialized", False):
                tensor.copy_(getattr(new, key))

    def _set_gradient_checkpointing(
        self, enable: bool = True, gradient_checkpointing_func: object = None, every_n_layers: int = 1
    ) -> None:
        """Checkpoint every n-th layer; how is the layer's business, without reentrance."""
        layers = [part for part in self.modules() if isinstance(part, Layer)]
        for index, layer in enumerate(layers):
            layer.checkpoint = enable and index % every_n_layers == 0
        self.gradient_checkpointing = enable

    def get_input_embeddings(self) -> nn.Module:
        """The table of tokens."""
        if not self._tables:
            return super().get_input_embeddings()
        return self.get_submodule(self._tables[0]).get_submodule("tokens")

    def set_input_embeddings(self, value: nn.Module) -> None:
        """Another table of tokens."""
        # Tables that are tied are one parameter: a resized one takes the place of each.
        for table in self._tables:
            self.get_submodule(table).add_module("tokens", value)


def returning(forward: Forward) -> Forward:
    """A `forward` that gives a tuple where `return_dict=False`."""
    return can_return_tuple(forward)


def refuse(kwargs: dict[str, Any]) -> None:
    """Raise where more is asked of a `forward` than the model gives.

    Raises:
        ArgumentError: attention weights or hidden states are wanted, or a keyword has no meaning here.
    """
    for name, value in kwargs.items():
        if name == "output_attentions" and value:
            raise ArgumentError(
                "output_attentions must be left out, as weights are n × n and never stored: "
                "run the model within rg.watch(model)"
            )
        if name == "output_hidden_states" and value:
            raise ArgumentError(
                "output_hidden_states must be left out: hook the layers that you want to look at"
            )
        if name not in ("output_attentions", "output_hidden_states") and value is not None:
            raise ArgumentError(f"there must be no keyword {name!r}, got {type(value).__name__}")


def new_projection(hidden_size: int, outputs: int, *, bias: bool = False) -> nn.Linear:
    """A projection from hidden states to scores, with small weights."""
    projection = nn.Linear(hidden_size, outputs, bias)
    nn.init.normal_(projection.weight, std=SMALL)
    if bias:
        nn.init.zeros_(projection.bias)
    return projection


def cross_entropy(logits: Tensor, labels: Tensor, count: Tensor | int | None = None) -> Tensor:
    """Mean of −log softmax(logits)[label] over the labels that are not −100, in nats; 0 where there are none.

    Args:
        logits: `(batch, tokens, vocab_size)`.
        labels: `(batch, tokens)`.
        count: what the sum is divided by in place of their number (Trainer's `num_items_in_batch`).
    """
    # bfloat16 holds 8 bits: the sum of a vocabulary's exponentials would be wrong by percents.
    exact = logits.to(torch.promote_types(logits.dtype, torch.float32)).flatten(0, 1)
    # A sum: Trainer divides by the labels of all accumulated batches, not by those of this one.
    total = F.cross_entropy(exact, labels.to(logits.device).flatten(), ignore_index=IGNORED, reduction="sum")
    if count is None:
        # Without labels the sum is 0, and 0 / 0 would be NaN.
        count = (labels != IGNORED).sum().clamp(min=1)
    if isinstance(count, Tensor):
        # Of a model that is split, the last layer may be on another device than the count.
        count = count.to(total.device)
    return total / count


def next_tokens(labels: Tensor) -> Tensor:
    """Labels `(batch, tokens)` where each token is to predict the next one; the last has none."""
    return F.pad(labels[:, 1:], (0, 1), value=IGNORED)


def shift_right(labels: Tensor, start: int | None, pad: int | None) -> Tensor:
    """Shift right: the start token, then `labels[:-1]`.

    Args:
        labels: `(batch, tokens)`; −100 becomes padding.
        start: `config.decoder_start_token_id`. pad: `config.pad_token_id`; None: any token, as no loss looks there.

    Raises:
        ArgumentError: no start token.
    """
    if start is None:
        raise ArgumentError("config.decoder_start_token_id must be set to train on labels, got None")
    if pad is None:
        pad = start
    shifted = F.pad(labels[:, :-1], (1, 0), value=start)
    # −100 has no embedding; what stands there does not matter, as no loss follows it.
    return shifted.masked_fill(shifted == IGNORED, pad)
