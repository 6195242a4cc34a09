"""From a number to a color: one hue from near white to ink, always darker, so that order survives in gray."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

RAMP = ("#fbfcfd", "#dbeaf2", "#a9d0e2", "#66abcb", "#2f81ae", "#175a8d", "#0d3766", "#071a3d")
"""Evenly spaced stops, interpolated in sRGB; `regard.draw` makes its color map of the same ones."""

LEVELS = 64  # shades that are told apart; indices from there on are the colors below
NONE, SOME, ALL, BLANK = range(LEVELS, LEVELS + 4)
INK, INK_LUMINANCE = "#1b2330", 0.017  # of text on light cells
TABLE_LEVELS = 45  # cells of a table stay below, where ink is no longer heavy

# Red, green, blue, opacity: on a light page as on a dark one, NONE is nearest to the page and ALL farthest from it.
CLEAR = ((128, 128, 128, 38), (63, 148, 196, 140), (47, 129, 174, 255), (0, 0, 0, 0))


def _palette() -> NDArray[np.uint8]:
    """`(LEVELS + 4, 4)`: red, green, blue and opacity of each index."""
    stops = np.array([[int(stop[at : at + 2], 16) for at in (1, 3, 5)] for stop in RAMP])
    at = np.linspace(0, len(RAMP) - 1, LEVELS)
    channels = [np.interp(at, np.arange(len(RAMP)), stops[:, channel]) for channel in range(3)]
    ramp = np.stack([*channels, np.full(LEVELS, 255)], 1)
    return np.concatenate([ramp, CLEAR]).round().astype(np.uint8)


PALETTE = _palette()
CSS = [f"rgb({red} {green} {blue}/{opacity / 255:.2g})" for red, green, blue, opacity in PALETTE.tolist()]
HEX = [f"#{red:02x}{green:02x}{blue:02x}" for red, green, blue, _ in PALETTE[:LEVELS].tolist()]


def levels(
    values: NDArray[np.floating], high: float | None = None, *, top: int = LEVELS - 1
) -> NDArray[np.uint8]:
    """The level of each value, evenly from 0 to `high`; BLANK where it is NaN or infinite.

    Args:
        values: of any shape.
        high: what has the darkest color, as has everything above; by default the largest finite value.
        top: the level of that color.
    """
    values = np.asarray(values, np.float64)
    finite = np.isfinite(values)
    if high is None:
        high = float(values[finite].max(initial=0.0))
    part = np.zeros_like(values)
    if high > 0:
        # What lies beyond either end has its color; divided by a tiny `high`, it would overflow.
        np.divide(values.clip(0, high), high, out=part, where=finite)
    level = np.round(part.clip(0, 1) * top).astype(np.uint8)
    return np.where(finite, level, np.uint8(BLANK))


def readable_on(level: int) -> str:
    """The color of text on this level: whichever of dark and white has the larger contrast ratio (WCAG 2)."""
    channels = PALETTE[level, :3] / 255
    linear = np.where(channels <= 0.04045, channels / 12.92, ((channels + 0.055) / 1.055) ** 2.4)
    luminance = float(linear @ (0.2126, 0.7152, 0.0722))
    if 1.05 / (luminance + 0.05) > (luminance + 0.05) / (INK_LUMINANCE + 0.05):
        return "#ffffff"
    return INK


def gradient(top: int) -> str:
    """The ramp up to a level, as CSS."""
    return f"linear-gradient(to right,{','.join(HEX[: top + 1 : max(1, top // 8)])})"
