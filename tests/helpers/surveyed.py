"""A small model of attention that reads texts, and the comparison of profiles to the last bit."""

import torch
from torch import nn

import regard as rg
from helpers.calls import difference


class Reader(nn.Module):
    """Attention that cannot read everything, and counts what it has read."""

    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.attention = rg.nn.MultiHeadAttention(12, 3)
        self.read = 0

    def forward(self, x):
        if bool((x > 1e3).any()):
            raise ValueError("a number is too large")
        self.read += len(x)
        return self.attention(x)


def arguments(texts):
    """A token for each letter, drawn from the letter; "large" is a word that cannot be read."""
    longest = max(map(len, texts))
    x = torch.zeros(len(texts), longest, 12)
    for row, text in enumerate(texts):
        for column, letter in enumerate(text):
            x[row, column] = torch.sin(torch.arange(12) * ord(letter))
        if "large" in text:
            x[row, 0, 0] = 1e6
    return {"x": x}


def same(a, b):
    """Assert that two profiles are equal to the last bit."""
    assert difference(vars(a), vars(b)) is None and list(a.layers) == list(b.layers)
