"""The mask algebra: which key a query may attend, as frozen values that combine with `&`, `|` and `~`."""

from regard.masks.algebra import And, Mask, Not, Or, as_mask
from regard.masks.bits import Dense
from regard.masks.block_sparse import BlockSparse, block_sparse
from regard.masks.content import Documents, Padding, Prefix, documents, padding, prefix
from regard.masks.conventions import dense
from regard.masks.positions import Causal, GlobalTokens, Near, Strided, causal, global_tokens, near, strided
from regard.masks.random_blocks import RandomBlocks, random_blocks
from regard.masks.recognition import recognize
from regard.masks.serialize import deserialize_mask, serialize_mask
from regard.masks.tile import ALL, NONE, SOME, Tile

__all__ = [
    "Mask",
    "causal",
    "near",
    "strided",
    "random_blocks",
    "block_sparse",
    "global_tokens",
    "prefix",
    "documents",
    "padding",
    "dense",
    "And",
    "Or",
    "Not",
    "Causal",
    "Near",
    "Strided",
    "RandomBlocks",
    "BlockSparse",
    "GlobalTokens",
    "Prefix",
    "Documents",
    "Padding",
    "Dense",
    "Tile",
    "NONE",
    "SOME",
    "ALL",
    "as_mask",
    "recognize",
    "serialize_mask",
    "deserialize_mask",
]
