"""Mass on the keys that have the query's id: by hand, by position, in a watch and in a graph."""

import pytest
import torch

import regard as rg
from helpers.cases import draw_tensors
from regard.errors import EngineError, ShapeError
from regard.masks.window import Window
from regard.statistics import matching
from regard.statistics.linear import FAR

TOKENS = [5, 6, 5, 6, 5]


def mass(choice, queries=5, keys=5, **more):
    """Of uniform weights, `(queries,)`."""
    query, key = torch.zeros(1, 1, queries, 3), torch.zeros(1, 1, keys, 3)
    return rg.observe(query, key, statistics=[choice], **more).groups[choice.name.removeprefix("group:")][
        0, 0
    ]


@pytest.mark.parametrize("engine", ["tiles", "native"])
def test_by_hand(engine):
    before = [-1, *TOKENS[:-1]]
    cases = {
        "copies": (matching("a", TOKENS, TOKENS), [0.6, 0.4, 0.6, 0.4, 0.6]),
        "copies before": (matching("a", TOKENS, TOKENS, high=-1), [0.0, 0.0, 0.2, 0.2, 0.4]),
        "after a copy": (matching("a", TOKENS, before, high=0), [0.0, 0.0, 0.2, 0.2, 0.4]),
        "a band": (matching("a", TOKENS, TOKENS, low=1, high=3), [0.2, 0.2, 0.2, 0.0, 0.0]),
        "itself": (matching("a", range(5), range(5), low=0, high=0), [0.2] * 5),
        "no one": (matching("a", [-1] * 5, [-1] * 5), [0.0] * 5),
        "no key": (matching("a", TOKENS, [-1, -2, -3, -7, -1]), [0.0] * 5),
    }
    for name, (choice, want) in cases.items():
        torch.testing.assert_close(mass(choice, engine=engine), torch.tensor(want), msg=name)


def test_which_ids_are_equal_is_all_that_counts():
    """Any numbers will do, also those that 32 bits do not hold and that differ above them alone."""
    query, key = torch.randn(2, 2, 5, 7), torch.randn(2, 2, 11, 7)
    ids = torch.randint(0, 3, (2, 11))
    want = rg.observe(query, key, statistics=[matching("a", ids, ids)]).groups["a"]
    for other in (7 * ids + 2, ids << 32, (ids << 32) + 1, (ids << 39).to(torch.int64), ids.to(torch.int16)):
        got = rg.observe(query, key, statistics=[matching("a", other, other)]).groups["a"]
        assert torch.equal(got, want)


def test_query_ids_go_by_position():
    ids = torch.tensor([1, 2, 3, 1, 2, 3, 9, 9])
    # Queries 3 and 4 of a text of 5, of which the ids know more; then the same as a call of its own.
    torch.testing.assert_close(mass(matching("a", ids, ids), queries=2), torch.tensor([0.4, 0.4]))
    torch.testing.assert_close(
        mass(matching("a", ids, ids), queries=2, align="start"), torch.tensor([0.4, 0.4])
    )
    torch.testing.assert_close(mass(matching("a", ids, ids), queries=2, align=5), torch.tensor([0.2, 0.0]))
    # Two queries stand before the text.
    torch.testing.assert_close(
        mass(matching("a", ids, ids), queries=4, keys=2), torch.tensor([0.0, 0.0, 0.5, 0.5])
    )


@pytest.mark.parametrize(
    "query_ids, key_ids, message",
    [
        (
            (6,),
            (7,),
            r"query_ids of group:a must have shape \(positions,\) or \(batch, positions\) with at least 7",
        ),
        ((7,), (6,), r"key_ids of group:a must have .* at least 7 positions, .* and batch 2, got \(6,\)"),
        ((3, 7), (7,), r"query_ids of group:a .* batch 2, got \(3, 7\)"),
        ((7,), (1, 7), r"key_ids of group:a .* batch 2, got \(1, 7\)"),
        ((), (7,), r"query_ids must have shape \(positions,\) or \(batch, positions\), got \(\)"),
        ((7,), (1, 2, 7), r"key_ids must have shape .* got \(1, 2, 7\)"),
    ],
)
def test_ids_that_do_not_fit(query_ids, key_ids, message):
    query, key, value = draw_tensors(2, 2, 1, 5, 7, 3, 2)
    with pytest.raises(ShapeError, match=message):
        ids = torch.ones(query_ids, dtype=torch.int64), torch.ones(key_ids, dtype=torch.int64)
        rg.observe(query, key, value, statistics=[matching("a", *ids)])


def test_a_window_of_some_rows():
    ids = torch.tensor([[1, 2, 3, 1, 2, 3, 1], [1, 1, 1, 1, 1, 1, 1]])
    column = matching("a", ids, ids[0], low=-2).column
    window = Window(-1, 6, 1, 5, 0, step=3)
    phi = column.phi(window, torch.device("cpu"))
    assert phi.shape == (2, 1, 3, 4)
    # The first stands before the text; the last is too far from its equal in the first row of the batch.
    want = [[[0, 0, 0, 0], [0, 1, 0, 0], [0, 0, 0, 0]], [[0, 0, 0, 0], [0, 0, 1, 0], [0, 0, 1, 0]]]
    assert phi[:, 0].int().tolist() == want
    assert column.high == FAR


def test_sdpa_refuses():
    query = torch.randn(1, 1, 5, 32)
    with pytest.raises(
        EngineError, match="which keys have a query's own id is no sum that SDPA gives, as group:a"
    ):
        mass(matching("a", TOKENS, TOKENS), engine="sdpa")
    with pytest.raises(EngineError, match="the largest and smallest weights and the map are not sums"):
        rg.observe(query, query, statistics=["min_weight"], engine="sdpa")


@pytest.mark.parametrize("inside", [False, True])
def test_in_a_graph(inside):
    """The choice may be made outside of the graph or from tensors inside it."""
    ids = torch.randint(0, 3, (2, 11)) << 33
    made = matching("a", ids, ids, high=2)

    def look(query, key, ids):
        choice = made
        if inside:
            choice = matching("a", ids, ids, high=2)
        seen = rg.observe(query, key, statistics=[choice, "min_weight"], mask=rg.causal())
        return seen.groups["a"], seen.min_weight

    query, key = torch.randn(2, 2, 5, 7), torch.randn(2, 2, 11, 7)
    got = torch.compile(look, fullgraph=True, backend="aot_eager")(query, key, ids)
    for a, b in zip(got, look(query, key, ids), strict=True):
        assert torch.equal(a, b)


def test_the_smallest_weight_in_known_rows():
    scores = torch.tensor([[0.0, 1.0, 2.0, 5.0], [3.0, 3.0, 3.0, 3.0], [-200.0, 0.0, 0.0, 0.0], [0.0] * 4])
    keep = torch.tensor([[1, 1, 1, 0], [1, 1, 1, 1], [1, 1, 1, 1], [0, 0, 0, 0]]).bool()
    query = key = torch.zeros(1, 1, 4, 3, dtype=torch.float64)
    for engine, tensors in (("tiles", (query, key)), ("native", (query.float(), key.float()))):
        seen = rg.observe(*tensors, bias=scores, mask=rg.dense(keep=keep), align=0, engine=engine)
        want = [1 / torch.tensor([0.0, 1, 2]).exp().sum(), 0.25, 0.0, 0.0]
        torch.testing.assert_close(seen.min_weight[0, 0], torch.tensor(want, dtype=seen.lse.dtype))
        alone = rg.observe(*tensors, bias=scores, align=0, engine=engine, sink_logit=torch.tensor([1.0]))
        both = rg.weights(*tensors, bias=scores, align=0, sink_logit=torch.tensor([1.0]))
        torch.testing.assert_close(alone.min_weight, both.amin(-1))
