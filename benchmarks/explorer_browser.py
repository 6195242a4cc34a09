"""How soon does a reader see a long record in a browser, how smooth is it to move about, and is a lone weight seen?

A real Chromium without a GPU, the server as a process of its own, a record of 131 072 tokens and 12 heads.
"""

from __future__ import annotations

import os
import shutil
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
import torch

import regard as rg
from benchmarks import common
from benchmarks.explorer_server import start
from benchmarks.explorer_tiles import DIM, TOKENS, call_of, vectors
from regard.record import Record
from regard.web.tiles import tiles_of

BAR = (
    "first picture of 131 072 tokens ≤ 1 s after the page is open; a whole view ≤ 1 s; ≥ 50 frames a second and no "
    "task over 100 ms; ≤ 300 MB; a lone weight of 0.5 visible at every zoom level; an overview of 144 heads ≤ 2 s"
)
NAMES = ("chromium", "chromium-browser", "google-chrome", "chrome")
FLAGS = (
    *("--headless", "--no-sandbox", "--disable-gpu", "--disable-background-networking"),
    *("--disable-component-update", "--disable-sync", "--no-first-run", "--enable-precise-memory-info"),
)
# Heads and rows of views nobody has looked at before; tokens a side of such a view.
FIRST, VIEWS, VIEW = 5, 7, 3000
# Seconds of dragging and of the wheel.
MOVING = 4.0
# Where a weight of 0.5 stands alone.
LONE = (104_729, 39_916)
READY = "() => document.querySelector('.pane')?.dataset.state === 'ready'"
# Any pixel of the map that is neither empty nor the background of all.
DRAWN = """() => {
  const canvas = document.querySelector('.pane .openseadragon-canvas canvas');
  if (!canvas || !canvas.width) return false;
  const {data} = canvas.getContext('2d').getImageData(0, 0, canvas.width, canvas.height);
  const colors = new Set(new Uint32Array(data.buffer));
  return colors.size > 8;
}"""
# Pixels near a point of the map, in parts of its side, that are nearer to the middle of the legend than to its end.
SEEN = """([x, y]) => {
  const canvas = document.querySelector('.pane .openseadragon-canvas canvas'), context = canvas.getContext('2d');
  const legend = document.querySelector('.legend canvas');
  const ramp = legend.getContext('2d').getImageData(0, 0, legend.width, 1).data;
  const at = part => [0, 1, 2].map(i => ramp[4 * Math.round(part * (legend.width - 1)) + i]);
  const size = Math.min(canvas.width, canvas.height), n = 12;
  const [left, top] = [(canvas.width - size) / 2 + x * size, (canvas.height - size) / 2 + y * size].map(Math.round);
  const {data} = context.getImageData(left - n, top - n, 2 * n, 2 * n);
  const far = (i, color) => color.reduce((sum, part, j) => sum + (data[i + j] - part) ** 2, 0);
  let seen = 0;
  for (let i = 0; i < data.length; i += 4) if (far(i, at(0.5)) < far(i, at(0))) seen++;
  return seen;
}"""
# Goes to another address of the open page; milliseconds until its map, which must first be unfinished, is ready.
GO = """hash => new Promise(done => {
  const pane = document.querySelector('.pane'), begun = performance.now();
  let left = false;
  new MutationObserver((_, observer) => {
    if (pane.dataset.state !== 'ready') left = true;
    else if (left) { observer.disconnect(); done(performance.now() - begun); }
  }).observe(pane, {attributeFilter: ['data-state']});
  location.hash = hash;
})"""
ALL_DRAWN = """() => {
  const maps = [...document.querySelectorAll('.tile canvas')];
  return maps.length >= 144 && maps.every(one => one.width !== 300);
}"""
MOVE = """async seconds => {
  const frames = [], tasks = [];
  new PerformanceObserver(list => tasks.push(...list.getEntries().map(one => one.duration)))
    .observe({entryTypes: ['longtask']});
  const until = performance.now() + 1000 * seconds;
  await new Promise(done => {
    const frame = now => { frames.push(now); if (now < until) requestAnimationFrame(frame); else done(); };
    requestAnimationFrame(frame);
  });
  return {frames, tasks};
}"""


class Pages:
    """Pages of one browser on one server."""

    def __init__(self, browser: Any, address: str) -> None:
        self.browser, self.address = browser, address

    def open(self, view: str) -> tuple[Any, float]:
        """A new page that shows a view, and when it was asked for."""
        context = self.browser.new_context(viewport={"width": 1280, "height": 800})
        page = context.new_page()
        page.set_default_timeout(120_000)
        # The token becomes a cookie; the page is then opened by somebody who is let in.
        page.goto(self.address)
        page.goto("about:blank")
        begun = time.perf_counter()
        page.goto(self.address.partition("?")[0] + view)
        return page, begun


def seconds_until(page: Any, condition: str, begun: float) -> float:
    """Seconds from a moment until a page meets a condition."""
    page.wait_for_function(condition, polling=20)
    return time.perf_counter() - begun


def first_pictures(pages: Pages) -> dict[str, Any]:
    """Heads that nobody has looked at: seconds until something is drawn, and until all of it is sharp."""
    drawn, sharp = [], []
    for head in range(1, 1 + FIRST):
        page, begun = pages.open(f"#/head?record=r1&call=0&head={head}")
        drawn.append(seconds_until(page, DRAWN, begun))
        if head == 1:
            sharp.append(seconds_until(page, READY, begun))
        page.context.close()
    return {"drawn_s": drawn, "drawn_median_s": statistics.median(drawn), "sharp_s": sharp}


def whole_views(pages: Pages) -> dict[str, Any]:
    """Views of single cells and of cells of 4 that nobody has seen: seconds until all of it is sharp.

    In a page that is open, as by a bookmark, and in one that is opened by a link, in a context without a cache.
    """
    figures: dict[str, Any] = {}
    random = np.random.default_rng(7)
    for side in (VIEW, 500):
        links = []
        for index in range(2 * VIEWS):
            row = int(random.integers(VIEW, TOKENS - VIEW))
            column = int(random.integers(0, row - side // 2))
            region = ",".join(str(number) for number in (column, row, column + side, row + side))
            links.append(f"#/head?record=r1&call=0&head={6 + index % 5}&view={region}")
        opened = []
        for link in links[:VIEWS]:
            page, begun = pages.open(link)
            page.wait_for_selector(".pane")
            opened.append(seconds_until(page, READY, begun))
            page.context.close()
        page, _ = pages.open(links[VIEWS - 1])
        page.wait_for_function(READY)
        within = [page.evaluate(GO, link) / 1000 for link in links[VIEWS:]]
        page.context.close()
        figures[f"{side} tokens a side"] = {
            "seconds": within,
            "median_s": statistics.median(within),
            "by_a_link_seconds": opened,
            "by_a_link_median_s": statistics.median(opened),
        }
    return figures


def movement(pages: Pages) -> dict[str, Any]:
    """Frames while a map is dragged and zoomed, the longest task, and the script's memory."""
    page, _ = pages.open("#/head?record=r1&call=0&head=1")
    page.wait_for_function(READY)
    box = page.locator(".pane .openseadragon-canvas").bounding_box()
    x, y = box["x"] + box["width"] / 2, box["y"] + box["height"] / 2
    page.mouse.move(x, y)
    page.evaluate(f"seconds => {{ window.moved = ({MOVE})(seconds); }}", MOVING)
    begun, step = time.perf_counter(), 0
    page.mouse.down()
    while time.perf_counter() - begun < MOVING:
        step += 1
        if step % 12 == 0:
            page.mouse.up()
            page.mouse.wheel(0, -240 if step % 24 else 240)
            page.mouse.down()
        page.mouse.move(x + 150 * np.sin(step / 6), y + 100 * np.cos(step / 6))
    page.mouse.up()
    seen = page.evaluate("() => window.moved")
    gaps = np.diff(seen["frames"])
    memory = page.evaluate("() => performance.memory.usedJSHeapSize") / 1e6
    page.context.close()
    return {
        "frames_a_second": 1000 / float(gaps.mean()),
        "longest_frame_ms": float(gaps.max()),
        "long_tasks_ms": seen["tasks"],
        "script_heap_mb": memory,
    }


def lone_weight(pages: Pages) -> dict[str, Any]:
    """At each halving from the whole map down to 64 tokens: pixels about a lone weight whose color is its own."""
    view = "#/head?record=r1&call=0&head=0&scale=linear&range=one"
    page, _ = pages.open(view)
    page.wait_for_function(READY)
    (row, column), levels, side = LONE, {}, TOKENS
    while side >= 64:
        left, top = (min(max(at - side // 2, 0), TOKENS - side) for at in (column, row))
        region = ",".join(str(number) for number in (left, top, left + side, top + side))
        page.evaluate("hash => { location.hash = hash }", f"{view}&view={region}")
        page.wait_for_timeout(700)
        page.wait_for_function(READY)
        page.wait_for_timeout(300)
        at = [(column + 0.5 - left) / side, (row + 0.5 - top) / side]
        levels[str(side)] = page.evaluate(SEEN, at)
        side //= 2
    page.context.close()
    return {"pixels_by_tokens_a_side": levels, "levels_where_it_is_seen": sum(n > 0 for n in levels.values())}


def overview(pages: Pages) -> dict[str, Any]:
    """Seconds from the address until the maps of all 144 heads are drawn."""
    seconds = []
    for _ in range(3):
        page, begun = pages.open("#/model?record=r1")
        seconds.append(seconds_until(page, ALL_DRAWN, begun))
        page.context.close()
    return {"seconds": seconds}


def child_lone(folder: str) -> None:
    """A record of one head in which one weight of 0.5 stands alone."""
    common.prepare()
    query, key = vectors(1, TOKENS)
    row, column = LONE
    rest = torch.logsumexp((query[0, 0, row] @ key[0, 0, : row + 1].T) / DIM**0.5, -1)
    # As large as all others of its row together, and at right angles to those of other rows as far as chance goes.
    direction = query[0, 0, row]
    key[0, 0, column] = direction * (DIM**0.5 * rest / (direction @ direction))
    seen = rg.observe(query, key, mask=rg.causal(), map=128)
    rows = {name: getattr(seen, name) for name in seen.row_names()}
    call = call_of(query, key, value=key, map=seen.map, **rows)
    weight = tiles_of(call, 0).pair(row, column).weight
    if not 0.45 < weight < 0.55:
        raise ValueError(f"the planted weight must be 0.5, got {weight:g}")
    Record([call]).save(folder)


def child_gpt2(folder: str) -> None:
    """A record of a model of GPT-2 small's shape that has read 2 048 tokens."""
    from transformers import GPT2Config, GPT2LMHeadModel

    common.prepare()
    torch.manual_seed(0)
    model = GPT2LMHeadModel(GPT2Config(n_positions=2048)).eval()
    with torch.no_grad(), rg.watch(model, keep="vectors") as record:
        model(torch.randint(0, 50257, (1, 2048)))
    record.save(folder)


MEASURES = {
    "explorer_tiles save": {
        "first picture": first_pictures,
        "whole view": whole_views,
        "dragging and wheel": movement,
    },
    "explorer_browser lone": {"a lone weight of 0.5": lone_weight},
    "explorer_browser gpt2": {"overview of 144 heads at 2 048 tokens": overview},
}


def main() -> None:
    """Save records, serve them, look at them in a browser, and write the result."""
    from playwright.sync_api import sync_playwright

    common.prepare()
    path = next(filter(None, map(shutil.which, NAMES)))
    version = subprocess.run([path, "--version"], capture_output=True, text=True, check=True).stdout.strip()
    figures: dict[str, Any] = {"browser": version}
    with tempfile.TemporaryDirectory() as folder, sync_playwright() as play:
        for index, (maker, measures) in enumerate(MEASURES.items()):
            module, command = maker.split()
            record = Path(folder) / str(index)
            made = [sys.executable, "-m", f"benchmarks.{module}", command, str(record)]
            subprocess.run(made, check=True, stdout=subprocess.DEVNULL)
            process, address, _ = start(record)
            browser = play.chromium.launch(executable_path=path, args=list(FLAGS))
            try:
                for name, measure in measures.items():
                    figures[name] = measure(Pages(browser, address)) | {"load": os.getloadavg()[0]}
            finally:
                browser.close()
                process.send_signal(signal.SIGINT)
                process.wait(timeout=60)
    common.write("explorer_browser", "python -m benchmarks.explorer_browser", BAR, figures)


if __name__ == "__main__":
    if len(sys.argv) > 1:
        {"lone": child_lone, "gpt2": child_gpt2}[sys.argv[1]](sys.argv[2])
    else:
        main()
