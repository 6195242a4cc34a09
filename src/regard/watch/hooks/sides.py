"""Which axes of a product may be those of queries and keys, by their sizes. Knows products and what is followed."""

from __future__ import annotations

from torch import Tensor

from regard.watch.hooks.followed import Followed, Source
from regard.watch.hooks.products import Product
from regard.watch.modules import CallSite


def sides_of(product: Product, site: CallSite) -> tuple[int, ...]:
    """Sizes of the axes of queries and of keys, if a product is like one of queries with keys; none if it is not."""
    sides = []
    for which in (0, 1):
        factor, letters = product.factors[which], product.letters[which]
        rows = [factor.shape[letters.index(a)] for a in product.rows(which)]
        if len(rows) > 1:
            rows = [size for size in rows if size != site.heads]
        if len(rows) != 1:
            return ()
        sides += rows
    # Heads that no shared axis can hold stand in the rows, as where an indexer scores every head's query with one key.
    heads, both = site.heads, set(product.letters[0]) & set(product.letters[1]) & set(product.result)
    shared = [product.factors[0].shape[product.letters[0].index(a)] for a in both]
    if heads in sides and sides[0] != sides[1] and not any(size % heads == 0 for size in shared):
        sides.remove(heads)
    return tuple(sides)


def multiplies(product: Product, site: CallSite, factor: Tensor, entry: Followed) -> bool:
    """Whether changed scores are summed along an axis that may be that of the keys, near where they were made."""
    near = {source for source in entry.sources if _beside(source, site)}
    if not entry.touched or not near:
        return False
    which = 1
    if product.factors[0] is factor:
        which = 0
    summed = [a for a in product.letters[which] if product.summed(which, a)]
    sizes = {factor.shape[product.letters[which].index(a)] for a in summed}
    return bool(sizes & {size for source in near for size in source.sides})


def _beside(source: Source, site: CallSite) -> bool:
    """Whether a product's module is that of the scores, around or in it, or another part of the same module.

    What came from another layer of a stack is a stream of it, not scores.
    """
    layer, other = source.layer, site.layer
    if layer == other or "." not in layer or "." not in other:
        return True
    if layer.startswith(f"{other}.") or other.startswith(f"{layer}."):
        return True
    return layer.rpartition(".")[0] == other.rpartition(".")[0] and source.kind is not type(site.module)
