"""Take the pictures of the explorer in README and docs, `docs/pictures/*.webp`: `python scripts/write_pictures.py`.

`regard explore` is started as a user starts it, the embedded model reads two texts, and Chromium shows six views. Names
on the command line take those pictures alone. It needs the built front end (`make web`) and a `chromium` on the `PATH`.
"""

from __future__ import annotations

import colorsys
import inspect
import re
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from io import BytesIO
from pathlib import Path

from PIL import Image
from playwright.sync_api import Browser, Page, sync_playwright

from regard import files

PICTURES = Path(__file__).parents[1] / "docs" / "pictures"
# Bytes of a picture, at most.
MOST = 150_000
# Milliseconds: the machine may be busy.
PATIENCE = 120_000
# Two functions of the standard library that are alike: heads that look back at what was the same find much.
TEXT = "\n\n".join(inspect.getsource(part) for part in (colorsys.rgb_to_hls, colorsys.rgb_to_hsv))


@dataclass(frozen=True)
class View:
    """A view, and what stands there once it is drawn.

    Attributes:
        hash: its address, in which r1 is the record of the short text and r2 that of `TEXT`.
        ready: what to wait for, a selector.
        height: of the page, in pixels; it is 1280 wide.
        scale: pixels of the picture to one of the page. Of thousands of small cells, more would show paler ones.
        act: what a visitor does before the picture is taken.
    """

    hash: str
    ready: str
    height: int = 800
    scale: float = 1.5
    act: Callable[[Page], object] = lambda page: None


def with_text(page: Page) -> None:
    """Write the text that was run into its field."""
    page.get_by_label("Text").fill(TEXT)
    page.get_by_label("Text").evaluate("area => (area.scrollTop = 0, area.blur())")


def to_the_query(page: Page) -> None:
    """Show the token that is held, and what it attends to, which stands above."""
    page.locator(".lines").evaluate("lines => lines.scrollTop = 150")


VIEWS = {
    "model": View("#/model?record=r2&color=entropy", "a.tile canvas", 894, act=with_text),
    "head": View(
        "#/head?record=r2&call=3&head=6&query=421&key=226&view=196,396,242,442", ".pane[data-state=ready]"
    ),
    # "counts" begins a third time: the head has found how it went on before.
    "lines": View("#/head?record=r1&call=2&head=4&panel=lines&query=51", ".drawing li", act=to_the_query),
    "compare": View("#/compare?record=r2&heads=1.0 2.0 3.6", ".pane[data-state=ready]", 720, scale=1),
    "flow": View("#/flow?record=r1", "table", 706),
    "playground": View("#/playground", ".sentences", 920),
}


@contextmanager
def explorer() -> Iterator[str]:
    """The address of `regard explore`, which ends with the context."""
    command = [sys.executable, "-m", "regard", "explore", "--no-browser"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as server:
        assert server.stdout is not None
        try:
            for line in server.stdout:
                if address := re.search(r"http://\S+", line):
                    yield address.group()
                    return
            raise RuntimeError("regard explore must print its address, and ended without one")
        finally:
            server.terminate()


def compressed(png: bytes) -> bytes:
    """A screenshot as WebP: without loss where that is small enough, else with what loss it takes.

    Raises:
        ValueError: it is larger than `MOST` all the same.
    """
    image = Image.open(BytesIO(png)).convert("RGB")
    for options in ({"lossless": True}, *({"quality": quality} for quality in range(95, 45, -5))):
        written = BytesIO()
        image.save(written, "WEBP", method=6, **options)
        if written.tell() <= MOST:
            return written.getvalue()
    raise ValueError(f"a picture must be at most {MOST} bytes, got {written.tell()}")


def take(browser: Browser, address: str, view: View) -> bytes:
    """One picture."""
    page = browser.new_page(
        viewport={"width": 1280, "height": view.height},
        device_scale_factor=view.scale,
        color_scheme="light",
        reduced_motion="reduce",
    )
    # The token of the address becomes a cookie.
    page.goto(address)
    page.goto(f"{address.partition('?')[0]}{view.hash}")
    page.locator(view.ready).first.wait_for(state="attached", timeout=PATIENCE)
    view.act(page)
    # Weights that are still to come change the scale of the colors.
    page.wait_for_load_state("networkidle")
    page.wait_for_timeout(1500)
    picture = compressed(page.screenshot())
    page.close()
    return picture


def main(names: list[str]) -> None:
    """Take the pictures of these names, or all."""
    chromium = shutil.which("chromium") or shutil.which("chrome")
    with explorer() as address, sync_playwright() as play:
        browser = play.chromium.launch(executable_path=chromium, args=["--no-sandbox", "--disable-gpu"])
        page = browser.new_page()
        page.goto(address)
        page.get_by_label("Text").fill(TEXT)
        page.get_by_role("button", name="Run").click()
        page.wait_for_url("**record=r2**", timeout=PATIENCE)
        for name in names or VIEWS:
            picture = take(browser, address, VIEWS[name])
            files.write(PICTURES / f"{name}.webp", picture)
            print(f"{name}: {len(picture)} bytes")
        browser.close()


if __name__ == "__main__":
    main(sys.argv[1:])
