"""The parts of a card: a heading, notes, pictures of cells and tables of colored cells.

Knows HTML, what must be escaped, and PNG; not what is shown. No script, nothing loaded: pictures are data in the page.
Text has the notebook's own color, and cells bring theirs, so that a card can be read in light and dark.
"""

from __future__ import annotations

import base64
import struct
import zlib
from collections.abc import Callable, Iterable, Sequence
from html import escape
from typing import TYPE_CHECKING

import numpy as np

from regard.html.colors import BLANK, CSS, HEX, PALETTE, TABLE_LEVELS, gradient, levels, readable_on

if TYPE_CHECKING:
    from numpy.typing import NDArray

LONGEST, NOTE = 160, 400  # characters of one name or fact, and of a note

# Notebooks stripe and right-align the tables of their outputs: what undoes that must weigh more than their rules.
STYLE = (
    ".regard{font:13px/1.5 system-ui,-apple-system,'Segoe UI',Roboto,'Noto Sans',sans-serif;"
    "font-variant-numeric:tabular-nums;padding:4px 0}"
    ".regard .head{font-weight:600;font-size:14px}.regard .head code{font-size:13px;background:none;color:inherit;"
    "padding:0}"
    ".regard .soft{opacity:.68}"
    ".regard .note{opacity:.68;font-size:12px;max-width:80ch;margin-top:6px}"
    ".regard .pics{display:flex;flex-wrap:wrap;gap:8px 10px;margin-top:10px;align-items:flex-end}"
    ".regard figure{margin:0}.regard figcaption{font-size:11px;line-height:1.3;opacity:.68;margin-bottom:2px}"
    ".regard img{display:block;margin:0;max-width:none;image-rendering:pixelated;"
    "box-shadow:0 0 0 1px rgb(128 128 128/.28)}"
    ".regard img.bare{box-shadow:none}"
    ".regard table{border-collapse:separate!important;border-spacing:1px;margin:10px 0 0!important;border:0!important;"
    "font-size:11px!important;width:auto;display:table}"
    ".regard tr{background:none!important}.regard tr,.regard th,.regard td{border:0!important;white-space:nowrap}"
    ".regard th{font-weight:400!important;text-align:left!important;padding:0 8px 0 0!important;font-size:12px}"
    ".regard thead th{font-size:11px;padding:0!important;vertical-align:bottom}"
    ".regard thead .n{text-align:center!important;opacity:.68}"
    ".regard td{padding:0 3px!important;height:17px;min-width:17px;box-sizing:border-box;text-align:center!important;"
    "border-radius:2px}"
    ".regard td.gap{min-width:12px;padding:0!important}"
    ".regard .keys{margin-top:6px;font-size:12px}.regard .key{display:inline-block;width:10px;height:10px;"
    "border-radius:2px;margin:0 5px 0 0;vertical-align:-1px}.regard .key~.key{margin-left:14px}"
    ".regard .bar{display:inline-block;width:56px;height:8px;border-radius:2px;margin:0 4px;vertical-align:baseline;"
    f"background:{gradient(TABLE_LEVELS)}}}"
    ".regard .wide{overflow-x:auto}"
)


def text(words: object) -> str:
    """Escaped; what cannot be encoded (a lone surrogate) becomes a question mark, so that a page can be written."""
    return escape(str(words).encode("utf-8", "replace").decode("utf-8"))


def shortened(words: object, longest: int = LONGEST) -> str:
    """Escaped, and of a long text its beginning and its end."""
    whole = str(words)
    if len(whole) > longest:
        whole = f"{whole[: longest * 2 // 3]} … {whole[-longest // 3 :]}"
    return text(whole)


def number(value: float) -> str:
    """A finite number in a few characters: three digits, or all of a larger count, with a real minus sign."""
    if 1000 <= abs(value) < 1e9:
        return f"{value:,.0f}".replace(",", "\u202f").replace("-", "−")
    return f"{value:.3g}".replace("-", "−")


def card(*parts: str) -> str:
    """Everything that one value shows. The parts are HTML already."""
    return f'<div class="regard"><style>{STYLE}</style>{"".join(parts)}</div>'


def heading(kind: str, name: str = "", facts: Iterable[str] = ()) -> str:
    """What it is, its name in code, and a line of facts."""
    code = f" <code>{shortened(name)}</code>" if name else ""
    line = " · ".join(shortened(fact) for fact in facts)
    return f'<div class="head">{text(kind)}{code}</div><div class="soft">{line}</div>'


def note(words: str) -> str:
    """A line below, in soft ink."""
    return f'<div class="note">{shortened(words, NOTE)}</div>'


def pictures(named: Sequence[tuple[str, str]]) -> str:
    """Pictures side by side, each below its name."""
    figures = (f"<figure><figcaption>{text(name)}</figcaption>{image}</figure>" for name, image in named)
    return f'<div class="pics">{"".join(figures)}</div>'


def picture(shades: NDArray[np.uint8], side: int, name: str, *, gap: int = 0) -> str:
    """Cells of color as an image, its longer side about `side` pixels.

    Args:
        shades: `(rows, columns)`, from `levels`; a BLANK cell is transparent.
        side: of the image. A picture of few cells across is stretched, up to cells of a quarter of it.
        name: what a screen reader says.
        gap: transparent pixels between cells; 0 stores one pixel per cell, which the browser enlarges.
    """
    rows, columns = shades.shape
    # Whole pixels for each cell, as browsers draw cells of a fraction unevenly.
    high, wide = (max(1, min(side // count, side // 4)) for count in (rows, columns))
    if gap:
        shades = np.repeat(np.repeat(shades, high, 0), wide, 1)
        # Gaps are transparent pixels, so that the page's own color lies between cells in light and dark.
        shades[np.arange(len(shades)) % high >= high - gap] = BLANK
        shades[:, np.arange(shades.shape[1]) % wide >= wide - gap] = BLANK
    data = base64.b64encode(_png(shades)).decode("ascii")
    bare = ' class="bare"' if gap else ""
    return (
        f'<img{bare} alt="{text(name)}" style="width:{columns * wide}px;height:{rows * high}px;'
        f'image-rendering:pixelated" src="data:image/png;base64,{data}">'
    )


def _png(shades: NDArray[np.uint8]) -> bytes:
    """A PNG of one byte per pixel, an index into the palette."""
    rows, columns = shades.shape
    header = struct.pack(">IIBBBBB", columns, rows, 8, 3, 0, 0, 0)
    # Each line starts with the number of its filter: 0, none.
    lines = np.pad(shades, ((0, 0), (1, 0))).tobytes()
    chunks = (
        (b"IHDR", header),
        (b"PLTE", PALETTE[:, :3].tobytes()),
        # Opacity index by index, which keeps a pixel at one byte.
        (b"tRNS", PALETTE[:, 3].tobytes()),
        (b"IDAT", zlib.compress(lines, 9)),
        (b"IEND", b""),
    )
    return b"\x89PNG\r\n\x1a\n" + b"".join(_chunk(kind, body) for kind, body in chunks)


def _chunk(kind: bytes, body: bytes) -> bytes:
    return struct.pack(">I", len(body)) + kind + body + struct.pack(">I", zlib.crc32(kind + body))


def cells(
    values: NDArray[np.floating],
    high: float,
    names: Sequence[str],
    write: Callable[[float], str] | None = None,
) -> str:
    """Colored cells of one row of a table, from 0 to `high`.

    Args:
        values: one per cell, also in its tooltip.
        high: what has the darkest color.
        names: what each cell is, for its tooltip.
        write: how the value is written in the cell; None for not at all.
    """
    row = []
    shades = levels(values, high, top=TABLE_LEVELS).tolist()
    for value, shade, name in zip(values.tolist(), shades, names, strict=True):
        if shade == BLANK:
            # NaN is none of the colors: the lightest one would say 0.
            row.append(f'<td title="{text(name)}: no number">·</td>')
            continue
        style, written = f"background:{HEX[shade]}", ""
        if write is not None:
            style, written = f"{style};color:{readable_on(shade)}", text(write(value))
        row.append(f'<td title="{text(name)}: {number(value)}" style="{style}">{written}</td>')
    return "".join(row)


def swatches(named: Iterable[tuple[int, str]]) -> str:
    """What single colors mean, on one line; pairs of an index into the palette and words."""
    parts = (
        f'<span class="key" style="background:{CSS[index]}"></span><span class="soft">{text(words)}</span>'
        for index, words in named
    )
    return f'<div class="keys">{"".join(parts)}</div>'


def legend(high: float, unit: str) -> str:
    """The scale of colors of a table, from 0 to `high`."""
    soft = '<span class="soft">'
    return f'{soft}0</span><span class="bar"></span>{soft}{number(high)} {text(unit)}</span>'


def table(head: Sequence[str], rows: Iterable[tuple[str, str, str]]) -> str:
    """A table of cells: rows of the lines of its head, then `(name, full name, cells)`.

    The lines of the head and the cells are HTML already.
    """
    above = "".join(f"<tr>{line}</tr>" for line in head)
    below = "".join(
        f'<tr><th title="{shortened(full)}">{shortened(name)}</th>{inside}</tr>'
        for name, full, inside in rows
    )
    # A wide table scrolls by itself, and does not stretch the notebook's page.
    return f'<div class="wide"><table><thead>{above}</thead><tbody>{below}</tbody></table></div>'
