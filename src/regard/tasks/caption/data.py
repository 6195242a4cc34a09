"""The data of `caption`: handwritten digits on a canvas, and words that say how they lie to each other.

Knows scikit-learn's digits, which are held out, how scenes are drawn and described, and where each digit lies.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import affine_grid, grid_sample
from torch.utils.data import Dataset

from regard.errors import require
from regard.tasks.common.batches import IGNORED, pad_rows
from regard.tasks.common.split import held_out
from regard.tasks.common.tokenizer import END, Vocabulary

CANVAS, SIDE = 32, 8  # pixels of a canvas and of a digit, each way
FEWEST, MOST = 2, 4  # digits in a scene
# Digits in the smallest scenes to learn from: what a digit looks like is learned there first.
ALONE = 1
# Pixels by which two digits lie further apart one way than the other: no relation is in doubt.
CLEAR = 3
ONE_IN = 5  # drawings for each one that is held out
# How far a drawing is rotated (in radians) and sheared at most; it is stretched by half of that.
BEND = 0.2
NAMES = ("zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine")
RELATIONS = ("above", "left of", "right of")  # of a digit to the next one further down


@dataclass(frozen=True)
class Scene:
    """Digits on a canvas, in the order in which the caption names them.

    Attributes:
        digits: 0 to 9. samples: which of scikit-learn's digits each is. corners: (top, left) of each, in pixels.
    """

    digits: tuple[int, ...]
    samples: tuple[int, ...]
    corners: tuple[tuple[int, int], ...]

    @property
    def image(self) -> Tensor:
        """`(1, CANVAS, CANVAS)`, from 0 (paper) to 1 (ink)."""
        return self.drawn([_digits()[0][sample] for sample in self.samples])

    def drawn(self, digits: Iterable[Tensor]) -> Tensor:
        """The image with other drawings `(SIDE, SIDE)` of the same digits."""
        canvas = torch.zeros(1, CANVAS, CANVAS)
        for digit, (top, left) in zip(digits, self.corners, strict=True):
            canvas[0, top : top + SIDE, left : left + SIDE] = digit
        return canvas

    @property
    def words(self) -> tuple[str, ...]:
        """The caption: "a", "seven", "above", "a", "two". They are named from top to bottom."""
        caption = [*_article_and_name(self.digits[0])]
        for digit, above, below in zip(self.digits[1:], self.corners, self.corners[1:], strict=False):
            caption += [*relation(above, below).split(), *_article_and_name(digit)]
        return tuple(caption)

    def truth(self, patch: int) -> Tensor:
        """Which patches of the image the digit of each word lies on: bool `(words + 1, patches)`.

        A word's row is the query that writes it; the last one writes the end. Rows of other words are False.

        Args:
            patch: side of a square patch in pixels; it divides the canvas. Patches are in rows, from the top.
        """
        rows = torch.zeros(len(self.words) + 1, CANVAS, CANVAS, dtype=torch.bool)
        named = [i for i, word in enumerate(self.words) if word in NAMES]
        for row, (top, left) in zip(named, self.corners, strict=True):
            rows[row, top : top + SIDE, left : left + SIDE] = True
        squares = rows.unflatten(2, (-1, patch)).unflatten(1, (-1, patch))
        return squares.any(4).any(2).flatten(1)


def relation(one: tuple[int, int], other: tuple[int, int]) -> str:
    """How a digit lies to another one, not above it: in the direction in which they are further apart.

    Args:
        one, other: (top, left) corners of the two digits, in pixels.

    >>> relation((0, 0), (20, 5)), relation((0, 0), (5, 20)), relation((0, 20), (5, 0))
    ('above', 'left of', 'right of')
    """
    down, right = other[0] - one[0], other[1] - one[1]
    assert down >= 0, f"digits are named from top to bottom, got {one} before {other}"
    if down > abs(right):
        return "above"
    if right > 0:
        return "left of"
    return "right of"


def scenes(count: int, *, size: int | None = None, held: bool = False, seed: int = 0) -> list[Scene]:
    """Random scenes.

    Args:
        count: how many. size: digits in each; None: from two to four, all equally often.
        held: of drawings of digits that are held out, and are in no other scene.
        seed: of what is drawn.

    >>> (scene,) = scenes(1, size=2, held=True)
    >>> " ".join(scene.words), tuple(scene.image.shape)
    ('a seven above a three', (1, 32, 32))
    """
    generator = np.random.default_rng((seed, held, size or 0))
    return [
        _scene(generator, size or int(generator.integers(FEWEST, MOST + 1)), held=held) for _ in range(count)
    ]


class Scenes(Dataset):
    """Scenes as dicts of `pixel_values` `(1, CANVAS, CANVAS)` and `labels` `(tokens,)`, the caption and an end.

    Args:
        scenes: the scenes.
    """

    def __init__(self, scenes: Sequence[Scene]) -> None:
        self.scenes = scenes

    def __len__(self) -> int:
        return len(self.scenes)

    def __getitem__(self, index: int) -> dict[str, Tensor]:
        return _example(self.scenes[index], self.scenes[index].image)


class Lessons(Dataset):
    """Scenes to learn from, each made when it is asked for; some have a single digit.

    Each drawing is rotated, sheared, stretched, moved and inked a little, as there are few to learn from.

    Args:
        count: how many. seed: of what is drawn.
    """

    def __init__(self, count: int, seed: int = 0) -> None:
        self.count, self.seed = count, seed

    def __len__(self) -> int:
        return self.count

    def __getitem__(self, index: int) -> dict[str, Tensor]:
        scene, generator = self._drawn(index)
        return _example(scene, scene.drawn(_bent(scene.samples, generator)))

    def scene(self, index: int) -> Scene:
        """One of the scenes, as it was before its drawings were bent."""
        return self._drawn(index)[0]

    def _drawn(self, index: int) -> tuple[Scene, np.random.Generator]:
        """A scene, and the generator that goes on to bend its drawings."""
        # A generator for each index: an example is the same in whatever order examples are read.
        generator = np.random.default_rng((self.seed, index))
        return _scene(generator, int(generator.integers(ALONE, MOST + 1)), held=False), generator


@lru_cache
def vocabulary() -> Vocabulary:
    """Every word that a caption can have."""
    return Vocabulary(("a", "an", "of", *(relation.split()[0] for relation in RELATIONS), *NAMES))


def collate(examples: Sequence[dict[str, Any]]) -> dict[str, Tensor]:
    """Make one batch of examples.

    Returns:
        `pixel_values` `(batch, 1, CANVAS, CANVAS)`, and `labels` `(batch, tokens)`, −100 where padded.
    """
    return {
        "pixel_values": torch.stack([example["pixel_values"] for example in examples]),
        "labels": pad_rows([example["labels"] for example in examples], IGNORED),
    }


def _example(scene: Scene, image: Tensor) -> dict[str, Tensor]:
    return {"pixel_values": image, "labels": torch.tensor([*vocabulary().encode(scene.words), END])}


@lru_cache
def _digits() -> tuple[Tensor, tuple[int, ...]]:
    """scikit-learn's digits `(samples, 8, 8)` from 0 to 1 (Alpaydin and Kaynak 1998, UCI), and what they are."""
    digits = require("sklearn.datasets", extra="tasks").load_digits()
    # Pixels count the ink of 4 × 4 dots.
    return torch.from_numpy(digits.images).float() / 16, tuple(map(int, digits.target))


@lru_cache
def _samples(held: bool) -> np.ndarray:
    """Which of the digits are held out, or which are not."""
    return np.array([i for i in range(len(_digits()[1])) if held_out(f"digit {i}", ONE_IN) == held])


def learned_drawings() -> np.ndarray:
    """The drawings of digits that are not held out, `(samples, SIDE, SIDE)`, from 0 to 1."""
    return _digits()[0][_samples(False)].double().numpy()


def _bent(samples: tuple[int, ...], generator: np.random.Generator) -> Tensor:
    """The drawings `(samples, SIDE, SIDE)`, each bent in its own way."""
    angle, shear = generator.uniform(-BEND, BEND, (2, len(samples)))
    wide, high = generator.uniform(1 - BEND / 2, 1 + BEND / 2, (2, len(samples)))
    # In halves of a side, as affine_grid counts: about half a pixel.
    right, down = generator.uniform(-0.15, 0.15, (2, len(samples)))
    cos, sin = np.cos(angle), np.sin(angle)
    affine = np.array([[wide * cos, wide * (shear - sin), right], [high * sin, high * cos, down]])
    grid = affine_grid(
        torch.from_numpy(affine).float().permute(2, 0, 1), [len(samples), 1, SIDE, SIDE], align_corners=False
    )
    # Cubic, as a linear mean of pixels would leave drawings to learn from less sharp than those to be read.
    moved = grid_sample(_digits()[0][list(samples)][:, None], grid, mode="bicubic", align_corners=False)[:, 0]
    ink = torch.from_numpy(generator.uniform(0.8, 1.2, (len(samples), 1, 1))).float()
    # Bicubic interpolation overshoots, and more ink than full is none.
    return (moved * ink).clamp(0, 1)


def _article_and_name(digit: int) -> tuple[str, str]:
    if digit == 8:
        return "an", NAMES[digit]
    return "a", NAMES[digit]


def _scene(generator: np.random.Generator, size: int, *, held: bool) -> Scene:
    chosen = [int(sample) for sample in generator.choice(_samples(held), size, replace=False)]
    kinds = _digits()[1]
    # Corners are drawn until they fit, so that all scenes that fit are equally likely.
    while True:
        drawn = [(int(top), int(left)) for top, left in generator.integers(0, CANVAS - SIDE + 1, (size, 2))]
        top_to_bottom = sorted(zip(drawn, chosen, strict=True), key=lambda drawing: drawing[0])
        corners = tuple(corner for corner, _ in top_to_bottom)
        if _apart(corners) and all(map(_clear, corners, corners[1:])):
            samples = tuple(sample for _, sample in top_to_bottom)
            return Scene(tuple(kinds[sample] for sample in samples), samples, corners)


def _apart(corners: Sequence[tuple[int, int]]) -> bool:
    """Whether no two digits overlap."""
    pairs = [(one, other) for i, one in enumerate(corners) for other in corners[:i]]
    return all(max(abs(a - c), abs(b - d)) >= SIDE for (a, b), (c, d) in pairs)


def _clear(one: tuple[int, int], other: tuple[int, int]) -> bool:
    """Whether it is beyond doubt how one digit lies to another."""
    return abs(abs(one[0] - other[0]) - abs(one[1] - other[1])) >= CLEAR
