"""Feature maps φ: vectors of numbers ≥ 0 whose products are weights, so that attention becomes linear in length.

Knows single tokens only; what is done with features is in `linear.py`.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn

from regard.checks.arguments import checked, sized
from regard.errors import ArgumentError, ShapeError


class Features(nn.Module):
    """Base of the feature maps. A new one has `forward`, from `(…, tokens, dim)` to `(…, tokens, features)`, all ≥ 0.

    Where features may become too large or small for their type, it has `split` besides.
    """

    def split(self, x: Tensor) -> tuple[Tensor, Tensor | None]:
        """φ(x) as numbers of a good size `(…, tokens, features)` and a logarithm `(…, tokens, 1)` for each token.

        φ(x) = numbers · e^logarithm; None stands for 0.
        """
        return self(x), None


class Elu(Features):
    """elu(x) + 1, number by number: eˣ below 0, x + 1 above (Katharopoulos et al. 2020, arXiv 2006.16236).

    Above 0 everywhere, also where elu(x) + 1 itself would be rounded to 0.

    Example:
        >>> Elu()(torch.randn(2, 4, 7, 8)).shape
        torch.Size([2, 4, 7, 8])
    """

    @checked
    def forward(self, x: Tensor) -> Tensor:
        """As many features as the vectors have numbers."""
        # Clamped before exp: e to a large number is infinite, and its gradient inf · 0.
        return x.clamp(max=0).exp() + x.relu()


class PositiveRandom(Features):
    """φ(x) = exp(ω·x' − |x'|²/2) / √num_features with random ω and x' = x / dim^¼ (Choromanski et al. 2021).

    arXiv 2009.14794.

    The mean of φ(q)·φ(k) over ω is exp(q·k / √dim): softmax attention, approximated without bias. Its error falls as
    1/√num_features, and grows steeply with |q + k|². Directions come in blocks that are orthogonal, which lessens it.

    Args:
        dim: of queries and keys, per head.
        num_features: how many features.
        seed: of the directions, which stay as they are until `redraw`; they are saved with the module.

    Example:
        >>> PositiveRandom(8, 64)(torch.randn(2, 4, 7, 8)).shape
        torch.Size([2, 4, 7, 64])
    """

    directions: Tensor

    @sized
    def __init__(self, dim: int, num_features: int, *, seed: int = 0) -> None:
        super().__init__()
        for name, size in (("dim", dim), ("num_features", num_features)):
            if size < 1:
                raise ArgumentError(f"{name} must be at least 1, got {size}")
        # Saved with the weights, as a model trained on these directions is another one on others.
        self.register_buffer("directions", _directions(num_features, dim, seed))

    def redraw(self, seed: int) -> None:
        """Take other directions."""
        num_features, dim = self.directions.shape
        self.directions.copy_(_directions(num_features, dim, seed))

    def split(self, x: Tensor) -> tuple[Tensor, Tensor | None]:
        """Numbers of at most 1/√num_features: the largest exponent of each token is its logarithm."""
        num_features, dim = self.directions.shape
        if x.shape[-1] != dim:
            raise ShapeError(f"vectors must have dim {dim}, as the directions have, got {tuple(x.shape)}")
        # Query and key share the scale 1/√dim, so each takes its root.
        x = x * dim**-0.25
        exponents = x @ self.directions.to(x.dtype).T - x.square().sum(-1, keepdim=True) / 2
        # A constant to autograd: it is divided out here and multiplied back by whoever takes the logarithm.
        largest = exponents.detach().amax(-1, keepdim=True)
        return (exponents - largest).exp() / math.sqrt(num_features), largest

    @checked
    def forward(self, x: Tensor) -> Tensor:
        """The features themselves, `(…, tokens, num_features)`."""
        numbers, logarithm = self.split(x)
        assert logarithm is not None
        return numbers * logarithm.exp()


def _directions(count: int, dim: int, seed: int) -> Tensor:
    """Normal vectors `(count, dim)`, orthogonal within each block of `dim`."""
    # On the CPU and by itself: a seed gives the same directions for every device, and torch's state stays.
    generator = torch.Generator().manual_seed(seed)
    drawn = torch.randn(-(-count // dim), dim, dim, generator=generator, dtype=torch.float64)
    frames, triangles = torch.linalg.qr(drawn)
    # The factorisation prefers one side of the sphere; the signs of its diagonal make it fair (Mezzadri 2007).
    frames = frames * triangles.diagonal(dim1=1, dim2=2).sign()[:, None]
    rows = frames.mT.flatten(0, 1)[:count]
    # Rows of a frame have length 1, normal vectors have not: with unit lengths the estimate would be biased.
    lengths = torch.randn(count, dim, generator=generator, dtype=torch.float64).norm(dim=1, keepdim=True)
    return (rows * lengths).to(torch.get_default_dtype())
