"""A window of the second fold is the dense weights of its queries and keys, pooled from its own corner."""

import pytest
import torch
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from helpers.cases import cases, weight_error
from regard import reference
from regard.engines import native, tiles
from regard.engines.cells import Cells
from regard.engines.windows import Rows, add_window
from regard.shapes import sizes_of, statistics_dtype
from regard.spec import Spec
from regard.statistics.table import Wanted

SHAPES = st.tuples(
    st.integers(1, 2),
    st.sampled_from([2, 4]),
    st.just(2),
    st.sampled_from([1, 7, 67, 131]),
    st.sampled_from([5, 37, 149, 271]),
    st.sampled_from([1, 3, 8]),
    st.just(1),
)


def blank(sizes, cell, query, key, columns, dtype):
    """Cells for all queries of a call whose first one has the position 0, and so many columns."""
    rows = -(-(sizes.queries + query) // cell)
    total = torch.zeros(sizes.batch, sizes.heads, rows, columns, dtype=dtype)
    return Cells(total, torch.zeros_like(total), cell, -query, key)


@pytest.mark.parametrize("engine", [native, tiles], ids=["native", "tiles"])
@settings(max_examples=40)
@given(
    cases(SHAPES),
    st.sampled_from([1, 2, 8, 16, 32, 64]),
    st.integers(0, 70),
    st.integers(0, 16),
    st.integers(1, 9),
)
def test_a_window_is_the_dense_weights_of_its_place(engine, case, cell, before, left, columns):
    dtype = torch.float32
    case = case.to(dtype)
    query, key, spec = case.query, case.key, case.spec
    assume(engine.refuses(query, key, None, spec, Wanted(output=False, cell=cell)) is None)
    sizes, first = sizes_of(query, key), left * max(cell, 16)
    cells = blank(sizes, cell, before, first, columns, dtype)
    # The same place in positions, whatever that of the first query is.
    cells = Cells(cells.total, cells.peak, cell, spec.offset - before, first)
    lse = _lse(case)
    engine.add_window(query, key, spec, lse, (lse != -torch.inf).double(), cells)
    # Twice: sums are added to, and the largest weights stay.
    engine.add_window(query, key, spec, lse, (lse != -torch.inf).double(), cells)
    weights = reference.weights(query.double(), key.double(), spec)[..., : sizes.keys]
    budget = 4 * weight_error(case, dtype) + 1e-6
    room = cells.total.shape[2] * cell, columns * cell
    part = weights[..., first : first + room[1]]
    padded = torch.zeros(*weights.shape[:2], *room, dtype=torch.float64)
    padded[:, :, before : before + sizes.queries, : part.shape[3]] = part
    pooled = padded.unflatten(2, (-1, cell)).unflatten(4, (-1, cell))
    torch.testing.assert_close(cells.total.double(), 2 * pooled.sum((3, 5)), rtol=budget, atol=1e-7)
    torch.testing.assert_close(cells.peak.double(), pooled.amax((3, 5)), rtol=budget, atol=1e-37)


def _lse(case):
    """The lse of each row with the sink in it, −inf where there is no score."""
    scores = reference.scores(case.query.double(), case.key.double(), case.spec)
    there = (scores[..., : case.key.shape[2]] != -torch.inf).any(-1)
    return scores.logsumexp(-1).masked_fill(~there, -torch.inf)


def test_the_engine_that_takes_a_window_is_asked(monkeypatch):
    asked = []
    for engine in (native, tiles):
        monkeypatch.setattr(engine, "add_window", lambda *_, name=engine.name: asked.append(name))
    for dtype, first in ((torch.float32, 16), (torch.float32, 8), (torch.float64, 16)):
        query = torch.zeros(1, 1, 3, 2, dtype=dtype)
        key = torch.zeros(1, 1, 40, 2, dtype=dtype)
        state = torch.zeros(1, 1, 3, dtype=torch.float64), torch.ones(1, 1, 3, dtype=torch.float64)
        sizes = sizes_of(query, key)
        cells = blank(sizes, 8, 0, first, 2, statistics_dtype(dtype))
        add_window(Rows(query, key, Spec.of(sizes), *state), cells)
    assert asked == ["native", "tiles", "tiles"]
