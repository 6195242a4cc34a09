"""What is taken away of flows, histories and pictures: opened again, and compared with the Python API."""

import re
from collections.abc import Iterator

import numpy as np
import pandas
import pytest
import torch

import regard as rg
from helpers import looked
from helpers.explored import served
from helpers.exports import agree, open_menu, shot_of, tables, taken, titles
from regard.analysis.flow import rollout
from regard.cli.history import losses_of
from regard.cli.shelf import shelve, trained
from regard.explorer.opened import Opened
from regard.record import History, load, picture_of
from regard.tasks.common.looks import look
from regard.web.tiles import RecordTiles

TRAINED, STATISTIC = "answer, encoder", "max_weight"
NUMBER = 1 + list(trained()).index(TRAINED)
PATCHES = (5, 7)
# r1: two texts; r2: a picture of 35 patches behind a class token; r3: the captioner.
VIEWS = {
    "flow": "#/flow?record=r1&query=30",
    "times": "#/flow?record=r1&query=30&measure=times&by=norms&residual=0.25&way=forward&row=1",
    "part": "#/flow?record=r1&query=30&tokens=11-29",
    "history": f"#/history?history=h{NUMBER}&color={STATISTIC}&at=1.2",
    "patch": "#/images?record=r2&call=1&head=2&query=18",
    "to": "#/images?record=r2&call=1&head=1&key=18&text=to",
    "words": "#/images?record=r3&call={cross}&head=1&query=2",
}
WORDS = {
    "flow": ["Flow", "How much of the last state", "Largest: input", "q0.30"],
    "times": ["times the share of equal weights", "Largest: after", "rollout by value norms"],
    "part": ["q0.12", "share"],
    "history": [f"History: {TRAINED}", "Training loss", "queries ↓", "head 2", "Step 12"],
    "patch": ["the patch in row 3, column 4", "All heads of the layer", "Beside the picture"],
    "to": ["Who attends to the patch in row 3, column 4"],
    "words": ["Where the model looked while it wrote", "All words"],
}


@pytest.fixture(scope="module")
def vit() -> rg.record.Record:
    """Two layers over a class token and 5 × 7 patches, of a picture large enough to be a photograph."""
    torch.manual_seed(4)
    layers = torch.nn.Sequential(rg.nn.MultiHeadAttention(24, 3), rg.nn.MultiHeadAttention(24, 3)).eval()
    with torch.no_grad(), rg.watch(layers, keep="vectors", map=64) as record:
        layers(4 * torch.randn(1, 1 + 35, 24))
    red, green = torch.meshgrid(torch.linspace(0, 1, 250), torch.linspace(0, 1, 350), indexing="ij")
    rg.record.attach_picture(record, torch.stack([red, green, (red * green).sqrt()]), PATCHES, start=1)
    return record


@pytest.fixture(scope="module")
def caption() -> rg.record.Record:
    return look("caption").record


@pytest.fixture(scope="module")
def cross(caption) -> int:
    """The last layer that looks at the picture."""
    return max(index for index, call in enumerate(caption) if call.kind == "cross")


@pytest.fixture(scope="module")
def history() -> History:
    return History.load(trained()[TRAINED])


@pytest.fixture(scope="module")
def site(record, vit, caption, tmp_path_factory) -> Iterator[str]:
    """The address of a server of three saved records and the histories of the tasks."""
    opened, folder = Opened(), tmp_path_factory.mktemp("records")
    for name, one in (("pair", record), ("ViT", vit), ("caption", caption)):
        one.save(folder / name)
        code = f"import regard as rg\n\nrecord = rg.load({str(folder / name)!r})"
        opened.add(RecordTiles(load(folder / name)), name, code)
    shelve(opened.trainings, {})
    with served(opened) as address:
        yield address


@pytest.fixture
def visit(chromium, site, cross):
    """Opens a view; nothing may be complained of."""
    contexts, complaints = [], []
    ready = {
        "flow": ".grid[data-state=ready]",
        "history": "[data-step] canvas",
        "images": "[role=application][data-state=ready]",
    }

    def open_view(name: str, *, width: int = 1280, height: int = 800, theme: str = "light"):
        viewport = {"width": width, "height": height}
        context = chromium.new_context(viewport=viewport, color_scheme=theme, reduced_motion="reduce")
        contexts.append(context)
        page = context.new_page()
        page.on("pageerror", lambda error: complaints.append(str(error)))
        page.on("console", lambda line: complaints.append(line.text) if line.type == "error" else None)
        view = VIEWS[name].format(cross=cross)
        page.goto(f"{site}{view}")
        page.get_by_role("button", name="Export", exact=True).wait_for(timeout=90_000)
        page.locator(ready[view[2:].partition("?")[0]]).first.wait_for(timeout=90_000)
        page.wait_for_timeout(600)
        return page

    yield open_view
    for context in contexts:
        context.close()
    assert complaints == []


def run(page, folder) -> dict:
    """The names that the Python of a view gives."""
    names: dict = {}
    exec(compile(taken(page, folder, "Save Python").read_text(), "snippet", "exec"), names)
    return names


@pytest.mark.parametrize("name", VIEWS)
def test_pictures_open_and_show_the_same(visit, chromium, tmp_path, name):
    agree(visit(name), chromium, tmp_path, name, WORDS[name])


def test_the_numbers_of_a_flow_are_those_of_the_rollout(visit, record, tmp_path):
    page, want = visit("flow"), rollout(record, 30)
    both = [title for title in titles(page) if title.startswith("Shares")]
    assert len(both) == 2, "one for each text"
    names = run(page, tmp_path)
    for title, shares, name in zip(both, (want.shares, want.source), ("shares", "source"), strict=True):
        for table in tables(page, tmp_path, title):
            assert np.allclose(table["share"], shares[0].flatten(), rtol=1e-5, atol=1e-9)
            assert set(table["tokens"]) == {1}
            rows, tokens = shares.shape[1:]
            assert list(table["row"]) == np.repeat(np.arange(rows), tokens).tolist()
            assert list(table["token"]) == np.tile(np.arange(tokens), rows).tolist()
        assert torch.equal(names[name], shares)
    for table in tables(page, tmp_path, "Largest"):
        assert np.allclose(table["share"], want.shares[0, 0].topk(14).values, rtol=1e-5)


def test_multiples_of_equal_weights_and_a_part_of_the_tokens(visit, record, tmp_path):
    want = rollout(record, 30, direction="forward", by="norms", residual=0.25, corrected=True)
    page = visit("times")
    table = tables(page, tmp_path, titles(page)[0])[1]
    assert np.allclose(table["share"], want.shares[0].flatten(), rtol=1e-5, atol=1e-9)
    assert np.allclose(table["equal"], want.baseline.shares[0].flatten(), rtol=1e-5, atol=1e-9)
    reached = table["equal"] > 0
    assert np.allclose(table["times"][reached], want.corrected[0].flatten().numpy()[reached], rtol=1e-4)
    assert table["times"][~reached].isna().all() and reached.any() and not reached.all()
    names = run(page, tmp_path)
    assert torch.equal(names["times"].nan_to_num(-1), want.corrected.nan_to_num(-1))
    for table in tables(page := visit("part"), tmp_path, titles(page)[0]):
        assert sorted(set(table["token"])) == list(range(11, 29))
        assert np.allclose(table["share"], rollout(record, 30).shares[0, :, 11:29].flatten(), rtol=1e-5)


def test_the_numbers_of_a_history_are_its_own(visit, history, tmp_path):
    page = visit("history")
    names = run(page, tmp_path)
    assert names["steps"] == history.steps
    for table in tables(page, tmp_path, "Heads along the steps"):
        heads = history.values.shape[-1]
        assert list(table["step"]) == np.repeat(history.steps, heads).tolist()
        for name in history.statistics:
            values = pandas.to_numeric(table[name]).to_numpy().reshape(-1, heads)
            assert np.allclose(values, history.of_statistic(name), rtol=1e-5, equal_nan=True)
            if name == STATISTIC:
                assert np.allclose(values, names["values"], rtol=1e-5, equal_nan=True)
    want = np.concatenate([maps[-1].float().flatten() for maps in history.maps])
    assert np.array_equal(np.concatenate([maps.float().flatten() for maps in names["maps"]]), want)
    for table in tables(page, tmp_path, "Maps of the step"):
        assert np.allclose(table["weight"], want, rtol=1e-5) and set(table["step"]) == {history.pictured[-1]}
        first = table[: history.maps[0].shape[2] * history.maps[0].shape[3]]
        cell = history.layers[0].cell
        assert list(first["key"][:3]) == [0, cell, 2 * cell] and set(first["head"]) == {0}
    losses = losses_of(trained()[TRAINED].parent)
    for table in tables(page, tmp_path, "Training loss"):
        assert dict(zip(table["step"], table["loss"], strict=True)) == pytest.approx(dict(losses))


@pytest.mark.parametrize("name", ["patch", "to"])
def test_the_numbers_of_a_picture_are_its_weights(visit, vit, tmp_path, name):
    page = visit(name)
    whole = torch.stack([vit[1].weights(head) for head in range(3)])
    want, other = (whole[:, 18], "key") if name == "patch" else (whole[:, :, 18], "query")
    for table in tables(page, tmp_path, "Weights of all heads"):
        assert np.allclose(table["weight"], want.flatten(), rtol=1e-5, atol=1e-12)
        assert list(table["head"]) == np.repeat(np.arange(3), 36).tolist()
        rows, columns = (pandas.to_numeric(table[f"patch_{side}"]) for side in ("row", "column"))
        # The class token is no patch; the others lie row after row.
        assert pandas.isna(rows[0]) and [rows[18], columns[18]] == [3, 4]
        assert table[f"{other}_name"][18] == "row 3, column 4"
    names = run(page, tmp_path)
    assert np.allclose(names["weights"], want, rtol=1e-5, atol=1e-9)
    assert torch.equal(names["patches"], names["weights"][:, 1:].reshape(3, *PATCHES))


def test_the_numbers_of_words_are_their_weights(visit, caption, cross, tmp_path):
    page, want = visit("words"), caption[cross].weights(1)
    for table in tables(page, tmp_path, "Weights of the words"):
        assert np.allclose(table["weight"], want.flatten(), rtol=1e-5, atol=1e-12)
        words = picture_of(caption).words
        assert list(table["query_name"][:: want.shape[1]]) == [
            *words,
            *table["query_name"][:: want.shape[1]][len(words) :],
        ]
    names = run(page, tmp_path)
    assert torch.equal(names["table"], want)
    for table in tables(page, tmp_path, "Weights of all heads"):
        assert np.allclose(table["weight"], names["weights"].flatten(), rtol=1e-5, atol=1e-12)


def test_a_photograph_is_smooth_and_keeps_its_patches(visit, chromium, tmp_path):
    svg = taken(visit("patch"), tmp_path, "SVG")
    first = re.search(r"<image [^>]*>", svg.read_text())[0]
    assert "pixelated" not in first, "a photograph"
    paper = chromium.new_context(device_scale_factor=2)
    pixels = shot_of(paper.new_page(), svg).astype(int)
    paper.close()
    x, y, width, height = (
        float(re.search(rf' {name}="([\d.]+)"', first)[1]) for name in ("x", "y", "width", "height")
    )
    assert width / height == pytest.approx(350 / 250, rel=0.01)
    # The picture grows lighter to the right and down: so does the middle of a patch that has nearly no weight.
    corner, end = (pixels[int(2 * (y + at * height)), int(2 * (x + at * width))] for at in (0.03, 0.97))
    assert end.sum() > corner.sum() + 100


@pytest.mark.parametrize("name", ["flow", "history", "words"])
def test_the_open_menu_has_no_fault_and_fits_the_screen(visit, shot, name):
    page = visit(name)
    menu = open_menu(page)
    for screen in looked.LOOKS:
        looked.put(page, screen)
        shot(page, f"export-menu-{name}-{screen}")
        box = menu.bounding_box()
        assert box["x"] >= 0 and box["x"] + box["width"] <= page.viewport_size["width"]
        looked.check(page)
