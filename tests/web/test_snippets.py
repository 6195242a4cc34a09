"""Python that gives the numbers of a view: it is run, and compared."""

import numpy as np
import pytest
import torch

import regard as rg
from regard.errors import ArgumentError
from regard.record import attach_picture, load, picture_of
from regard.web.changes import distances
from regard.web.snippets import Snippet, code, codes


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Saved records: `first` of 300 tokens, and `second` with another temperature."""
    torch.manual_seed(5)
    layer = rg.nn.MultiHeadAttention(16, 4, mask=rg.causal()).eval()
    inputs = 4 * torch.randn(1, 300, 16)
    root = tmp_path_factory.mktemp("records")
    with torch.no_grad(), rg.watch(layer, keep="vectors", map=64) as record:
        layer(inputs)
    record.save(root / "first")
    with (
        torch.no_grad(),
        rg.intervene(layer, temperature=3.0),
        rg.watch(layer, keep="vectors", map=64) as record,
    ):
        layer(inputs)
    record.save(root / "second")
    return root


def run(text: str) -> dict:
    names: dict = {}
    exec(compile(text, "snippet", "exec"), names)
    return names


def lines(folder, name: str = "first") -> str:
    return f"import regard as rg\n\nrecord = rg.load({str(folder / name)!r})"


@pytest.mark.parametrize("pool", ["max", "mean"])
def test_cells_are_pooled_weights(folder, pool):
    view = Snippet("cells", head=2, q0=10, q1=75, k0=3, k1=66, cell=4, pool=pool)
    cells = run(code(view, lines(folder)))["weights"]
    weights = load(folder / "first")[0].weights(2, slice(40, 300), slice(12, 264))
    parts = weights.reshape(65, 4, 63, 4)
    wanted = parts.amax((1, 3)) if pool == "max" else parts.mean((1, 3))
    assert cells.shape == (65, 63)
    # Logarithms travel with half precision.
    assert np.allclose(cells.nan_to_num(0), wanted, rtol=5e-3, atol=1e-7)
    assert cells.isnan().any() and bool((wanted[cells.isnan()] == 0).all())


def test_cells_of_several_tiles_are_put_together(folder):
    view = Snippet("cells", head=1, q0=250, q1=300, k0=200, k1=290, cell=1)
    cells = run(code(view, lines(folder)))["weights"]
    wanted = load(folder / "first")[0].weights(1, slice(250, 300), slice(200, 290))
    assert np.allclose(cells.nan_to_num(0), wanted, rtol=5e-3, atol=1e-7)


def test_lines_are_the_largest_weights(folder):
    names = run(code(Snippet("lines", head=3, q0=20, q1=60, k0=10, k1=58), lines(folder)))
    weights = load(folder / "first")[0].weights(3)
    assert len(names["lines"]) > 40
    for query, key, weight in names["lines"]:
        assert weight >= 0.01 and weight == pytest.approx(float(weights[query, key]), rel=1e-6)
    for query in range(20, 60):
        count = sum(one[0] == query for one in names["lines"])
        assert count == min(16, int((weights[query, 10:58] >= 0.01).sum()))


def test_several_heads_of_several_records(folder):
    first, second = lines(folder), lines(folder, "second")
    views = [
        (Snippet("window", head=1, q0=3, q1=9, k0=0, k1=7), first),
        (Snippet("cells", head=0, q0=0, q1=75, k0=0, k1=75, cell=4), second),
        (Snippet("window", head=2, q0=3, q1=9, k0=0, k1=7), first),
    ]
    text = codes(views)
    assert text.count("rg.load") == 2, "a record is loaded once"
    weights = run(text)["weights"]
    before = load(folder / "first")[0]
    assert weights[0].equal(before.weights(1, slice(3, 9), slice(0, 7)))
    assert weights[2].equal(before.weights(2, slice(3, 9), slice(0, 7)))
    assert weights[1].shape == (75, 75)


@pytest.mark.parametrize("name, column", [("entropy", "entropy"), ("role:uniform", "role.uniform")])
def test_changes_are_differences_of_the_tables(folder, name, column):
    text = code(Snippet("changes", name=name), lines(folder, "second"), lines(folder))
    difference = run(text)["difference"]
    before, after = (load(folder / one).heads for one in ("first", "second"))
    assert np.allclose(difference, after[column] - before[column], equal_nan=True)
    assert difference.abs().max() > 1e-4


def test_changes_of_weights_are_distances(folder):
    text = code(Snippet("changes", name="weights"), lines(folder, "second"), lines(folder))
    assert run(text)["difference"] == distances(load(folder / "first"), load(folder / "second"))


@pytest.mark.parametrize("side", ["query", "key"])
def test_a_picture_has_the_weights_of_all_heads(folder, tmp_path, side):
    record = load(folder / "first")
    attach_picture(record, np.zeros((8, 12), np.uint8), (5, 7), start=3)
    record.save(tmp_path / "seen")
    window = {"q0": 40, "q1": 41} if side == "query" else {"k0": 40, "k1": 41}
    names = run(code(Snippet("picture", head=2, **window), lines(tmp_path, "seen")))
    whole = torch.stack([record[0].weights(head) for head in range(4)])
    want = whole[:, 40] if side == "query" else whole[:, :, 40]
    # One row is multiplied in another order than all of them.
    assert np.allclose(names["weights"], want, rtol=1e-4, atol=1e-12)
    assert names["picture"] == picture_of(record)
    assert torch.equal(names["patches"], names["weights"][:, 3:38].reshape(4, 5, 7))
    assert torch.equal(names["table"], whole[2])


def test_a_check_is_a_diagnosis(folder):
    names = run(code(Snippet("check"), lines(folder)))
    assert len(names["findings"]) == len(names["diagnosis"].findings)


@pytest.mark.parametrize(
    "write, words",
    [
        (lambda: code(Snippet("changes"), "record = 1"), "changed heads"),
        (lambda: code(Snippet("cells"), "record = 1"), "an end"),
        (lambda: codes([]), "at least one"),
        (lambda: codes([(Snippet("heads"), "record = 1")]), "windows or cells"),
    ],
)
def test_what_cannot_be_written_is_refused(write, words):
    with pytest.raises(ArgumentError, match=words):
        write()
