"""The view of histories in a real browser: maps and numbers are those of the history, step by step; it plays."""

import threading
from dataclasses import replace

import numpy as np
import pytest
import uvicorn
from playwright.sync_api import expect

from explorer.browser.conftest import choose, decoded
from helpers import looked
from regard.cli.shelf import shelve, trained
from regard.explorer import serve
from regard.explorer.app import create_app
from regard.explorer.jobs import Jobs
from regard.explorer.opened import Opened
from regard.explorer.security import Access
from regard.explorer.worker import Worker
from regard.record import History

TITLE = "answer, encoder"


@pytest.fixture(scope="module")
def history():
    return History.load(trained()[TITLE])


@pytest.fixture(scope="module")
def server(history, tmp_path_factory):
    """A server of histories alone: one without maps, as h1, and those of the tasks."""
    opened = Opened()
    path = tmp_path_factory.mktemp("bare") / "history.safetensors"
    replace(history, maps=(), pictured=()).save(path)
    shelve(opened.trainings, {"bare": path})
    jobs, access = Jobs(opened, Worker(["false"])), Access()
    listening = serve.bind(access, 0)
    running = uvicorn.Server(uvicorn.Config(create_app(opened, jobs, access), log_level="error"))
    thread = threading.Thread(target=running.run, kwargs={"sockets": [listening]}, daemon=True)
    thread.start()
    yield serve.address(access, listening)
    running.should_exit = True
    thread.join(10)
    listening.close()
    jobs.close()


def view(step: int | None = None) -> str:
    number = 2 + list(trained()).index(TITLE)
    shown = "" if step is None else f"&step={step}"
    return f"#/history?history=h{number}{shown}"


def drawn(page, step: int) -> None:
    """Wait until the maps of a step are drawn."""
    expect(page.locator("[data-step]")).to_have_attribute("data-step", str(step), timeout=60_000)
    page.wait_for_timeout(200)


def numbers(page) -> list[float]:
    return [float(cell.get_attribute("data-value")) for cell in page.locator("a.head").all()]


@pytest.mark.parametrize("look", looked.LOOKS)
def test_it_has_no_fault_and_fits_the_screen(visit, history, shot, look):
    with visit(view(), **looked.LOOKS[look]) as page:
        drawn(page, history.pictured[-1])
        shot(page, f"history-{look}")
        looked.check(page)


def test_every_head_has_its_number_and_its_map_at_the_step(visit, history):
    index = len(history.pictured) // 2
    step = history.pictured[index]
    values = history.of_statistic("max_weight")[history.steps.index(step)]
    with visit(view(step)) as page:
        choose(page, "Statistic", "max_weight")
        drawn(page, step)
        assert numbers(page) == pytest.approx(values.tolist(), rel=1e-6)
        # The last head of the second layer is made large, and its cell under the pointer is told.
        page.locator("section.line").nth(1).locator("a.head").last.click()
        head = history.layers[1].heads - 1
        want = history.maps[1][index, head].float().numpy()
        box = page.get_by_role("application").bounding_box()
        rows, columns = want.shape
        page.mouse.move(
            box["x"] + box["width"] * 2.5 / columns, box["y"] + box["height"] * (rows - 0.5) / rows
        )
        shown = page.locator("b[data-weight]")
        assert float(shown.get_attribute("data-weight")) == pytest.approx(float(want[-1, 2]), rel=1e-6)
        assert f"at=1.{head}" in page.url
        canvas = page.get_by_role("application").locator("canvas")
        light = decoded(canvas.evaluate("canvas => canvas.toDataURL()")).astype(int).sum(-1)
        order = np.argsort(want.ravel())
        assert light.shape == want.shape and (np.diff(light.ravel()[order]) <= 0).all()
        assert len(set(light.ravel())) > 20


def test_the_slider_and_the_chart_go_to_a_step_and_the_link_stays_there(visit, history):
    with visit(view()) as page:
        drawn(page, history.pictured[-1])
        slider = page.get_by_label("Step of training")
        slider.focus()
        page.keyboard.press("Home")
        drawn(page, history.pictured[0])
        page.keyboard.press("ArrowRight")
        page.get_by_label("Next step").click()
        page.wait_for_url(f"**step={history.steps[2]}**")
        for again in (False, True):
            if again:
                page.reload()
            drawn(page, max(step for step in history.pictured if step <= history.steps[2]))
            values = history.of_statistic("entropy_fraction")[2]
            assert numbers(page) == pytest.approx(values.tolist(), rel=1e-6)
        shown = page.locator("figcaption span[data-value]").first
        assert float(shown.get_attribute("data-value")) == pytest.approx(float(values[0]), rel=1e-6)
        chart = page.get_by_role("img", name="entropy fraction along")
        box = chart.bounding_box()
        page.mouse.click(box["x"] + box["width"] - 4, box["y"] + 50)
        page.wait_for_url(f"**step={history.steps[-1]}**")
        expect(page.get_by_role("img", name="Training loss")).to_be_visible()


def test_it_plays_from_the_first_step_to_the_last_and_pauses(chromium, server, history):
    page = chromium.new_page(reduced_motion="no-preference")
    start = history.steps[-4]
    page.goto(f"{server}{view(start)}")
    button = page.get_by_role("button", name="Play")
    button.click()
    page.wait_for_url(f"**step={history.steps[-1]}**", timeout=60_000)
    expect(button).to_be_visible()
    # From the end it begins again, and stops where it is stopped.
    button.click()
    page.wait_for_url(f"**step={history.steps[2]}**", timeout=60_000)
    page.get_by_role("button", name="Pause").click()
    expect(button).to_be_visible()
    before = page.locator("output").inner_text()
    page.wait_for_timeout(1500)
    assert page.locator("output").inner_text() == before
    page.close()


def test_who_asks_for_less_motion_steps_by_hand(visit, history):
    with visit(view()) as page:
        drawn(page, history.pictured[-1])
        assert page.get_by_role("button", name="Play").count() == 0
        page.get_by_label("Step before").click()
        page.wait_for_url(f"**step={history.steps[-2]}**")


def test_a_history_without_maps_has_its_numbers(visit, history):
    with visit("#/history") as page:
        page.get_by_text("has no maps").wait_for()
        values = history.of_statistic("entropy_fraction")[-1]
        assert numbers(page) == pytest.approx(values.tolist(), rel=1e-6)
