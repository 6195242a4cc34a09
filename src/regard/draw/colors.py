"""Color maps, how a weight becomes a color, and the bar that says so."""

from __future__ import annotations

import math
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from regard.draw import style
from regard.errors import ArgumentError, require
from regard.html import RAMP

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.colors import Colormap
    from matplotlib.figure import Figure

BAR = 0.14  # inches, the bar's width
NUMBERS = 0.42  # inches, its numbers
# Inches, a bar with room for its numbers.
SHORTEST = 1.1
SCALES = {"linear": 1.0, "sqrt": 0.5}  # exponents
SUFFIX = {"linear": "", "sqrt": ", square-root scale"}


@lru_cache(maxsize=1)
def sequential() -> Colormap:
    """White to ink by way of blue: always darker, so order survives in gray and in every color vision."""
    colors = require("matplotlib.colors", extra="draw")
    shades = colors.LinearSegmentedColormap.from_list("regard", list(RAMP))
    # Masked cells, which may not be attended, must not look like a weight of 0.
    return shades.with_extremes(bad=style.BLOCKED)


@lru_cache(maxsize=1)
def diverging() -> Colormap:
    """Blue for negative, near white for zero, vermilion for positive."""
    colors = require("matplotlib.colors", extra="draw")
    stops = ["#08406e", "#2f81ae", "#9cc8de", "#f7f7f6", "#f0b48b", "#d4682a", "#7d2c05"]
    return colors.LinearSegmentedColormap.from_list("regard-diverging", stops)


@lru_cache(maxsize=1)
def wash() -> Colormap:
    """The light part of `sequential`, for what lies under ink; nothing where the weight is 0."""
    colors = require("matplotlib.colors", extra="draw")
    stops = sequential()([0.57 * index / 255 for index in range(256)])
    # Weight 0 is clear, so that ink on paper without attention keeps its own color.
    stops[0, 3] = 0.0
    return colors.ListedColormap(stops, "regard-wash")


@lru_cache(maxsize=1)
def ink() -> Colormap:
    """From nothing to ink."""
    colors = require("matplotlib.colors", extra="draw")
    return colors.LinearSegmentedColormap.from_list("regard-ink", [(style.INK, 0.0), (style.INK, 1.0)])


def graded(count: int) -> list[Any]:
    """Colors for `count` things in order, from dark blue to a yellow that is still visible on white."""
    maps = require("matplotlib", extra="draw").colormaps["viridis"]
    # The last tenth of viridis is a yellow that is lost on white.
    return [maps(0.9 * index / max(count - 1, 1)) for index in range(count)]


def norm(scale: str, limit: float) -> Any:
    """From 0 … `limit` to 0 … 1.

    Raises:
        ArgumentError: there is no such scale, or the limit is not positive.
    """
    if scale not in SCALES:
        raise ArgumentError(f"scale must be one of {', '.join(map(repr, SCALES))}, got {scale!r}")
    if not limit > 0:
        raise ArgumentError(f"limit must be positive, got {limit!r}")
    return require("matplotlib.colors", extra="draw").PowerNorm(SCALES[scale], vmin=0.0, vmax=limit)


def span(low: float, high: float) -> Any:
    """From `low` … `high` to 0 … 1, evenly."""
    return require("matplotlib.colors", extra="draw").Normalize(low, high)


def powers(low: float, high: float) -> Any:
    """From `low` … `high`, both positive, to 0 … 1 in logarithms; what is less has the lightest color."""
    return require("matplotlib.colors", extra="draw").LogNorm(low, high, clip=True)


def ticks(scale: str, limit: float) -> list[float]:
    """Round numbers from 0 to `limit`, far enough from each other on the bar."""
    if scale == "linear":
        return even(0.0, limit)
    chosen = [0.0]
    # From the printed form, which is exact where the floor of a rounded logarithm may be a decade off.
    power = 10.0 ** int(f"{limit:e}".partition("e")[2])
    for factor in (0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5):
        tick = factor * power
        # Distances on the bar are those of square roots.
        if tick <= limit and (tick / limit) ** 0.5 - (chosen[-1] / limit) ** 0.5 >= 0.13:
            chosen.append(tick)
    return chosen


def even(low: float, high: float) -> list[float]:
    """Round numbers from `low` to `high`, evenly spaced."""
    locator = require("matplotlib.ticker", extra="draw").MaxNLocator(5, steps=[1, 2, 2.5, 5, 10])
    # Ticks at the very ends come out with rounding, and would be dropped.
    slack = 0.0001 * (high - low)
    return [float(t) for t in locator.tick_values(low, high) if low - slack <= t <= high + slack]


def decades(low: float, high: float) -> list[float]:
    """Powers of ten from `low` to `high`, at most seven; where there is one at most, twice and five times them too."""
    ends = math.floor(math.log10(low)), math.ceil(math.log10(high))
    inside = [10.0**p for p in range(ends[0], ends[1] + 1) if low * 0.999 <= 10.0**p <= high * 1.001]
    if len(inside) > 1:
        # Every second, third … decade, where there are more than seven.
        return inside[:: -(-len(inside) // 7)]
    finer = [factor * 10.0**p for p in range(ends[0], ends[1] + 1) for factor in (1, 2, 5)]
    return [tick for tick in finer if low * 0.999 <= tick <= high * 1.001]


def power(value: float) -> str:
    """A number on a logarithmic axis: as it is from 0.001 to 1000, else a power of ten where it is one."""
    exponent = round(math.log10(value))
    if 0.001 <= value <= 1000 or abs(value / 10.0**exponent - 1) > 1e-6:
        return f"{value:.4g}"
    # Unicode superscripts, as mathtext would bring another typeface.
    return "10" + str(exponent).translate(str.maketrans("-0123456789", "⁻⁰¹²³⁴⁵⁶⁷⁸⁹"))


def image(
    axes: Axes, values: Any, extent: tuple[float, float, float, float], norm: Any, colors: Any = None
) -> Any:
    """Cells of color that fill `extent` (left, right, bottom, top).

    Where cells are finer than pixels, values are averaged, not colors: no color shows that is not on the
    bar.
    """
    # Averaging RGBA would mix the two ends of a color map into a color that stands for nothing.
    return axes.imshow(
        values,
        cmap=colors or sequential(),
        norm=norm,
        extent=extent,
        aspect="auto",
        origin="upper",
        interpolation="auto",
        interpolation_stage="data",
    )


def number(value: float, digits: int = 4) -> str:
    """So many digits at most, with a real minus sign."""
    return f"{value:.{digits}g}".replace("-", "−")


def room(name: str, height: float) -> float:
    """Inches that a bar takes with its numbers, its name on its right, and the margin."""
    lines = _wrapped(name, height).count("\n") + 1
    return BAR + NUMBERS + lines * style.SMALL * 1.2 / style.POINTS + style.MARGIN


def _wrapped(name: str, height: float) -> str:
    return style.wrap(name, height * style.POINTS, style.SMALL)


def bar(
    figure: Figure, colors: Any, left: float, top: float, height: float, name: str, ticks: list[float]
) -> Axes:
    """A color bar at `left`, `top` inches, its name written upwards on its right; its axes."""
    axes = style.place(figure, left, top, BAR, height)
    axes.set_gid("color bar")
    figure.colorbar(colors, cax=axes, ticks=ticks).outline.set(edgecolor=style.FAINT, linewidth=0.6)
    axes.tick_params(axis="y", which="both", length=0, pad=3, labelcolor=style.INK)
    # Some norms bring minor ticks of their own.
    axes.minorticks_off()
    axes.set_yticks(ticks, [number(tick) for tick in ticks], fontproperties=style.font(style.SMALL))
    look = {"color": style.MUTED, "rotation": 90, "linespacing": 1.1, "va": "center", "ha": "left"}
    text = _wrapped(name, height)
    style.write_at(figure, left + BAR + NUMBERS, top + height / 2, text, style.SMALL, **look)
    return axes
