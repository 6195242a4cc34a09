"""Everything is taken away from every view in a real browser, opened again, and compared with the Python API."""

from __future__ import annotations

import sys
import threading
from collections.abc import Iterator

import numpy as np
import pandas
import pytest
import torch
import uvicorn
from PIL import Image

from explorer.browser.conftest import decoded
from helpers import looked
from helpers.exports import agree, open_menu, plain, tables, taken, titles
from regard.analysis import diagnose
from regard.explorer import serve
from regard.explorer.app import bundle, create_app
from regard.explorer.jobs import Jobs
from regard.explorer.opened import Model, Opened
from regard.explorer.security import Access
from regard.explorer.worker import Worker
from regard.web.changes import HeadSetting
from regard.web.playground import PlaygroundState, answer
from regard.web.tiles import RecordTiles

TEXT = "def double(value):\n    return value + value\n\n=1+1\n"
# r1: a run of the embedded model; r2: the same with a head off; r3: two layers; r4: 4099 tokens.
VIEWS = {
    "model": "#/model?record=r1&color=entropy",
    "head": "#/head?record=r3&call=0&head=5&query=20&key=4",
    "far": "#/head?record=r4&call=0&head=1",
    "lines": "#/head?record=r1&call=2&head=3&panel=lines",
    "compare": "#/compare?record=r3&heads=0.1 1.0 r1~1.0",
    "changes": "#/changes?record=r2&query=6",
    "check": "#/check?record=r1",
    "playground": "#/playground?play.kind=window&play.seed=7&play.length=29",
}
# A word that each picture has, and one with a sign beyond ASCII.
WORDS = {
    "model": ["colored by entropy", "layer 3"],
    "head": ["Layer own, head 5", "queries ↓", "q0.36"],
    "far": ["16 × 16 tokens", "4000"],
    "lines": ["Layer 2, head 3", "double", "return"],
    "compare": ["3 heads side by side", "head 1, A pair", "s0.22"],
    "changes": ["What the changes did", "Next token after", "−"],
    "check": ["Check: ", "rules applied"],
    "playground": ["window attention", "4 · d²"],
}


@pytest.fixture(scope="module")
def opened(record, long_record, tmp_path_factory) -> Iterator[tuple[str, Opened]]:
    """A server with a run of the embedded model, one with a head off, and two records that were saved."""
    if not (bundle() / "index.html").is_file():
        pytest.fail("the front end is not built: make web")
    opened = Opened([Model("language", "Embedded", "embedded")])
    jobs, access = Jobs(opened, Worker([sys.executable, "-m", "regard.cli.worker"])), Access()
    assert jobs.wait(jobs.submit(opened.models["language"], TEXT).id).record == "r1"
    assert jobs.wait(jobs.submit_changed(opened["r1"], [HeadSetting(1, 0, off=True)]).id).record == "r2"
    folder = tmp_path_factory.mktemp("records")
    for name, title, one in (("pair", "A pair", record), ("long", "A long one", long_record)):
        one.save(folder / name)
        load = f"import regard as rg\n\nrecord = rg.load({str(folder / name)!r})"
        opened.add(RecordTiles(one), title, load)
    listening = serve.bind(access, 0)
    server = uvicorn.Server(uvicorn.Config(create_app(opened, jobs, access), log_level="error"))
    thread = threading.Thread(target=server.run, kwargs={"sockets": [listening]}, daemon=True)
    thread.start()
    yield serve.address(access, listening), opened
    server.should_exit = True
    thread.join(10)
    listening.close()
    jobs.close()


def refused(line) -> list[str]:
    """An error of the console; that a test has had the server refuse something is none."""
    return [line.text] if line.type == "error" and "status of 400" not in line.text else []


@pytest.fixture
def visit(chromium, opened):
    """Opens a view; nothing may be complained of."""
    contexts, complaints = [], []

    def open_view(name: str, *, width: int = 1280, height: int = 800, theme: str = "light", **options):
        view = {
            "viewport": {"width": width, "height": height},
            "color_scheme": theme,
            "reduced_motion": "reduce",
        }
        context = chromium.new_context(**view, **options)
        contexts.append(context)
        page = context.new_page()
        page.on("pageerror", lambda error: complaints.append(str(error)))
        page.on("console", lambda line: complaints.extend(refused(line)))
        address = opened[0]
        page.goto(f"{address}{VIEWS[name]}")
        page.get_by_role("button", name="Export", exact=True).wait_for(timeout=60_000)
        ready = {
            "model": "a.tile canvas",
            "lines": ".drawing line",
            "changes": "table[data-position] td",
            "check": "a.cell",
            "playground": ".sentences",
        }
        # A level line has no height, and is not "visible".
        drawn = page.locator(ready.get(name, ".pane[data-state=ready]")).first
        drawn.wait_for(state="attached", timeout=60_000)
        if name == "compare":
            page.wait_for_function(
                "() => document.querySelectorAll('.pane[data-state=ready]').length === 3", timeout=60_000
            )
        page.wait_for_timeout(500)
        return page

    yield open_view
    for context in contexts:
        context.close()
    assert complaints == []


@pytest.mark.parametrize("name", VIEWS)
def test_pictures_open_and_show_the_same(visit, chromium, tmp_path, name):
    agree(visit(name), chromium, tmp_path, name, WORDS[name])


def test_a_picture_has_the_color_of_every_weight(visit, record, tmp_path):
    """The first image of the SVG is the map: each of its cells has the color that the ramp of the legend has for it."""
    page = visit("head")
    svg = taken(page, tmp_path, "SVG")
    page.goto(svg.as_uri())
    pictures = page.locator("image").all()
    read = """image => new Promise(done => { const loaded = new Image(); loaded.onload = () => {
        const canvas = document.createElementNS('http://www.w3.org/1999/xhtml', 'canvas');
        canvas.width = loaded.width; canvas.height = loaded.height;
        canvas.getContext('2d').drawImage(loaded, 0, 0); done(canvas.toDataURL());
    }; loaded.src = image.getAttribute('href'); })"""
    arrays = [decoded(picture.evaluate(read)).astype(np.int64) for picture in pictures[:2]]
    weights = record[0].weights(5).numpy()
    step = arrays[0].shape[0] // 37
    cells, ramp = arrays[0][step // 2 :: step, step // 2 :: step][:37, :37], arrays[1][0]
    ramp = ramp[len(ramp) // 512 :: len(ramp) // 256][:256]
    places = np.sqrt(weights / weights.max()) * 255
    low, high = np.floor(places - 0.6).clip(0).astype(int), np.ceil(places + 0.6).clip(max=255).astype(int)
    for query, key in zip(*np.tril_indices(37), strict=True):
        near = ramp[low[query, key] : high[query, key] + 1]
        assert (np.abs(near - cells[query, key]).sum(-1) == 0).any(), (query, key)
    assert len(np.unique(cells[np.triu_indices(37, 1)], axis=0)) == 1, "masked pairs have one color"


def test_the_numbers_of_the_overview_are_those_of_the_heads(visit, opened, tmp_path):
    heads = opened[1]["r1"].record.heads
    for table in tables(visit("model"), tmp_path, "Heads"):
        assert plain(table["layer"]) == list(heads["layer"]) and list(table["head"]) == list(heads["head"])
        for name in ("entropy", "max_weight", "distance", "role.previous token"):
            assert np.allclose(pandas.to_numeric(table[name]), heads[name], rtol=1e-6, equal_nan=True)


def test_the_numbers_of_a_map_are_its_weights(visit, record, tmp_path):
    page = visit("head")
    weights = record[0].weights(5).numpy()
    for table in tables(page, tmp_path, "Weights"):
        assert np.allclose(table["weight"], weights.ravel(), rtol=1e-5, atol=1e-12)
        assert list(table["allowed"]) == np.tril(np.ones((37, 37), bool)).ravel().tolist()
        assert list(table["query_token"])[36:38] == ["q0.0", "q0.1"] and list(table["key_token"])[:2] == [
            "q0.0",
            "q0.1",
        ]
        assert set(table["layer"]) == {"own"} and set(table["head"]) == {5} and set(table["cell"]) == {1}
    assert titles(page) == ["Weights", "entropy of each query", "received of each key"]
    for table in tables(page, tmp_path, "entropy of each query"):
        assert np.allclose(table["mean"], record[0].entropy[0, 5], rtol=1e-6)
    for table in tables(page, tmp_path, "received of each key"):
        assert np.allclose(table["mean"], record[0].received[0, 5], rtol=1e-6)


def test_a_large_map_gives_the_cells_that_are_seen(visit, long_record, tmp_path):
    weights = long_record[0].weights(1)
    padded = torch.nn.functional.pad(weights, (0, -len(weights) % 16, 0, -len(weights) % 16))
    cells = padded.unflatten(1, (-1, 16)).unflatten(0, (-1, 16)).amax((1, 3)).numpy()
    for table in tables(visit("far"), tmp_path, "Weights"):
        assert set(table["cell"]) == {16} and len(table) == 257 * 257
        drawn = np.zeros_like(cells)
        drawn[table["query"] // 16, table["key"] // 16] = table["weight"]
        # Cells of several tokens travel as logarithms of half precision.
        assert np.allclose(drawn, cells, rtol=5e-3)


def test_the_numbers_of_lines_are_those_of_the_window(visit, opened, tmp_path):
    record = opened[1]["r1"].record
    weights, tokens = record[2].weights(3), record.tokens[0]
    assert any(token.strip().startswith("=") for token in tokens), "one of them begins as a formula does"
    comma, columns = tables(visit("lines"), tmp_path, "Weights of the lines")
    assert plain(comma["key_token"]) == list(columns["key_token"])
    assert any(text.startswith("'") for text in comma["query_token"])
    assert len(columns) == sum(min(16, int((row >= 0.01).sum())) for row in weights)
    for line in columns.itertuples():
        assert line.weight == pytest.approx(float(weights[line.query, line.key]), rel=1e-6)
        assert line.query_token == tokens[line.query]


def test_heads_side_by_side_have_a_table_each(visit, opened, record, tmp_path):
    page = visit("compare")
    want = [record[0].weights(1), record[1].weights(0), opened[1]["r1"].record[1].weights(0)]
    assert len(titles(page)) == 3
    for title, weights in zip(titles(page), want, strict=True):
        for table in tables(page, tmp_path, title):
            assert np.allclose(table["weight"], weights.flatten(), rtol=1e-5, atol=1e-12)


def test_the_numbers_of_changes_are_differences(visit, opened, tmp_path):
    page, (before, after) = visit("changes"), (opened[1][name].record for name in ("r1", "r2"))
    want = np.concatenate(
        [(b.mean("entropy") - a.mean("entropy"))[0] for a, b in zip(before, after, strict=True)]
    )
    for table in tables(page, tmp_path, "Heads"):
        assert np.allclose(table["difference"], want, rtol=1e-5, atol=1e-7)
        assert np.allclose(table["after"] - table["before"], table["difference"])
        assert [text for text in table["change"].fillna("") if text] == ["off"]
    line = opened[1]["r2"].next_tokens.at(6)
    for table in tables(page, tmp_path, "Next tokens"):
        assert list(table["token"]) == [one.token for one in line.tokens]
        assert np.allclose(table["after"], [one.probability for one in line.tokens], rtol=1e-6)
    divergence = opened[1]["r2"].next_tokens.arrays["divergence"]
    for table in tables(page, tmp_path, "Divergence of the next token"):
        assert np.allclose(table["divergence"], divergence, rtol=1e-6, atol=1e-9)


def test_the_numbers_of_a_check_are_its_findings(visit, opened, tmp_path):
    page, diagnosis = visit("check"), diagnose(opened[1]["r1"].record)
    for table in tables(page, tmp_path, "Findings"):
        assert list(table["name"]) == [one.name for one in diagnosis.findings] and len(table) > 0
        assert np.allclose(pandas.to_numeric(table["value"]), [one.value for one in diagnosis.findings])
        assert [int(head) for head in table["head"]] == [one.head for one in diagnosis.findings]
    for table in tables(page, tmp_path, "Rules"):
        assert len(table) == len(diagnosis.applied) + len(diagnosis.skipped)


def test_the_numbers_of_the_playground_are_its_answer(visit, tmp_path):
    page, shown = visit("playground"), answer(PlaygroundState(kind="window", seed=7, length=29))
    weights = shown.arrays["weights"]
    for table in tables(page, tmp_path, "Weights of all heads"):
        assert np.allclose(table["weight"], weights.flatten(), rtol=1e-5, atol=1e-12)
        assert list(table["head"]) == np.repeat(np.arange(4), 29 * 29).tolist()
    for table in tables(page, tmp_path, "Entropy of all heads"):
        assert np.allclose(table["entropy"], shown.arrays["entropy"].flatten(), rtol=1e-6, atol=1e-7)


def test_the_python_of_every_view_gives_its_numbers(visit, tmp_path):
    def run(name: str) -> tuple[dict, list[pandas.DataFrame]]:
        page, names = visit(name), {}
        exec(compile(taken(page, tmp_path, "Save Python").read_text(), name, "exec"), names)
        read = [tables(page, tmp_path, title)[1] for title in titles(page)]
        return names, read

    def same(values, wanted, rtol: float = 1e-5) -> None:
        assert np.allclose(
            np.asarray(values, float).ravel(), wanted.astype(float), rtol=rtol, atol=1e-7, equal_nan=True
        )

    names, read = run("model")
    same(names["heads"]["entropy"], read[0]["entropy"])
    names, read = run("head")
    same(names["weights"], read[0]["weight"])
    assert names["figure"].axes, "a figure was drawn"
    names, read = run("far")
    same(names["weights"], read[0]["weight"])
    names, read = run("lines")
    assert [one[:2] for one in names["lines"]] == list(zip(read[0]["query"], read[0]["key"], strict=True))
    same([one[2] for one in names["lines"]], read[0]["weight"])
    names, read = run("compare")
    for weights, table in zip(names["weights"], read, strict=True):
        same(weights, table["weight"])
    names, read = run("changes")
    same(names["difference"], read[0]["difference"], 1e-4)
    names, read = run("check")
    same(names["findings"]["value"], read[0]["value"])
    names, read = run("playground")
    same(names["weights"], read[0]["weight"])
    same(names["entropy"], read[1]["entropy"])


def test_the_menu_is_worked_by_keyboard_and_says_what_it_does(visit, chromium, tmp_path):
    page = visit("head", permissions=["clipboard-read", "clipboard-write"])
    opener = page.get_by_role("button", name="Export", exact=True)
    opener.focus()
    page.keyboard.press("Enter")
    menu = page.get_by_role("group", name="Export what is seen")
    menu.wait_for()
    focused = "document.activeElement.textContent"
    assert page.evaluate(focused) == "PNG" and opener.get_attribute("aria-expanded") == "true"
    page.keyboard.press("ArrowDown")
    assert page.evaluate(focused) == "SVG"
    with page.expect_download() as download:
        page.keyboard.press("Enter")
    assert download.value.suggested_filename == "regard-A-pair-layer-own-head-5-map.svg"
    menu.get_by_role("status").filter(has_text="Saved regard-A-pair-layer-own-head-5-map.svg").wait_for()
    page.keyboard.press("ArrowUp")
    page.keyboard.press("ArrowUp")
    page.keyboard.press("ArrowUp")
    assert page.evaluate("document.activeElement.getAttribute('aria-label')") == "Copy Python"
    page.keyboard.press("Enter")
    menu.get_by_role("status").filter(has_text="Python copied").wait_for()
    assert "record[0].weights(5" in page.evaluate("navigator.clipboard.readText()")
    page.keyboard.press("Escape")
    assert not menu.is_visible() and page.evaluate(focused) == "Export"


def test_python_that_may_not_be_copied_is_shown(visit):
    page = visit("check")
    page.evaluate("() => { navigator.clipboard.writeText = () => Promise.reject(new Error('no')); }")
    open_menu(page).get_by_role("button", name="Copy Python").click()
    shown = page.get_by_label("Python", exact=True)
    shown.wait_for()
    assert "diagnose(record)" in shown.input_value()


def test_what_cannot_be_written_is_said(visit):
    page = visit("playground")
    page.route(
        "**/api/pdf", lambda route: route.fulfill(status=400, json={"detail": "matplotlib is not installed"})
    )
    open_menu(page).get_by_role("button", name="PDF").click()
    page.get_by_role("alert").filter(has_text="matplotlib is not installed").wait_for()


def test_dark_colors_are_for_who_asks(visit, tmp_path):
    page = visit("model", theme="dark")
    light = np.asarray(Image.open(taken(page, tmp_path, "PNG")).convert("RGB"))
    page.get_by_label("in dark colors").check()
    dark = np.asarray(Image.open(taken(page, tmp_path, "PNG")).convert("RGB"))
    assert (light[:10] == 255).all() and (dark[:10] == [0x17, 0x19, 0x1F]).all()
    assert light.shape == dark.shape


@pytest.mark.parametrize("name", ["model", "head", "compare", "playground"])
def test_the_open_menu_has_no_fault_and_fits_the_screen(visit, shot, name):
    page = visit(name)
    menu = open_menu(page)
    for look in looked.LOOKS:
        looked.put(page, look)
        shot(page, f"export-menu-{name}-{look}")
        box = menu.bounding_box()
        assert box["x"] >= 0 and box["x"] + box["width"] <= page.viewport_size["width"]
        looked.check(page)
