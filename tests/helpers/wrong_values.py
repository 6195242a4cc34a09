"""Values of every kind that no argument, or hardly any, may have: what a sweep of wrong arguments hands over."""

from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from torch import nn

import regard as rg

WRONG: dict[str, Callable[[], Any]] = {
    "None": lambda: None,
    "text": lambda: "a",
    "no text": lambda: "",
    "bytes": lambda: b"a",
    "True": lambda: True,
    "fraction": lambda: 2.5,
    "negative": lambda: -1,
    "zero": lambda: 0,
    "huge": lambda: 10**9,
    "beyond": lambda: 10**30,
    "NaN": lambda: float("nan"),
    "infinite": lambda: float("inf"),
    "of numpy": lambda: np.float32("nan"),
    "empty list": lambda: [],
    "list": lambda: [1, 2],
    "texts": lambda: ["a"],
    "nested": lambda: [[1], [2, 3]],
    "dict": lambda: {"a": 1},
    "object": object,
    "function": lambda: len,
    "type": lambda: int,
    "whole tensor": lambda: torch.arange(3),
    "five axes": lambda: torch.ones(1, 2, 3, 2, 1),
    "no axis": lambda: torch.tensor(0.5),
    "empty tensor": lambda: torch.zeros(0),
    "truths": lambda: torch.tensor([True, False]),
    "complex": lambda: torch.ones(3, 5, dtype=torch.complex64),
    "learned": lambda: torch.ones(3, 5, requires_grad=True),
    "nowhere": lambda: torch.ones(3, 5, device="meta"),
    "broken": lambda: torch.full((1, 2, 5, 4), torch.nan),
    "mask": rg.causal,
    "module": lambda: nn.Linear(2, 2),
}
