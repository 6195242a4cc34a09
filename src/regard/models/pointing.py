"""An encoder whose only answer is where one last query looks: attention that is trained to choose a place."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from transformers.modeling_outputs import ModelOutput

from regard.attention import attend
from regard.errors import ShapeError
from regard.masks import dense
from regard.models.base import Model, new_projection, refuse, returning
from regard.models.config import EncoderConfig
from regard.models.encoder import EncoderModel
from regard.spec import SpecArguments
from regard.watch.hooks.own import Handed, hand_over


@dataclass
class PointingOutput(ModelOutput):  # type: ignore[misc]  # typed on their side only
    """`loss`; and what the query reads: `gained` `(batch,)` with labels, else `pooled` `(batch, hidden_size)`."""

    loss: Tensor | None = None
    gained: Tensor | None = None
    pooled: Tensor | None = None


class EncoderForPointing(Model):
    """A place in a text: one learned query attends to some of its tokens (after Vinyals et al. 2015, pointer networks).

    It learns from what each place is worth. The values that its query reads are then these gains, so its output is the
    gain to be expected of a place drawn from its weights, and the loss is minus that: no weight is ever stored.

    Args:
        config: `EncoderConfig`.
    """

    config_class = EncoderConfig
    base_model_prefix = "encoder"
    accepts_loss_kwargs = False  # a mean over rows: Trainer divides it where batches are accumulated

    def __init__(self, config: EncoderConfig) -> None:
        super().__init__(config)
        self.encoder = EncoderModel(config)
        self.pointer = Pointer(config.hidden_size)
        self._tie("encoder.embedding")
        self.post_init()

    @returning
    def forward(
        self,
        input_ids: Tensor,
        places: Tensor,
        attention_mask: Tensor | None = None,
        token_type_ids: Tensor | None = None,
        labels: Tensor | None = None,
        **kwargs: Any,
    ) -> PointingOutput:
        """Where to look, which a watch sees as the call of `pointer`; the loss where `labels` are given.

        Args:
            input_ids, attention_mask, token_type_ids: as in `EncoderModel`.
            places: bool `(batch, tokens)`, the tokens that may be chosen, one at least in each row.
            labels: `(batch, tokens)`, what each place is worth.

        Raises:
            ShapeError: places or labels of another shape.
        """
        refuse(kwargs)
        for name, tensor in (("places", places), ("labels", labels)):
            if tensor is not None and tensor.shape != input_ids.shape:
                raise ShapeError(f"{name} must be {tuple(input_ids.shape)}, got {tuple(tensor.shape)}")
        hidden = self.encoder(input_ids, attention_mask, token_type_ids).last_hidden_state
        if labels is None:
            # Nothing to gain is known: the query reads the states themselves.
            return PointingOutput(pooled=self.pointer(hidden, places, hidden))
        gained = self.pointer(hidden, places, labels[..., None].to(hidden.dtype))[:, 0]
        return PointingOutput(loss=-gained.mean(), gained=gained)


class Pointer(nn.Module):
    """One query that asks all tokens the same.

    Args:
        hidden_size: of the tokens' states.
    """

    def __init__(self, hidden_size: int) -> None:
        super().__init__()
        self.query = nn.Parameter(torch.zeros(hidden_size))
        nn.init.normal_(self.query)
        self.key = new_projection(hidden_size, hidden_size)
        nn.init.xavier_uniform_(self.key.weight)

    def forward(self, hidden: Tensor, places: Tensor, values: Tensor) -> Tensor:
        """What the query reads of `values` `(batch, tokens, …)` where `places` are: `(batch, …)`."""
        query = self.query.to(hidden.dtype).expand(hidden.shape[0], 1, 1, -1)
        key, value, mask = self.key(hidden)[:, None], values[:, None], dense(keep=places[:, None, None])
        read = hand_over(
            (hidden, places, values),
            lambda: attend(query, key, value, mask=mask),
            lambda output: Handed(
                query=query, key=key, value=value, output=output, is_cross=True, spec=SpecArguments(mask=mask)
            ),
        )
        return read[:, 0, 0]
