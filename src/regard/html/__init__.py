"""Pieces of HTML by which values show themselves in a notebook: escaped text, pictures of cells, tables of cells."""

from regard.html.colors import ALL, NONE, RAMP, SOME, levels
from regard.html.elements import (
    card,
    cells,
    heading,
    legend,
    note,
    number,
    picture,
    pictures,
    swatches,
    table,
    text,
)

__all__ = [
    "ALL",
    "NONE",
    "RAMP",
    "SOME",
    "card",
    "cells",
    "heading",
    "legend",
    "levels",
    "note",
    "number",
    "picture",
    "pictures",
    "swatches",
    "table",
    "text",
]
