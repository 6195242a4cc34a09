"""What a figure shows, read back from it: its texts, and whether they touch or leave the page."""

from __future__ import annotations

import warnings

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.text import Text
from matplotlib.transforms import Bbox

READABLE = 5.9  # points
SLACK = 0.75  # pixels: boxes may share an edge, and the renderer rounds
WORDS = (
    "The", " quick", " brown", "fox", " internationalisation", "pneumonoultramicroscopicsilicovolcano",
    "\n", "\t", " ", "        ", "(", ")", ",", "__init__", "$x^2$", "##ing", "<|endoftext|>", "gjpqy|",
    "ÀÉÎ", "Привет", "שלום", "e\u0301", "中文", "😀", "\x00",
)  # fmt: skip


def tokens(count: int) -> list[str]:
    """Tokens of every kind: long, blank, of other scripts, with signs that mean something to matplotlib."""
    return [WORDS[(7 * index) % len(WORDS)] for index in range(count)]


def weights(*shape: int, causal: bool = False) -> np.ndarray:
    """Random attention weights; each row sums to 1."""
    scores = 2 * np.random.default_rng(3).normal(size=shape)
    if causal:
        scores = np.where(np.tri(*shape[-2:], dtype=bool), scores, -np.inf)
    exp = np.exp(scores - scores.max(-1, keepdims=True))
    return exp / exp.sum(-1, keepdims=True)


def texts(figure: Figure) -> list[Text]:
    """Every text that is drawn, tick labels included."""
    figure.draw_without_rendering()
    hidden = {id(text) for axes in figure.axes for text in _hidden(axes)}
    found = [text for text in figure.findobj(Text) if text.get_visible() and text.get_text().strip()]
    return [text for text in found if id(text) not in hidden]


def _hidden(axes: Axes) -> list[Text]:
    """Tick labels that are not drawn: of axes that are off, and of places beyond their ends."""
    hidden = []
    for axis in (axes.xaxis, axes.yaxis):
        low, high = sorted(axis.get_view_interval())
        slack = 1e-6 * (high - low)
        for tick in (*axis.get_major_ticks(), *axis.get_minor_ticks()):
            if not axes.axison or not low - slack <= tick.get_loc() <= high + slack:
                hidden += [tick.label1, tick.label2]
    return hidden


def words(figure: Figure) -> list[str]:
    """What these texts say, line breaks as spaces."""
    return [text.get_text().replace("\n", " ") for text in texts(figure)]


def box(text: Text) -> Bbox:
    """Where a text stands, in pixels."""
    return text.get_window_extent(text.get_figure().canvas.get_renderer())


def overlaps(figure: Figure) -> list[tuple[str, str]]:
    """Pairs of texts that touch."""
    found = texts(figure)
    low, high = (np.array([getattr(box(text), end) for text in found]) for end in ("min", "max"))
    shared = np.minimum(high[:, None], high[None]) - np.maximum(low[:, None], low[None])
    pairs = np.argwhere(np.triu((shared > SLACK).all(-1), 1))
    return [(found[one].get_text(), found[two].get_text()) for one, two in pairs]


def outside(figure: Figure) -> list[str]:
    """Texts that leave the page."""
    page = figure.bbox.padded(SLACK)
    return [text.get_text() for text in texts(figure) if not _within(page, box(text))]


def _within(page: Bbox, inner: Bbox) -> bool:
    return bool((page.min <= inner.min).all() and (inner.max <= page.max).all())


def axes_of(figure: Figure, gid: str) -> list[Axes]:
    """The axes that are marked `gid`."""
    return [axes for axes in figure.axes if axes.get_gid() == gid]


def ticks(axes: Axes, name: str) -> list[str]:
    """The labels of the axis `name` ("x" or "y"), in the order of their places, both tiers."""
    axis = getattr(axes, f"{name}axis")
    every = [*axis.get_major_ticks(), *axis.get_minor_ticks()]
    placed = [(tick.get_loc(), text) for tick in every for text in (tick.label1, tick.label2)]
    return [
        text.get_text()
        for _, text in sorted(placed, key=lambda p: p[0])
        if text.get_visible() and text.get_text()
    ]


def pixels(figure: Figure) -> np.ndarray:
    """The figure as it looks, `(height, width, 4)`; a glyph that no font has is an error."""
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        figure.canvas.draw()
    return np.asarray(figure.canvas.buffer_rgba()).copy()


def faults(figure: Figure) -> list[str]:
    """Texts that touch, leave the page or are too small to read; a glyph that no font has is an error."""
    pixels(figure)
    small = [f"{text.get_text()!r} is small" for text in texts(figure) if text.get_fontsize() < READABLE]
    off = [f"{text!r} leaves the page" for text in outside(figure)]
    return small + off + [f"{one!r} touches {two!r}" for one, two in overlaps(figure)]
