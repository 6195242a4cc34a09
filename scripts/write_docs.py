"""Write `docs/statistics.md` from the table of statistics: `python scripts/write_docs.py`."""

from __future__ import annotations

from pathlib import Path

from regard import files
from regard.statistics.table import SHARES, TABLE

PAGE = Path(__file__).parents[1] / "docs" / "statistics.md"

HEAD = """\
# Statistics

Written from `regard.statistics.TABLE` by `python scripts/write_docs.py`.

w is the weight of a key for a query, q and k are absolute positions, n the number of keys that the query may attend.
An **empty row**, a query that may attend no key or whose every score is −inf, has the value named last and is left out
of every mean. A **broken row**, with a score that is NaN or +inf, has argmax −1 and NaN in every other; what its keys
receive is NaN too, and nothing else is. `allowed` counts the keys that mask and bias allow in each of them, whatever
their scores are; among equal weights the first key is the largest. `received` and the map keep all mass, at any size
of scores: they add up to the number of queries that are not empty, less what a learned sink takes.
Masses (`first`, `self_mass`, `previous`, `local`, groups) are shares of everything, a learned sink included;
`position`, `distance` and `spread` are means over tokens. The entropy counts a learned sink as one more key, so its
bound is then ln(n + 1).

`rg.statistics.first(count)`, `local(radius)`, `group(name, keys)` and `matching(name, query_ids, key_ids)` set what
has a parameter; `record.heads` has the mean of each row statistic over the queries that may attend something, and the
shares at the end of this page.

`matching` is the mass on the keys that have the query's own id, `query_ids[q] == key_ids[k]`, where low ≤ k − q ≤
high if these are given; it comes back among the groups. With token ids on both sides and `high=-1` it is what goes to
earlier copies of the query's token; with the ids of the tokens before the keys, to what followed such a copy last
time (induction); with a number for each pair of brackets, to the other one. Ids go by absolute position, so those of
a whole text serve every step of its generation; a negative id matches nothing. Where a watch does not know the place
of the queries among the keys, it leaves the matches out.

Gradients: output, lse, entropy, effective_keys, sum_squares, sink and the linear statistics (distance, position,
spread, the masses, groups, matches) are differentiable (a tensor that a `score_mod` captures gets no gradient from
the tiles); max_weight, min_weight, argmax, allowed, received and received_max are not.

Precision: statistics are float32 for float32, bfloat16 and float16 inputs, float64 for float64. `spread` is the root of
a difference of moments: in float32 a row that rests on one key alone may read up to about 0.1 instead of 0.
"""


def page() -> str:
    """The whole page."""
    parts = [HEAD]
    titles = {"row": "One number per query", "column": "One number per key", "head": "One number per head"}
    for kind, title in titles.items():
        parts.append(f"\n## {title}\n")
        for line in (TABLE | SHARES).values():
            if line.kind == kind:
                parts.append(
                    f"\n### {line.name}\n{line.meaning}\n\n"
                    f"`{line.formula}`, in {line.unit}, from {line.low} to {line.high}; empty row: {line.empty:g}\n"
                )
    return "".join(parts)


if __name__ == "__main__":
    files.write(PAGE, page())
