"""The explorer in a real browser: the built front end, a server in this process, what a test reads from the page."""

from __future__ import annotations

import base64
import io
import re
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cached_property
from pathlib import Path

import numpy as np
import pytest
import torch
import uvicorn
from PIL import Image

import regard as rg
from house import guards
from regard.explorer import serve
from regard.explorer.app import create_app
from regard.explorer.jobs import Jobs
from regard.explorer.opened import Model, Opened
from regard.explorer.security import Access
from regard.explorer.worker import Worker
from regard.web.tiles import RecordTiles

SHOTS = guards.ROOT / "build" / "screenshots"
BUNDLE = guards.SOURCE / "web" / "bundle" / "index.html"
LONG = 4099
SPIKE = (3137, 1013)

FLAGS = (
    *("--headless", "--no-sandbox", "--disable-gpu", "--disable-background-networking"),
    *("--disable-component-update", "--disable-sync", "--no-first-run"),
)


class Given(torch.nn.Module):
    """Attention of queries and keys as they are."""

    def forward(self, query, key):
        return rg.attend(query, key, key)


@pytest.fixture(scope="session")
def long_record():
    """Two heads of 4099 tokens; a lone weight of 0.5 is planted in each, at SPIKE."""
    generator = torch.Generator().manual_seed(11)
    query, key = (torch.randn(1, 2, LONG, 16, generator=generator) for _ in range(2))
    row, column = SPIKE
    rest = torch.logsumexp((query[:, :, row] @ key[0, 0].T / 4)[0], -1)[0]
    # The key is moved along the query until its score is as large as all others together.
    for head in range(2):
        direction = query[0, head, row]
        key[0, head, column] = direction * (4 * rest / (direction @ direction))
    model = Given().eval()
    with torch.no_grad(), rg.watch(model, keep="vectors", map=256) as record:
        model(query, key)
    return record


@pytest.fixture(scope="session")
def server(record, long_record) -> Iterator[str]:
    """The address of a server that has both records open, with the token that lets in."""
    if not BUNDLE.is_file():
        pytest.fail("the front end is not built: make web")
    stand_in = Path(__file__).parents[1] / "stand_in.py"
    opened = Opened([Model("fast", "Fast", "transformers", source="fast", example="")])
    opened.add(RecordTiles(record), "A pair", "import regard as rg\n\nrecord = rg.load(FOLDER)")
    opened.add(RecordTiles(long_record), "A long one", "record = ...")
    jobs, access = Jobs(opened, Worker([sys.executable, str(stand_in)])), Access()
    listening = serve.bind(access, 0)
    app = create_app(opened, jobs, access)
    running = uvicorn.Server(uvicorn.Config(app, log_level="error"))
    thread = threading.Thread(target=running.run, kwargs={"sockets": [listening]}, daemon=True)
    thread.start()
    yield serve.address(access, listening)
    running.should_exit = True
    thread.join(10)
    listening.close()
    jobs.close()


# Not of the session: its event loop runs in this thread, where other tests run their own.
@pytest.fixture(scope="module")
def chromium(browser_path):
    """A browser for the tests of one module."""
    playwright = pytest.importorskip("playwright.sync_api")
    with playwright.sync_playwright() as play:
        browser = play.chromium.launch(executable_path=browser_path, args=list(FLAGS))
        yield browser
        browser.close()


@pytest.fixture
def visit(chromium, server):
    """A context that opens a view by its hash; the page must not complain of anything."""

    @contextmanager
    def opened(view: str, *, width: int = 1280, height: int = 800, theme: str = "light", quiet: bool = True):
        context = chromium.new_context(
            viewport={"width": width, "height": height}, color_scheme=theme, reduced_motion="reduce"
        )
        page = context.new_page()
        complaints: list[str] = []
        page.on(
            "console",
            lambda line: complaints.append(line.text) if line.type in ("error", "warning") else None,
        )
        page.on("pageerror", lambda error: complaints.append(str(error)))
        # The token becomes a cookie, and is then no longer in the address.
        page.goto(f"{server}{view}")
        yield page
        # The browser remarks on pixels that a test reads, OpenSeadragon on a tile that comes late: no visitor minds.
        usual = ("getImageData", "willReadFrequently", "Ignoring tile")
        unexpected = [line for line in complaints if not any(part in line for part in usual)]
        context.close()
        assert not quiet or unexpected == []

    return opened


def decoded(address: str) -> np.ndarray:
    """`(height, width, 3)` of a picture that a canvas has written."""
    data = base64.b64decode(address.partition(",")[2])
    return np.asarray(Image.open(io.BytesIO(data)).convert("RGB"))


def legend(page) -> np.ndarray:
    """`(256, 3)`: the colors of the legend."""
    return decoded(page.locator(".legend canvas").first.evaluate("canvas => canvas.toDataURL()"))[0]


def shades(colors: np.ndarray, ramp: np.ndarray) -> np.ndarray:
    """The places of colors on a legend, 0 … 255; NaN where a color is none of it, such as that of masked pairs."""
    packed, known = (array.astype(np.int64) @ [1 << 16, 1 << 8, 1] for array in (colors, ramp))
    # Neighbors of the ramp may share a color: the middle of them.
    places = {color: np.flatnonzero(known == color).mean() for color in known}
    drawn, inverse = np.unique(packed, return_inverse=True)
    return np.array([places.get(color, np.nan) for color in drawn])[inverse].reshape(packed.shape)


class Map:
    """The map of a page, and how its pixels are read: by the legend beside it, as a reader does."""

    def __init__(self, page, index: int = 0) -> None:
        self.page = page
        self.pane = page.locator(".pane").nth(index)
        self.wait()

    def wait(self) -> None:
        """Wait until all tiles are drawn."""
        handle = self.pane.element_handle()
        self.page.wait_for_timeout(60)
        self.page.wait_for_function("pane => pane.dataset.state === 'ready'", arg=handle)
        # A new largest weight colors the map once more.
        self.page.wait_for_timeout(120)

    def pixels(self) -> np.ndarray:
        """`(height, width, 3)` of what is drawn."""
        canvas = self.pane.locator(".openseadragon-canvas canvas").first
        return decoded(canvas.evaluate("canvas => canvas.toDataURL()"))

    def ramp(self) -> np.ndarray:
        """`(256, 3)`: the colors of the legend."""
        return legend(self.page)

    def shades(self, colors: np.ndarray) -> np.ndarray:
        """The places of colors on the legend; NaN where a color is none of it, such as that of masked pairs."""
        return shades(colors, self.ramp())

    @cached_property
    def box(self) -> dict[str, float]:
        """The place of the map on the page."""
        return self.pane.locator(".openseadragon-canvas").bounding_box()

    def point(self, query: float, key: float, size: tuple[int, int]) -> tuple[int, int]:
        """The pixel of the middle of a pair, in the whole map of `size` (queries, keys)."""
        box = self.box
        cell = min(box["width"] / size[1], box["height"] / size[0])
        left, top = (box["width"] - cell * size[1]) / 2, (box["height"] - cell * size[0]) / 2
        return int(left + (key + 0.5) * cell), int(top + (query + 0.5) * cell)

    def hover(self, x: float, y: float) -> None:
        """Move the pointer to a pixel of the map."""
        box = self.box
        self.page.mouse.move(box["x"] + x, box["y"] + y)
        self.page.wait_for_timeout(30)


def choose(page, label: str, value: str) -> None:
    """Choose from the list beside a label."""
    page.locator("label.field").filter(has_text=re.compile(rf"^\s*{label}")).locator("select").select_option(
        value
    )


@pytest.fixture
def map_of():
    """Reads the map of a page."""
    return Map


@pytest.fixture
def shot():
    """Keeps a picture of the page for whoever looks at it."""

    def keep(page, name: str) -> None:
        SHOTS.mkdir(parents=True, exist_ok=True)
        page.screenshot(path=str(SHOTS / f"{name}.png"))

    return keep
