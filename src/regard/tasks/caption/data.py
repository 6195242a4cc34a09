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
from regard.tasks.common.split import held_out
from regard.tasks.common.tokenizer import END, Vocabulary
from regard.tasks.translate.pairs import IGNORED, padded

CANVAS, SIDE = 32, 8  # pixels of a canvas and of a digit, each way
FEWEST, MOST = 2, 4  # digits in a scene
ALONE = 1  # digits in the smallest scenes to learn from: what a digit looks like is learned there first
CLEAR = 3  # pixels by which two digits lie further apart one way than the other: no relation is in doubt
ONE_IN = 5  # digits that are held out
BEND = 0.2  # how far a drawing is turned (in radians) and sheared at most; it is stretched by half of that
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
        said = [*_named(self.digits[0])]
        for digit, one, other in zip(self.digits[1:], self.corners, self.corners[1:], strict=False):
            said += [*relation(one, other).split(), *_named(digit)]
        return tuple(said)

    def truth(self, patch: int) -> Tensor:
        """`(words + 1, patches)`: the square patches, in rows, that each word's digit lies on; none for other words.

        A word's row is the query that writes it; the last one writes the end.

        Args:
            patch: side of a patch in pixels; it divides the canvas.
        """
        rows = torch.zeros(len(self.words) + 1, CANVAS, CANVAS, dtype=torch.bool)
        named = [i for i, word in enumerate(self.words) if word in NAMES]
        for row, (top, left) in zip(named, self.corners, strict=True):
            rows[row, top : top + SIDE, left : left + SIDE] = True
        squares = rows.unflatten(2, (-1, patch)).unflatten(1, (-1, patch))
        return squares.any(4).any(2).flatten(1)


def relation(one: tuple[int, int], other: tuple[int, int]) -> str:
    """How a digit at the corner `one` lies to one at `other`, not above it: the way in which they are further apart."""
    down, right = other[0] - one[0], other[1] - one[1]
    assert down >= 0, f"digits are named from top to bottom, got {one} before {other}"
    if down > abs(right):
        return "above"
    return "left of" if right > 0 else "right of"


def scenes(count: int, *, size: int | None = None, held: bool = False, seed: int = 0) -> list[Scene]:
    """Scenes at random.

    Args:
        count: how many. size: digits in each; None: from two to four, all equally often.
        held: of digits, that is drawings, that are held out, and are in no other scene.
        seed: what is drawn.
    """
    draw = np.random.default_rng((seed, held, size or 0))
    return [_scene(draw, size or int(draw.integers(FEWEST, MOST + 1)), held=held) for _ in range(count)]


class Scenes(Dataset):
    """Scenes as dicts of `pixel_values` `(1, CANVAS, CANVAS)` and `labels` `(tokens,)`, the caption and an end.

    Args:
        scenes: the scenes.
    """

    def __init__(self, scenes: Sequence[Scene]) -> None:
        self.scenes = scenes

    def __len__(self) -> int:
        return len(self.scenes)

    def __getitem__(self, place: int) -> dict[str, Tensor]:
        return _example(self.scenes[place], self.scenes[place].image)


class Lessons(Dataset):
    """Scenes to learn from, each made when it is asked for; some have a single digit.

    Each drawing is turned, sheared, stretched, moved and inked a little, as there are few to learn from.

    Args:
        count: how many. seed: what is drawn.
    """

    def __init__(self, count: int, seed: int = 0) -> None:
        self.count, self.seed = count, seed

    def __len__(self) -> int:
        return self.count

    def __getitem__(self, place: int) -> dict[str, Tensor]:
        scene, draw = self._drawn(place)
        return _example(scene, scene.drawn(_bent(scene.samples, draw)))

    def scene(self, place: int) -> Scene:
        """One of the scenes, as it was before its drawings were bent."""
        return self._drawn(place)[0]

    def _drawn(self, place: int) -> tuple[Scene, np.random.Generator]:
        draw = np.random.default_rng((self.seed, place))
        return _scene(draw, int(draw.integers(ALONE, MOST + 1)), held=False), draw


@lru_cache
def vocabulary() -> Vocabulary:
    """Every word of a caption."""
    return Vocabulary(("a", "an", "of", *(relation.split()[0] for relation in RELATIONS), *NAMES))


def collate(examples: Sequence[dict[str, Any]]) -> dict[str, Tensor]:
    """One batch: `pixel_values` `(batch, 1, CANVAS, CANVAS)`, `labels` `(batch, tokens)` with −100 where padded."""
    return {
        "pixel_values": torch.stack([example["pixel_values"] for example in examples]),
        "labels": padded([example["labels"] for example in examples], IGNORED),
    }


def _example(scene: Scene, image: Tensor) -> dict[str, Tensor]:
    return {"pixel_values": image, "labels": torch.tensor([*vocabulary().encode(scene.words), END])}


@lru_cache
def _digits() -> tuple[Tensor, tuple[int, ...]]:
    """scikit-learn's digits `(samples, 8, 8)` from 0 to 1 (Alpaydin and Kaynak 1998, UCI), and what they are."""
    found = require("sklearn.datasets", extra="tasks").load_digits()
    return torch.from_numpy(found.images).float() / 16, tuple(map(int, found.target))


@lru_cache
def _samples(held: bool) -> np.ndarray:
    """Which of the digits are held out, or which are not."""
    return np.array([i for i in range(len(_digits()[1])) if held_out(f"digit {i}", ONE_IN) == held])


def learned_drawings() -> np.ndarray:
    """The drawings of digits that are not held out, `(samples, SIDE, SIDE)`, from 0 to 1."""
    return _digits()[0][_samples(False)].double().numpy()


def _bent(samples: tuple[int, ...], draw: np.random.Generator) -> Tensor:
    """The drawings `(samples, SIDE, SIDE)`, each bent in its own way."""
    turn, shear = draw.uniform(-BEND, BEND, (2, len(samples)))
    wide, high = draw.uniform(1 - BEND / 2, 1 + BEND / 2, (2, len(samples)))
    right, down = draw.uniform(-0.15, 0.15, (2, len(samples)))  # of half a side: about half a pixel
    cos, sin = np.cos(turn), np.sin(turn)
    affine = np.array([[wide * cos, wide * (shear - sin), right], [high * sin, high * cos, down]])
    grid = affine_grid(
        torch.from_numpy(affine).float().permute(2, 0, 1), [len(samples), 1, SIDE, SIDE], align_corners=False
    )
    # Cubic, as a linear mean of pixels would leave drawings to learn from less sharp than those to be read.
    moved = grid_sample(_digits()[0][list(samples)][:, None], grid, mode="bicubic", align_corners=False)[:, 0]
    ink = torch.from_numpy(draw.uniform(0.8, 1.2, (len(samples), 1, 1))).float()
    return (moved * ink).clamp(0, 1)


def _named(digit: int) -> tuple[str, str]:
    return "an" if digit == 8 else "a", NAMES[digit]


def _scene(draw: np.random.Generator, size: int, *, held: bool) -> Scene:
    chosen = [int(sample) for sample in draw.choice(_samples(held), size, replace=False)]
    while True:
        corners = [(int(top), int(left)) for top, left in draw.integers(0, CANVAS - SIDE + 1, (size, 2))]
        kinds = _digits()[1]
        named = sorted(zip(chosen, corners, strict=True), key=lambda each: each[1])
        places = [corner for _, corner in named]
        if not _apart(places) or not all(map(_clear, places, places[1:])):
            continue
        found = tuple(sample for sample, _ in named)
        return Scene(tuple(kinds[sample] for sample in found), found, tuple(places))


def _apart(corners: list[tuple[int, int]]) -> bool:
    """Whether no two digits overlap."""
    pairs = [(one, other) for i, one in enumerate(corners) for other in corners[:i]]
    return all(max(abs(a - c), abs(b - d)) >= SIDE for (a, b), (c, d) in pairs)


def _clear(one: tuple[int, int], other: tuple[int, int]) -> bool:
    """Whether it is beyond doubt how one digit lies to another."""
    return abs(abs(one[0] - other[0]) - abs(one[1] - other[1])) >= CLEAR
