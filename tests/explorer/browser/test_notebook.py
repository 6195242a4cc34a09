"""Records in JupyterLab, in a real browser: seen, driven, and compared with the Python API."""

import json
import os
import re
import socket
import subprocess
import sys
import time

import numpy as np
import pandas
import pytest
from playwright.sync_api import expect

from helpers.exports import rendered
from regard.explorer.app import bundle

MAKE = """
import torch
import regard as rg

torch.manual_seed(3)
model = torch.nn.Sequential(rg.nn.MultiHeadAttention(24, 6, mask=rg.causal()), rg.nn.MultiHeadAttention(24, 2))
words = [[f"w{place}" for place in range(37)]]
with torch.no_grad(), rg.watch(model, keep="vectors", map=64, tokens=words) as record:
    model(3 * torch.randn(1, 37, 24))
"""
CELLS = (
    MAKE.strip(),
    "record",
    "record[1]",
    "from regard.explorer import notebook; notebook.shown().opened.close('r1')",
)
CORNERS = """canvas => [[canvas.width - 1, 0], [0, 0]]
    .map(at => [...canvas.getContext('2d').getImageData(...at, 1, 1).data])"""
GRAY = [226, 226, 228, 255]


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A folder with a notebook."""
    if not (bundle() / "widget").is_dir():
        message = "the front end is not built: `make web` does it"
        pytest.fail(message) if os.environ.get("CI") else pytest.skip(message)
    folder = tmp_path_factory.mktemp("lab")
    cells = [
        {"cell_type": "code", "id": f"c{number}", "metadata": {}, "outputs": [], "source": source}
        | {"execution_count": None}
        for number, source in enumerate(CELLS)
    ]
    kernel = {"kernelspec": {"name": "python3", "display_name": "Python 3", "language": "python"}}
    text = json.dumps({"cells": cells, "metadata": kernel, "nbformat": 4, "nbformat_minor": 5})
    (folder / "look.ipynb").write_text(text)
    return folder


@pytest.fixture(scope="module")
def lab(folder):
    """The address of the notebook in a JupyterLab of its own."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    options = [
        "--no-browser",
        "--allow-root",
        f"--port={port}",
        "--ip=127.0.0.1",
        "--IdentityProvider.token=token",
        f"--ServerApp.root_dir={folder}",
        "--LabApp.news_url=None",
        "--LabApp.check_for_updates_class=jupyterlab.NeverCheckForUpdate",
    ]
    own = {
        name: str(folder / name.lower())
        for name in ("JUPYTER_CONFIG_DIR", "IPYTHONDIR", "JUPYTER_RUNTIME_DIR")
    }
    with (folder / "log").open("w") as log:
        server = subprocess.Popen(
            [sys.executable, "-m", "jupyterlab", *options], env=os.environ | own, stdout=log, stderr=log
        )
        try:
            wait_for_port(port, server, folder / "log")
            yield f"http://127.0.0.1:{port}/doc/tree/look.ipynb?token=token"
        finally:
            server.terminate()
            server.wait(30)


def wait_for_port(port, server, log):
    """Until the server listens."""
    for _ in range(600):
        try:
            return socket.create_connection(("127.0.0.1", port), 1).close()
        except OSError:
            assert server.poll() is None, log.read_text()
            time.sleep(0.1)
    pytest.fail(log.read_text())


def run(page, number):
    """Run a cell, once more where that was lost all the same."""
    cell = page.locator(f".jp-CodeCell >> nth={number}")
    for _ in range(3):
        cell.locator(".cm-content").click()
        page.keyboard.press("Shift+Enter")
        try:
            return expect(cell.locator(".jp-InputPrompt")).to_have_text(
                re.compile(r"\[[\d*]+\]"), timeout=8000
            )
        except AssertionError:
            continue
    pytest.fail(f"cell {number} does not run")


@pytest.fixture(scope="module")
def page(lab, chromium):
    """The notebook, its first three cells run."""
    page = chromium.new_page(viewport={"width": 1280, "height": 900})
    page.goto(lab)
    page.wait_for_selector(".jp-Notebook-ExecutionIndicator[data-status=idle]", timeout=90_000)
    # A cell that is run before the kernel's first answers have come is silently lost.
    time.sleep(2)
    for number in range(3):
        run(page, number)
    page.wait_for_selector(".regard-notebook .tile canvas", timeout=90_000)
    yield page
    page.close()


@pytest.fixture(scope="module")
def record():
    """What the notebook's first cell makes."""
    names = {}
    exec(MAKE, names)
    return names["record"]


def head_of(view):
    """The list in which a head is chosen."""
    return view.locator("label.field", has_text=re.compile(r"^\s*Head")).locator("select")


def test_the_record_shows_its_heads(page, record):
    whole = page.locator(".regard-notebook").nth(0)
    expect(whole.locator(".tile")).to_have_count(8)
    tile = whole.locator(".tile canvas").nth(0)
    page.wait_for_function("canvas => canvas.width > 30", arg=tile.element_handle())
    corner, first = tile.evaluate(CORNERS)
    assert corner == GRAY and first != GRAY, "the mask is gray, the first token's weight on itself is not"
    assert page.title() == "look.ipynb - JupyterLab", "the title is the notebook's"


def test_a_call_shows_its_head_and_the_weight_under_the_pointer(page, record):
    one = page.locator(".regard-notebook").nth(1)
    one.locator(".pane[data-state=ready]").wait_for(timeout=30_000)
    one.locator(".openseadragon-canvas").focus()
    for key in ("ArrowDown", "ArrowDown", "ArrowRight", "ArrowRight", "ArrowRight"):
        page.keyboard.press(key)
    weight = one.locator("[data-weight]")
    weight.wait_for()
    query, key = (
        int(re.sub(r"\D", "", one.locator(f".token[title^={side}]").get_attribute("title")))
        for side in ("query", "key")
    )
    expect(one.locator(f".token[title='query {query}']")).to_contain_text(f"w{query}")
    expect(weight).to_have_attribute("data-weight", re.compile(r"\d"))
    time.sleep(0.3)
    shown = float(weight.get_attribute("data-weight"))
    assert shown == pytest.approx(float(record[1].weights(0)[query, key]), abs=1e-6)


def test_a_view_is_taken_away_over_the_notebooks_channel(page, record, tmp_path):
    one = page.locator(".regard-notebook").nth(1)
    one.locator(".pane[data-state=ready]").wait_for(timeout=30_000)
    one.get_by_role("button", name="Export", exact=True).click()
    files = {}
    for kind in ("PDF", "Weights, Parquet"):
        with page.expect_download(timeout=60_000) as download:
            one.get_by_role("button", name=kind, exact=True).click()
        files[kind] = tmp_path / download.value.suggested_filename
        download.value.save_as(files[kind])
    page.keyboard.press("Escape")
    assert re.search(r"w\d", rendered(files["PDF"], 1)[1])
    table = pandas.read_parquet(files["Weights, Parquet"])
    # Which part of the map is seen depends on the cell's room.
    weights = record[1].weights(0).numpy()[table["query"], table["key"]]
    assert len(table) > 4 and np.allclose(table["weight"], weights, rtol=1e-5, atol=1e-12)


def test_keys_are_heard_by_the_view_that_they_are_pressed_in(page):
    one = page.locator(".regard-notebook").nth(1)
    chosen = head_of(one)
    expect(chosen).to_have_value("0")
    one.locator(".openseadragon-canvas").focus()
    page.keyboard.press("]")
    expect(chosen).to_have_value("1")
    page.locator(".jp-CodeCell >> nth=3").locator(".cm-content").click()
    page.keyboard.press("Control+End")
    page.keyboard.type("  # [[")
    expect(chosen).to_have_value("1")


def test_what_went_wrong_is_said_in_the_view(page):
    page.locator(".jp-CodeCell >> nth=3").locator(".cm-content").click()
    page.keyboard.press("Shift+Enter")
    time.sleep(1)
    one = page.locator(".regard-notebook").nth(1)
    head_of(one).select_option("0")
    one.locator(".openseadragon-canvas").focus()
    page.keyboard.press("ArrowLeft")
    page.keyboard.press("ArrowUp")
    expect(one.locator(".fault").first).to_contain_text("must be an open one", timeout=15_000)
