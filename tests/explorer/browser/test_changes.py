"""A head switched off in the browser: what is written and colored is what the records and `rg.intervene` say."""

import sys
import threading

import numpy as np
import pytest
import uvicorn
from playwright.sync_api import expect

from regard.explorer import serve
from regard.explorer.app import bundle, create_app
from regard.explorer.jobs import Jobs
from regard.explorer.opened import Model, Opened
from regard.explorer.security import Access
from regard.explorer.worker import Worker

TEXT = "def double(value):\n    return value + value\n"


@pytest.fixture(scope="module")
def running():
    """A server with one run of the embedded model: its address, and what is open."""
    if not (bundle() / "index.html").is_file():
        pytest.fail("the front end is not built: make web")
    opened = Opened([Model("language", "Embedded", "embedded")])
    jobs, access = Jobs(opened, Worker([sys.executable, "-m", "regard.cli.worker"])), Access()
    listening = serve.bind(access, 0)
    server = uvicorn.Server(uvicorn.Config(create_app(opened, jobs, access), log_level="error"))
    thread = threading.Thread(target=server.run, kwargs={"sockets": [listening]}, daemon=True)
    thread.start()
    assert jobs.wait(jobs.submit(opened.models["language"], TEXT).id).record == "r1"
    yield serve.address(access, listening), opened
    server.should_exit = True
    thread.join(10)
    listening.close()
    jobs.close()


def test_a_head_is_switched_off_and_the_others_are_compared(chromium, running, shot):
    address, opened = running
    page = chromium.new_page(viewport={"width": 1280, "height": 800})
    complaints = []
    page.on("pageerror", lambda error: complaints.append(str(error)))
    page.goto(f"{address}#/head?record=r1&call=1&head=0&query=3")
    line = opened["r1"].next_tokens.at(3)
    table = page.locator("table[data-position='3']")
    expect(table.locator("tbody tr")).to_have_count(6)
    shown = [float(cell.get_attribute("data-value")) for cell in table.locator("td").all()]
    assert shown == pytest.approx([one.probability for one in line.tokens[:6]], rel=1e-6)
    shot(page, "next-tokens")

    page.get_by_text("Change this head").click()
    page.get_by_role("button", name="Run again").click()
    page.locator("a.changed").wait_for(timeout=60_000)
    before, after = (opened[name].record for name in ("r1", "r2"))
    cells = page.locator(".heads a")
    expect(cells).to_have_count(32)
    want = np.array([(b.mean("entropy") - a.mean("entropy"))[0] for a, b in zip(before, after, strict=True)])
    shown = np.array([float(cell.get_attribute("data-value")) for cell in cells.all()])
    assert np.allclose(shown, want.ravel(), rtol=1e-5, atol=1e-7)
    colors = [cell.evaluate("cell => getComputedStyle(cell).backgroundColor") for cell in cells.all()]
    assert len(set(colors[:16])) == 1, "what stands before the head has the middle's color"
    assert colors[int(shown.argmax())] != colors[int(shown.argmin())] != colors[0]

    # Without a chosen token: where the change did most.
    page.goto(page.url.replace("&query=3", ""))
    divergence = opened["r2"].next_tokens.arrays["divergence"]
    farthest = int(divergence.argmax())
    table = page.locator(f"table[data-position='{farthest}']")
    expect(table.locator("tbody tr")).to_have_count(10)
    first = opened["r2"].next_tokens.at(farthest).tokens[0]
    pair = [
        float(cell.get_attribute("data-value")) for cell in table.locator("tr >> nth=1").locator("td").all()
    ]
    assert pair == pytest.approx([first.before, first.probability], rel=1e-6)
    shot(page, "changes")

    cells.nth(16).click()
    page.locator(".pane[data-state=ready]").nth(1).wait_for()
    assert "heads=r1~2.0+2.0" in page.url
    assert complaints == []
    page.close()
