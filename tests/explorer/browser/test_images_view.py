"""The view of images in a real browser: a ViT and the captioner; weights and pixels are those of the record."""

import threading

import numpy as np
import pytest
import torch
import uvicorn
from playwright.sync_api import expect

import regard as rg
from explorer.browser.conftest import choose, decoded
from helpers import looked
from regard.explorer import serve
from regard.explorer.app import create_app
from regard.explorer.jobs import Jobs
from regard.explorer.opened import Opened
from regard.explorer.security import Access
from regard.explorer.worker import Worker
from regard.tasks.common.looks import look
from regard.web.tiles import RecordTiles

ROWS, COLUMNS, REGISTERS = 5, 7, 1


@pytest.fixture(scope="module")
def vit():
    """Two layers over a class token and 5 × 7 patches."""
    transformers = pytest.importorskip("transformers")
    torch.manual_seed(4)
    config = transformers.ViTConfig(
        image_size=(40, 56),
        patch_size=8,
        hidden_size=24,
        num_hidden_layers=2,
        num_attention_heads=3,
        intermediate_size=24,
        initializer_range=0.5,
    )
    model = transformers.ViTModel(config, add_pooling_layer=False).eval()
    image = torch.rand(1, 3, 40, 56)
    with torch.no_grad(), rg.watch(model, keep="vectors", map=64) as record:
        model(image)
    rg.record.attach_picture(record, image[0], (ROWS, COLUMNS), start=REGISTERS)
    return record


@pytest.fixture(scope="module")
def caption():
    return look("caption").record


@pytest.fixture(scope="module")
def server(vit, caption, record):
    """A server of three records: the ViT, the captioner, and one without a picture."""
    opened = Opened()
    for one, title in ((vit, "ViT"), (caption, "caption"), (record, "text")):
        opened.add(RecordTiles(one), title)
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


def ready(page) -> None:
    expect(page.get_by_role("application")).to_have_attribute("data-state", "ready", timeout=60_000)
    page.wait_for_timeout(250)


def at(page, row: int, column: int, rows: int, columns: int) -> tuple[float, float]:
    box = page.get_by_role("application").bounding_box()
    return box["x"] + box["width"] * (column + 0.5) / columns, box["y"] + box["height"] * (row + 0.5) / rows


def told(page) -> float:
    return float(page.locator(".readout b[data-weight]").get_attribute("data-weight"))


def cross(caption) -> tuple[int, int]:
    """The last layer that looks at the picture, and how many patches it has a side."""
    index = max(index for index, call in enumerate(caption) if call.kind == "cross")
    return index, int(caption[index].sizes.keys ** 0.5)


@pytest.mark.parametrize("which", ["r1", "r2"])
@pytest.mark.parametrize("look", looked.LOOKS)
def test_it_has_no_fault_and_fits_the_screen(visit, shot, caption, look, which):
    call = {"r1": 0, "r2": cross(caption)[0]}[which]
    with visit(f"#/images?record={which}&call={call}&key=3", **looked.LOOKS[look]) as page:
        ready(page)
        shot(page, f"images-{which}-{look}")
        looked.check(page)


def exact_weights(call, head: int) -> tuple[np.ndarray, float]:
    """Weights of a head by the formula in float64, and how far float32 may be from them, relative.

    Scores near 19 are rounded to 1e-6 there, and so are weights: twice the error of the formula in float32, and
    a rounding.
    """
    query, key = call.query[0, head], call.key[0, head]
    truth = torch.softmax(query.double() @ key.double().T * call.spec.scale, -1)
    plain = torch.softmax(query @ key.T * call.spec.scale, -1)
    return truth.numpy(), float(2 * (plain / truth - 1).abs().max()) + 2**-23


def test_a_patch_is_asked_about_and_its_weights_lie_on_the_picture(visit, vit):
    with visit("#/images?record=r1&call=1&head=2&scale=linear") as page:
        ready(page)
        page.mouse.click(*at(page, 3, 2, ROWS, COLUMNS))
        query = REGISTERS + 3 * COLUMNS + 2
        page.wait_for_url(f"**query={query}**")
        ready(page)
        weights = vit[1].weights(2)[query].numpy()
        page.mouse.move(*at(page, 1, 5, ROWS, COLUMNS))
        assert told(page) == pytest.approx(float(weights[REGISTERS + COLUMNS + 5]), rel=1e-6)
        other = page.locator("section[aria-label^='Tokens that are no'] b[data-weight]")
        assert float(other.get_attribute("data-weight")) == pytest.approx(float(weights[0]), rel=1e-6)
        canvas = page.get_by_role("application").locator("canvas").last
        drawn = decoded(canvas.evaluate("canvas => canvas.toDataURL()"))
        assert drawn.shape[:2] == (ROWS, COLUMNS)
        light, patches = drawn.astype(int).sum(-1).ravel(), weights[REGISTERS:]
        assert (np.diff(light[np.argsort(patches)]) <= 0).all() and len(set(light)) > 5
        # The other way, and by keyboard to the patch below.
        choose(page, "Show", "to")
        page.wait_for_url("**text=to**")
        page.get_by_role("application").focus()
        page.mouse.move(5, 5)
        page.wait_for_timeout(200)
        page.keyboard.press("ArrowDown")
        page.keyboard.press("Enter")
        page.wait_for_url("**key=**")
        ready(page)
        key = int(page.url.partition("key=")[2].partition("&")[0])
        truth, error = exact_weights(vit[1], 2)
        assert error < 4e-6
        page.mouse.move(*at(page, 0, 0, ROWS, COLUMNS))
        assert told(page) == pytest.approx(truth[REGISTERS, key], rel=error)
        # The class token is asked about too; what is beside the picture tells its own weight.
        page.get_by_role("region", name="Tokens that are no patches").get_by_role("button").click()
        page.wait_for_url("**key=0**")
        ready(page)
        page.mouse.move(*at(page, 4, 6, ROWS, COLUMNS))
        last = float(vit[1].weights(2)[-1, 0])
        assert told(page) == pytest.approx(last, rel=1e-6)


def test_all_heads_are_there_and_one_is_chosen(visit, vit):
    with visit("#/images?record=r1&query=9") as page:
        ready(page)
        heads = page.get_by_role("region", name="All heads").get_by_role("button")
        assert heads.count() == 3
        said = [float(one.locator("small").inner_text()) for one in heads.all()]
        want = [float(vit[0].weights(head)[9, REGISTERS:].max()) for head in range(3)]
        assert said == pytest.approx(want, rel=0.06)
        heads.nth(2).click()
        page.wait_for_url("**head=2**")
        ready(page)
        page.mouse.move(*at(page, 2, 2, ROWS, COLUMNS))
        assert told(page) == pytest.approx(float(vit[0].weights(2)[9, REGISTERS + 2 * COLUMNS + 2]), rel=1e-6)


def test_words_of_the_captioner_show_where_they_looked(visit, caption):
    index, side = cross(caption)
    weights = caption[index].weights(1).numpy()
    words = rg.record.picture_of(caption).words
    with visit(f"#/images?record=r2&call={index}&head=1") as page:
        ready(page)
        tiles = page.get_by_role("region", name="All words").get_by_role("button")
        assert [tile.locator("b").inner_text() for tile in tiles.all()] == list(words)
        tiles.nth(3).click()
        page.wait_for_url("**query=3**")
        ready(page)
        row, column = divmod(int(weights[3].argmax()), side)
        page.mouse.move(*at(page, row, column, side, side))
        assert told(page) == pytest.approx(float(weights[3].max()), rel=1e-6)
        # A patch that is held tells which words looked at it.
        page.mouse.click(*at(page, row, column, side, side))
        page.wait_for_url(f"**key={row * side + column}**")
        group = page.get_by_role("group", name="Words; choose one")
        title = group.get_by_role("button").nth(3).get_attribute("title")
        assert float(title.rpartition(" ")[2]) == pytest.approx(float(weights[3].max()), rel=6e-3)
        page.get_by_label("Opacity").fill("0.25")
        page.wait_for_url("**opacity=0.25**")
        page.reload()
        ready(page)
        overlay = page.get_by_role("application").locator("canvas").last
        assert overlay.evaluate("canvas => getComputedStyle(canvas).opacity") == "0.25"
        assert f"wrote “{words[3]}”" in page.get_by_role("region", name="Picture").inner_text()


def test_a_record_without_a_picture_is_not_offered_the_view(visit):
    with visit("#/model?record=r3") as page:
        page.locator("a.tile").first.wait_for()
        assert page.get_by_role("link", name="Images").count() == 0
        page.goto(page.url.replace("#/model", "#/images"))
        page.get_by_text("has no picture").wait_for()
