"""A drawing that is given shape by shape: texts, lines, rectangles, circles and images, as a figure.

Knows where on a page something stands; it does not know what it shows. The explorer's views are drawn so, for a PDF
whose text can be searched.
"""

from __future__ import annotations

import base64
import binascii
import math
import re
import unicodedata
from collections.abc import Sequence
from dataclasses import dataclass, field, fields
from io import BytesIO
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

import numpy as np

from regard.draw import style
from regard.errors import ArgumentError, require

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

# Points of a pixel: 96 of them make an inch.
POINT = 0.75
# Pixels of a sheet's side; 200 inches, the most that readers of PDF take, are more.
MOST_SIDE = 14_400.0
MOST_SHAPES = 40_000
# Pixels of a letter's height, beyond which fonts cannot be drawn.
MOST_SIZE = 2000.0
# Pixels of an image's box, below which its size is none.
LEAST_SIDE = 1e-6
# Pixels of an image: those of a map on the largest screens.
MOST_PIXELS = 1 << 24
COLOR = re.compile(r"#[0-9a-fA-F]{6}")
PNG = "data:image/png;base64,"


@dataclass(frozen=True)
class Text:
    """One line of text, whose baseline begins, ends or has its middle at `x`, `y`.

    Attributes:
        size: pixels. angle: degrees, clockwise.
        most: pixels that it may be wide; a wider one is set smaller. None: any.
    """

    x: float
    y: float
    text: str
    color: str
    size: float = 12.0
    anchor: Literal["start", "middle", "end"] = "start"
    angle: float = 0.0
    bold: bool = False
    most: float | None = None
    kind: Literal["text"] = "text"


@dataclass(frozen=True)
class Line:
    """A line through `points`, pairs of x and y."""

    points: list[tuple[float, float]]
    color: str
    width: float = 1.0
    opacity: float = 1.0
    dashed: bool = False
    kind: Literal["line"] = "line"


@dataclass(frozen=True)
class Rect:
    """A rectangle, filled, outlined or both."""

    x: float
    y: float
    width: float
    height: float
    fill: str | None = None
    stroke: str | None = None
    thickness: float = 1.0
    opacity: float = 1.0
    kind: Literal["rect"] = "rect"


@dataclass(frozen=True)
class Circle:
    """A circle about `x`, `y`."""

    x: float
    y: float
    radius: float
    fill: str | None = None
    stroke: str | None = None
    thickness: float = 1.0
    opacity: float = 1.0
    kind: Literal["circle"] = "circle"


@dataclass(frozen=True)
class Image:
    """A picture in a box.

    Attributes:
        data: a PNG, as a data address.
        shown: which part of its width and of its height the box holds, from the left and from above.
        smooth: whether pixels run into each other where it is enlarged.
    """

    x: float
    y: float
    width: float
    height: float
    data: str
    shown: tuple[float, float] = (1.0, 1.0)
    smooth: bool = False
    kind: Literal["image"] = "image"


Shape: TypeAlias = Text | Line | Rect | Circle | Image


@dataclass(frozen=True)
class Sheet:
    """What is drawn, in pixels from the upper left corner, the first shape lowest.

    Attributes:
        title: of the document, which is not drawn.
    """

    width: float
    height: float
    background: str
    shapes: Sequence[Shape] = field(default_factory=list)
    title: str = ""


def sheet(drawn: Sheet) -> Figure:
    """Draw the shapes of a sheet.

    Args:
        drawn: at most 40 000 shapes, on at most 14 400 × 14 400 pixels.

    Returns:
        A figure whose size in inches is that of the sheet at 96 pixels an inch.

    Raises:
        ArgumentError: too large a sheet, too many shapes, a number that is not finite or far outside the sheet, letters
            that are too large, an opacity that is not from 0 to 1, a color that is not `#rrggbb`, an image that is not
            a PNG.

    Example:
        >>> text = Text(10, 20, "entropy", "#1b2330")
        >>> sheet(Sheet(96, 48, "#ffffff", [text])).get_size_inches().tolist()
        [1.0, 0.5]
    """
    _check(drawn)
    figures = require("matplotlib.figure", extra="draw")
    size = (drawn.width * POINT / style.POINTS, drawn.height * POINT / style.POINTS)
    figure = figures.Figure(figsize=size, facecolor=drawn.background)
    axes = figure.add_axes((0, 0, 1, 1))
    axes.set_axis_off()
    for order, shape in enumerate(drawn.shapes):
        _DRAW[shape.kind](axes, shape, order)
    # Afterwards, as images move the limits.
    axes.set(xlim=(0, drawn.width), ylim=(drawn.height, 0), aspect="auto")
    return figure


def _check(drawn: Sheet) -> None:
    for name in ("width", "height"):
        value = getattr(drawn, name)
        if not 1 <= value <= MOST_SIDE:
            raise ArgumentError(f"a sheet's {name} must be from 1 to {MOST_SIDE:g} pixels, got {value:g}")
    if len(drawn.shapes) > MOST_SHAPES:
        raise ArgumentError(f"a sheet must have at most {MOST_SHAPES} shapes, got {len(drawn.shapes)}")
    _check_color("background", drawn.background)
    for index, shape in enumerate(drawn.shapes):
        for part in fields(shape):
            value = getattr(shape, part.name)
            label = f"shape {index}, {part.name}"
            if part.name in ("color", "fill", "stroke") and value is not None:
                _check_color(label, value)
            for number in np.ravel(value) if isinstance(value, float | int | list | tuple) else ():
                # Far outside the sheet nothing is seen, and numbers that large are a mistake.
                if not abs(number) <= 10 * MOST_SIDE:
                    raise ArgumentError(f"{label} must be a number of pixels, got {number}")
            if part.name == "opacity" and not 0 <= value <= 1:
                raise ArgumentError(f"{label} must be from 0 to 1, got {value:g}")
            if part.name == "size" and not 0 < value <= MOST_SIZE:
                raise ArgumentError(
                    f"{label} must be above 0 and at most {MOST_SIZE:g} pixels, got {value:g}"
                )


def _check_color(label: str, value: str) -> None:
    if not COLOR.fullmatch(value):
        raise ArgumentError(f"{label} must be a color as #rrggbb, got {value[:40]!r}")


def _text(axes: Axes, shape: Text, order: int) -> None:
    words = "".join(map(_drawable, shape.text))
    size = max(shape.size, 0.5) * POINT
    wide = style.measure(words, size, shape.bold)[0]
    # The browser that placed it may have narrower letters than this machine.
    if shape.most is not None and wide > shape.most * POINT > 0:
        size *= shape.most * POINT / wide
    axes.text(
        shape.x,
        shape.y,
        words,
        color=shape.color,
        fontproperties=style.font(size, shape.bold),
        ha={"start": "left", "middle": "center", "end": "right"}[shape.anchor],
        va="baseline",
        rotation=-shape.angle,
        rotation_mode="anchor",
        parse_math=False,
        zorder=order,
    )


def _drawable(character: str) -> str:
    """The character, or its number where no font of this machine has it."""
    if character == " " or (character.isprintable() and ord(character) in style.covered()):
        return character
    # Thin blanks between thousands, and others that `isprintable` leaves out.
    if unicodedata.category(character) == "Zs":
        return " "
    return character.encode("unicode_escape").decode("ascii")


def _line(axes: Axes, shape: Line, order: int) -> None:
    if len(shape.points) < 2:
        raise ArgumentError(f"a line must have at least 2 points, got {len(shape.points)}")
    x, y = zip(*shape.points, strict=True)
    dashes: Any = "solid"
    if shape.dashed:
        dashes = (0, (4, 3))
    axes.plot(
        x,
        y,
        color=shape.color,
        linewidth=shape.width * POINT,
        alpha=shape.opacity,
        linestyle=dashes,
        solid_capstyle="butt",
        zorder=order,
        clip_on=False,
    )


def _rect(axes: Axes, shape: Rect, order: int) -> None:
    patches = require("matplotlib.patches", extra="draw")
    outline = patches.Rectangle((shape.x, shape.y), shape.width, shape.height, **_look(shape), zorder=order)
    axes.add_patch(outline)


def _circle(axes: Axes, shape: Circle, order: int) -> None:
    patches = require("matplotlib.patches", extra="draw")
    axes.add_patch(patches.Circle((shape.x, shape.y), shape.radius, **_look(shape), zorder=order))


def _look(shape: Rect | Circle) -> dict[str, Any]:
    stroke = shape.stroke or "none"
    thickness = 0.0
    if shape.stroke is not None:
        thickness = shape.thickness * POINT
    # A filled shape without a line would else be drawn with one of the default width.
    return {
        "facecolor": shape.fill or "none",
        "edgecolor": stroke,
        "linewidth": thickness,
        "alpha": shape.opacity,
    }


def _image(axes: Axes, shape: Image, order: int) -> None:
    if min(shape.width, shape.height, *shape.shown) < LEAST_SIDE or max(shape.shown) > 1:
        raise ArgumentError(
            "an image must have a width and a height, and show a part of it, above 0 and at most 1"
        )
    patches = require("matplotlib.patches", extra="draw")
    wide, tall = shape.width / shape.shown[0], shape.height / shape.shown[1]
    # As it is, where cells are to stay sharp: a reader of the file enlarges it.
    interpolation = "none"
    if shape.smooth:
        interpolation = "bilinear"
    image = axes.imshow(
        pixels(shape.data),
        extent=(shape.x, shape.x + wide, shape.y + tall, shape.y),
        interpolation=interpolation,
        aspect="auto",
        zorder=order,
    )
    box = patches.Rectangle((shape.x, shape.y), shape.width, shape.height, transform=axes.transData)
    image.set_clip_path(box)


def pixels(data: str) -> np.ndarray:
    """The pixels of a PNG in a data address: `(rows, columns, 4)`, uint8.

    Raises:
        ArgumentError: it is no PNG, or has more than 2²⁴ pixels.
    """
    pillow = require("PIL.Image", extra="draw")
    try:
        if not data.startswith(PNG):
            raise ValueError("another address")
        image = pillow.open(BytesIO(base64.b64decode(data[len(PNG) :], validate=True)), formats=("PNG",))
        # Before anything is unpacked: a small file may say that it is huge.
        if math.prod(image.size) > MOST_PIXELS:
            raise ArgumentError(
                f"an image must have at most {MOST_PIXELS} pixels, got {math.prod(image.size)}"
            )
        return np.asarray(image.convert("RGBA"))
    except ArgumentError:
        raise
    except (ValueError, OSError, SyntaxError, binascii.Error, pillow.DecompressionBombError) as error:
        raise ArgumentError(f"an image must be a PNG in a data address, got {data[:40]!r}") from error


_DRAW: dict[str, Any] = {"text": _text, "line": _line, "rect": _rect, "circle": _circle, "image": _image}
