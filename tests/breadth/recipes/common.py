"""What recipes share: shapes of inputs, and how a model without a forward is run."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

WAY = "way"  # a key among the arguments: the function that runs the model with the others


def ids(length: int = 13, top: int = 60) -> Tensor:
    """Ordinary tokens of two texts."""
    return torch.randint(3, top, (2, length))


def mask(length: int, *real: int) -> Tensor:
    """1 for the real tokens of each row, 0 for padding on the right."""
    return (torch.arange(length) < torch.tensor(real)[:, None]).long()


def text(**more: Any) -> dict[str, Any]:
    """Two texts of 13 and 9 tokens."""
    return {"input_ids": ids(), "attention_mask": mask(13, 13, 9), **more}


def pixels(*size: int, frames: int = 0, channels: int = 3) -> Tensor:
    """Two pictures, or two films."""
    height, width = size if len(size) == 2 else (size[0], size[0])
    return torch.randn(2, *([frames] if frames else []), channels, height, width)


def with_images(feed: Any, token: int, count: int, **more: Any) -> dict[str, Any]:
    """Two texts with `count` tokens in each that stand for its picture."""
    words = ids()
    words = torch.cat((words[:, :2], torch.full((2, count), token), words[:, 2:]), 1)
    return {"input_ids": words, "attention_mask": mask(13 + count, 13 + count, 9 + count), **more}
