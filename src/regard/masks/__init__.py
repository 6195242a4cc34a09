"""The mask algebra: which key a query may attend, as frozen values that combine with `&`, `|` and `~`."""

from regard.masks.algebra import And, Mask, Not, Or, as_mask
from regard.masks.bits import Dense
from regard.masks.content import Documents, Padding, Prefix, documents, padding, prefix
from regard.masks.conventions import dense
from regard.masks.packing import pack, unpack
from regard.masks.positions import Causal, Near, Strided, Tokens, causal, near, strided, tokens
from regard.masks.recognition import recognise
from regard.masks.scattered import Random, random
from regard.masks.tile import ALL, NONE, SOME, Tile

__all__ = [
    "Mask", "causal", "near", "strided", "random", "tokens", "prefix", "documents", "padding", "dense",
    "And", "Or", "Not", "Causal", "Near", "Strided", "Random", "Tokens", "Prefix", "Documents", "Padding",
    "Dense", "Tile", "NONE", "SOME", "ALL", "as_mask", "recognise", "pack", "unpack",
]  # fmt: skip
