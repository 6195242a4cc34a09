"""Records and histories in marimo, in a real browser: its cells show the explorer, which is answered there too."""

import os
import socket
import subprocess
import sys
import time

import numpy as np
import pytest
from playwright.sync_api import expect

from explorer.browser.test_notebook import MAKE, wait_for_port
from regard.explorer.app import bundle

MAKE_HISTORY = """
from helpers.histories import random_history

history = random_history(5, 2, 3)
"""
CELLS = (
    ("", MAKE + MAKE_HISTORY, "record, history"),
    ("record", "record[1]", ""),
    ("history", "history", ""),
)


def cell(needs, source, gives):
    """A cell as marimo writes it into its files."""
    body = "\n".join(f"    {line}" for line in source.strip().splitlines())
    return f"@app.cell\ndef _({needs}):\n{body}\n    return ({gives})\n"


@pytest.fixture(scope="module")
def page(tmp_path_factory, chromium):
    """A notebook that marimo runs, once its cells are drawn."""
    if not (bundle() / "widget").is_dir():
        message = "the front end is not built: `make web` does it"
        pytest.fail(message) if os.environ.get("CI") else pytest.skip(message)
    folder = tmp_path_factory.mktemp("marimo")
    cells = "\n\n".join(cell(*parts) for parts in CELLS)
    (folder / "look.py").write_text(f"import marimo\n\napp = marimo.App()\n\n\n{cells}")
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    options = ("run", "look.py", "--headless", "--no-token", "--host", "127.0.0.1", "--port", str(port))
    # Its settings and its state are read from there, and not from the user's home.
    home = {"XDG_CONFIG_HOME": str(folder), "XDG_STATE_HOME": str(folder), "XDG_CACHE_HOME": str(folder)}
    with (folder / "log").open("w") as log:
        server = subprocess.Popen(
            [sys.executable, "-m", "marimo", "-q", *options],
            env=os.environ | home | {"PYTHONPATH": os.pathsep.join(sys.path)},
            cwd=folder,
            stdout=log,
            stderr=log,
        )
        try:
            wait_for_port(port, server, folder / "log")
            page = chromium.new_page(viewport={"width": 1280, "height": 1600})
            page.goto(f"http://127.0.0.1:{port}/")
            page.wait_for_selector(".regard-notebook .pane[data-state=ready]", timeout=90_000)
            yield page
            page.close()
        finally:
            server.terminate()
            server.wait(30)


def test_a_call_shows_the_weight_under_the_pointer(page):
    names = {}
    exec(MAKE, names)
    one = page.locator(".regard-notebook").nth(0)
    one.locator(".openseadragon-canvas").focus()
    for key in ("ArrowDown", "ArrowDown", "ArrowRight"):
        page.keyboard.press(key)
    tokens = one.locator(".token[title^=query], .token[title^=key]")
    expect(tokens).to_have_count(2)
    query, key = (int(text.split()[1]) for text in tokens.evaluate_all("all => all.map(one => one.title)"))
    expected = float(names["record"][1].weights(0)[query, key])
    weight = one.locator("[data-weight]")
    for _ in range(300):
        shown = weight.get_attribute("data-weight")
        if shown is not None and np.isclose(float(shown), expected, atol=1e-6):
            return
        time.sleep(0.1)
    pytest.fail(f"the weight must be {expected}, got {shown}")


def test_a_history_shows_its_heads(page, shot):
    from helpers.histories import random_history

    history = random_history(5, 2, 3)
    one = page.locator(".regard-notebook").nth(1)
    expect(one.get_by_text(f"step {history.steps[-1]}", exact=False).first).to_be_visible(timeout=60_000)
    shot(page, "marimo")
    value = float(history.of_statistic("entropy_fraction")[-1, 0])
    expect(one).to_contain_text(f"{value:.3g}")
