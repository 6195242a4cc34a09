"""Colors, type and figures measured in inches. Knows nothing of attention.

Everything is set on the figure itself and nothing through rcParams, so a figure looks the same whatever style
the caller's session has on, and no global state is touched.
"""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING, Any

from regard.errors import require

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure
    from matplotlib.font_manager import FontProperties
    from matplotlib.text import Text

INK, MUTED, FAINT, RULE, BLOCKED = "#1b2330", "#5f6b7a", "#9aa5b1", "#dde2e8", "#e3e5e9"

# Okabe and Ito's colors, told apart by every kind of color vision; less their yellow, too pale on white.
PALETTE = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#56B4E9", "#E69F00", "#4D4D4D")

# Arial and Liberation Sans have the same widths; DejaVu Sans comes with matplotlib and has what they lack.
FAMILIES = ("Arial", "Liberation Sans", "DejaVu Sans")

# Outline fonts with the scripts that DejaVu Sans lacks: those that this machine has are used, glyph by glyph.
WIDE_FAMILIES = (
    "Noto Sans CJK SC",
    "Noto Sans CJK JP",
    "Noto Sans CJK KR",
    "Noto Sans SC",
    "Noto Sans JP",
    "Noto Sans KR",
    "Source Han Sans SC",
    "Source Han Sans CN",
    "WenQuanYi Micro Hei",
    "WenQuanYi Zen Hei",
    "Microsoft YaHei",
    "SimHei",
    "Yu Gothic",
    "Malgun Gothic",
    "PingFang SC",
    "Hiragino Sans",
    "Hiragino Sans GB",
    "Apple SD Gothic Neo",
    "Noto Sans Devanagari",
    "Noto Sans Bengali",
    "Noto Sans Tamil",
    "Noto Sans Thai",
    "Nirmala UI",
    "Leelawadee UI",
    "Noto Sans Symbols",
    "Noto Sans Symbols2",
    "Noto Emoji",
    "Segoe UI Symbol",
    "Symbola",
    "Arial Unicode MS",
    "Unifont",
)

POINTS = 72.0  # points in an inch
DPI = 160
MARGIN = 0.18  # inches around everything

TITLE, BODY, SMALL, TINY = 12.0, 9.0, 7.5, 6.0  # type sizes in points


@lru_cache(maxsize=1)
def families() -> tuple[str, ...]:
    """The families of FAMILIES and WIDE_FAMILIES that this machine has, in that order."""
    manager = require("matplotlib.font_manager", extra="draw")
    # findfont warns of every family that is missing, so only those that are there are asked for.
    here = {entry.name for entry in manager.fontManager.ttflist}
    return tuple(name for name in (*FAMILIES, *WIDE_FAMILIES) if name in here)


@lru_cache(maxsize=256)
def font(size: float, bold: bool = False) -> FontProperties:
    """The one typeface of every figure, at `size` points."""
    manager = require("matplotlib.font_manager", extra="draw")
    return manager.FontProperties(family=list(families()), size=size, weight="bold" if bold else "normal")


@lru_cache(maxsize=1)
def covered() -> frozenset[int]:
    """Code points that one of the families can draw."""
    manager = require("matplotlib.font_manager", extra="draw")
    points: set[int] = set()
    for name in families():
        path = manager.findfont(manager.FontProperties(family=[name]))
        points.update(manager.get_font(path).get_charmap())
    return frozenset(points)


@lru_cache(maxsize=16384)
def measure(text: str, size: float, bold: bool = False) -> tuple[float, float]:
    """Width and height of one line of text, in points."""
    if not text:
        return 0.0, 0.0
    paths = require("matplotlib.textpath", extra="draw")
    # text_to_path measures without a renderer, so that sizes are known before there is a figure.
    width, height, _ = paths.text_to_path.get_text_width_height_descent(text, font(size, bold), False)
    # Renderers round each glyph to whole pixels: allow them 3 %, and never less than the line's own height.
    return 1.03 * width, max(1.03 * height, size)


def wrap(text: str, width: float, size: float, bold: bool = False) -> str:
    """Break `text` between words so that no line is wider than `width` points, where its words allow it."""
    lines: list[str] = []
    for paragraph in text.split("\n"):
        line = ""
        for word in paragraph.split(" "):
            longer = word
            if line:
                longer = f"{line} {word}"
            if line and measure(longer, size, bold)[0] > width:
                lines.append(line)
                longer = word
            line = longer
        lines.append(line)
    return "\n".join(lines)


def sheet(width: float, height: float, *, title: str = "", note: str = "") -> tuple[Figure, float]:
    """A white figure with `height` inches of room between its title above and its note below.

    It draws itself: no window, no backend, nothing for pyplot to keep.

    Returns:
        The figure, and where the room begins: inches from the top.
    """
    figures = require("matplotlib.figure", extra="draw")
    agg = require("matplotlib.backends.backend_agg", extra="draw")
    inside = (width - 2 * MARGIN) * POINTS
    above, below = wrap(title, inside, TITLE, bold=True), wrap(note, inside, SMALL)
    over = 0.0
    if title:
        over = (above.count("\n") + 1) * TITLE * 1.3 / POINTS + 0.12
    under = 0.0
    if note:
        under = (below.count("\n") + 1) * SMALL * 1.35 / POINTS + 0.12
    total = MARGIN + over + height + under + MARGIN
    figure = figures.Figure(figsize=(width, total), dpi=DPI, facecolor="white", layout="none")
    # With a canvas of its own it can be drawn at any time, without pyplot, which would keep it alive.
    agg.FigureCanvasAgg(figure)
    write_at(figure, MARGIN, MARGIN, above, TITLE, bold=True, va="top", linespacing=1.25)
    write_at(figure, MARGIN, total - MARGIN, below, SMALL, color=MUTED, va="bottom", linespacing=1.25)
    return figure, MARGIN + over


def place(figure: Figure, left: float, top: float, width: float, height: float) -> Axes:
    """Bare axes of a given size in inches, measured from the top left corner of the figure."""
    across, down = figure.get_size_inches()
    axes = figure.add_axes((left / across, 1 - (top + height) / down, width / across, height / down))
    # Neighbors may overlap: an opaque background would cover their labels.
    axes.set_facecolor("none")
    axes.grid(False)
    for axis in (axes.xaxis, axes.yaxis):
        axis.set_tick_params(
            which="both", length=0, color=FAINT, labelcolor=INK, labelsize=SMALL, width=0.6, pad=3
        )
        axis.label.set(fontproperties=font(BODY), color=MUTED)
    for spine in axes.spines.values():
        spine.set(color=FAINT, linewidth=0.6, visible=True)
    return axes


def write(
    target: Figure | Axes, x: float, y: float, text: str, size: float = BODY, **properties: Any
) -> Text:
    """Text as it stands (a dollar sign is a dollar sign), in the typeface of every figure."""
    bold = properties.pop("bold", False)
    # A token with two dollar signs would otherwise be set as mathematics.
    defaults = {"color": INK, "fontproperties": font(size, bold), "parse_math": False, "usetex": False}
    return target.text(x, y, text, **(defaults | properties))


def write_at(figure: Figure, x: float, y: float, text: str, size: float = BODY, **properties: Any) -> Text:
    """`write`, its place given in inches from the top left corner of the figure."""
    across, down = figure.get_size_inches()
    return write(figure, x / across, 1 - y / down, text, size, **properties)


def upright(figure: Figure, x: float, y: float, text: str) -> None:
    """The name of a vertical axis, its left edge at `x` inches, its middle at `y`."""
    write_at(figure, x, y, text, color=MUTED, ha="left", va="center", rotation=90)


def level(figure: Figure, x: float, y: float, text: str, va: str = "top") -> None:
    """The name of a horizontal axis, its middle at `x` inches, its top (or what `va` says) at `y`."""
    write_at(figure, x, y, text, color=MUTED, ha="center", va=va)
