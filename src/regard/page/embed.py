"""Figures as pictures within a page: an `<img>` that holds all of itself, and what the figure says in words.

Knows matplotlib's figures and what a page may weigh; it does not know what they show.
"""

from __future__ import annotations

import base64
from collections.abc import Sequence
from io import BytesIO
from typing import TYPE_CHECKING, Any

from regard.errors import ArgumentError, require
from regard.html import text

if TYPE_CHECKING:
    from matplotlib.figure import Figure
    from matplotlib.text import Text

CSS_PIXELS = 96  # in an inch
# Pixels: a picture and its caption are seen at a glance.
TALLEST = 760
# Dots in an inch, for screens of two dots a pixel.
SHARP = 2 * CSS_PIXELS
# Bytes up to which a figure stays lines and letters, which are sharp at every size.
MOST_SVG = 250_000
# Dots in an inch of a small picture.
SMALL = 132
# Characters of what a figure says.
WORDS = 600

# Letters as outlines, so that no font is needed; no file beside the SVG; the sheet as wide as the figure says.
_WHOLE = {
    "svg.fonttype": "path",
    "svg.image_inline": True,
    "svg.hashsalt": "regard",
    "savefig.bbox": None,
    "savefig.facecolor": "auto",
}


def figures(pairs: Sequence[tuple[str, Figure]]) -> str:
    """Pictures with their captions, as one block of a page; nothing where there are none.

    Raises:
        ArgumentError: something else than pairs of a caption and a figure of matplotlib.
    """
    for pair in pairs:
        if not (
            isinstance(pair, tuple) and len(pair) == 2 and isinstance(pair[0], str) and _is_figure(pair[1])
        ):
            raise ArgumentError(
                f"figures must be pairs of a caption and a figure of matplotlib, got {type(pair).__name__} {pair!r:.80}"
            )
    shown = "".join(figure(plot, caption) for caption, plot in pairs)
    if shown:
        return f'<div class="figures">{shown}</div>'
    return ""


def figure(plot: Figure, caption: str, *, alt: str = "", small: bool = False) -> str:
    """A `<figure>`: its picture, and its caption below.

    Args:
        caption: not yet escaped.
        alt: for who cannot see it; "": the words that stand in the figure.
        small: 256 colors and fewer dots, for a page with many of them.
    """
    across, down = (CSS_PIXELS * inches for inches in plot.get_size_inches())
    shown = min(1, TALLEST / down)
    if small:
        kind, content = "png", _palette(plot)
    else:
        kind, content = _best(plot)
    # Within the page's policy: img-src allows data: and nothing else.
    address = f"data:image/{kind};base64,{base64.b64encode(content).decode('ascii')}"
    size = f'width="{shown * across:.0f}" height="{shown * down:.0f}"'
    below = ""
    if caption:
        below = f"<figcaption>{text(caption)}</figcaption>"
    return f'<figure><img src="{address}" {size} alt="{text(alt or said(plot) or caption)}">{below}</figure>'


def said(plot: Figure) -> str:
    """What a figure says in words: its titles, notes, names of axes and of lines; numbers and ticks are left out."""
    texts: list[Text] = [*plot.texts]
    if plot._suptitle:
        texts.insert(0, plot._suptitle)
    for axes in plot.axes:
        texts += [axes.title, axes.xaxis.label, axes.yaxis.label, *axes.texts]
    # Text in legends is not among the texts of figure or axes.
    for legend in (*plot.legends, *(axes.get_legend() for axes in plot.axes)):
        if legend:
            texts += legend.get_texts()
    lines = (" ".join(label.get_text().split()) for label in texts if label.get_visible())
    spoken = [line for line in dict.fromkeys(lines) if any(letter.isalpha() for letter in line)]
    words = ". ".join(line.rstrip(".") for line in spoken)
    if len(words) <= WORDS:
        return words
    return f"{words[: WORDS - 1].rstrip()}…"


def _is_figure(plot: Any) -> bool:
    return isinstance(plot, require("matplotlib.figure", extra="draw").Figure)


def _best(plot: Figure) -> tuple[str, bytes]:
    """SVG where it is small, else PNG."""
    drawn = _saved(plot, "svg", SHARP)
    # Measured after drawing: how long an SVG gets cannot be told from the figure.
    if len(drawn) <= MOST_SVG:
        return ("svg+xml", drawn)
    return ("png", _saved(plot, "png", SHARP))


def _palette(plot: Figure) -> bytes:
    """A PNG of 256 colors, those that the figure has most of."""
    images = require("PIL.Image", extra="draw")
    colors = images.open(BytesIO(_saved(plot, "png", SMALL))).convert("RGB")
    packed = BytesIO()
    colors.quantize(256, dither=images.Dither.NONE).save(packed, format="png", optimize=True)
    return packed.getvalue()


def _saved(plot: Figure, kind: str, dots: int) -> bytes:
    content = BytesIO()
    # A date would make two pages of the same record differ.
    undated = {}
    if kind == "svg":
        undated = {"metadata": {"Date": None}}
    # Settings hold for this file alone, whatever style the session has on.
    with require("matplotlib", extra="draw").rc_context(_WHOLE):
        plot.savefig(content, format=kind, dpi=dots, **undated)
    return content.getvalue()
