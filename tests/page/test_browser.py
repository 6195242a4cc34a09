"""The report in a real browser, opened from disk: it draws, answers the pointer and the keys, and asks no network."""

import re
from contextlib import contextmanager
from itertools import product

import numpy as np
import pytest

from page import samples
from page.test_report import exact_weights
from regard.analysis import roles
from regard.page import report
from regard.page.encode import F16_ERROR, LOG8_ERROR


@pytest.fixture
def show(opened):
    """A context that opens a record's report and waits until it is drawn."""

    @contextmanager
    def shown(record, **options):
        with opened(report(record), **options) as page:
            page.wait_for_selector("#page:not([hidden]) .token, #page:not([hidden]) .empty")
            yield page

    return shown


@pytest.fixture(scope="module")
def decoder():
    return samples.decoder(samples.pieces(29), layers=3, heads=5, vectors=True)


def over_map(page, x, y):
    """Point at a place of the large map, as fractions of its canvas; returns what the label beside it says."""
    box = page.locator("#large .marks").bounding_box()
    page.mouse.move(box["x"] + x * box["width"], box["y"] + y * box["height"])
    page.wait_for_timeout(40)
    tip = page.locator("#large .tip")
    if not tip.is_visible():
        return None
    places = [int(place) for place in re.findall(r"\((\d+)\)", tip.locator("span").inner_text())]
    return places, float(tip.locator("b").inner_text().replace("−", "-"))


def large_title(page):
    return page.locator("#head-title").inner_text()


def test_the_value_under_the_pointer_is_the_weight(show, decoder):
    with show(decoder) as page:
        page.locator(".tile").nth(7).click()
        page.locator("#large").scroll_into_view_if_needed()
        assert large_title(page).lower() == "layer 1, head 2"
        weights, found = exact_weights(decoder.calls[1], 2), []
        for x in np.linspace(0.2, 0.95, 9):
            for y in np.linspace(0.2, 0.97, 9):
                if (read := over_map(page, x, y)) is not None:
                    found.append((*read[0], read[1]))
        queries, keys, shown = (np.array(column) for column in zip(*found, strict=True))
        assert len(set(queries)) == 9 and len(set(keys)) == 9  # each line of the pointer met its own cells
        assert (np.diff(keys[queries == queries[-1]]) > 0).all()
        wanted = weights[queries, keys]
        assert (
            np.abs(shown - wanted) <= (0.005 + F16_ERROR) * wanted + 2**-25
        ).all()  # three digits are printed
        assert (shown[keys > queries] == 0).all() and (shown > 0.1).any()


PIXELS = """([x, y]) => { const c = document.querySelector('#large .map'), at = [x * c.width - 2, y * c.height - 2];
return [...c.getContext('2d').getImageData(...at, 5, 5).data] }"""


def test_the_color_under_the_pointer_follows_the_weight(show, decoder):
    with show(decoder, quiet=False, color_scheme="light") as page:  # the browser remarks on reading pixels
        page.locator(".tile").nth(13).click()
        page.locator("#large").scroll_into_view_if_needed()
        seen = []
        for x, y in product(np.linspace(0.25, 0.9, 8), np.linspace(0.7, 0.9, 4)):
            _, weight = over_map(page, x, y)
            around = np.reshape(page.evaluate(PIXELS, [x, y]), (25, 4))
            if (around == around[0]).all():  # not on the border of two cells
                seen.append((weight, -around[0] @ [0.3, 0.6, 0.1, 0]))
        darkness = [dark for _, dark in sorted(seen)]
        assert len(seen) > 8 and darkness == sorted(darkness) and len(set(darkness)) > 5


def test_a_click_shows_another_head_everywhere(show, decoder):
    with show(decoder) as page:
        picture = "document.querySelector('#large .map').toDataURL()"
        before, drawn = large_title(page), page.evaluate(picture)
        page.locator(".tile").nth(9).click()
        assert before != large_title(page) and large_title(page).lower() == "layer 1, head 4"
        assert page.evaluate(picture) != drawn
        assert page.locator("tr.chosen").get_attribute("data-head") == "9"
        assert page.locator(".tile[aria-selected=true]").get_attribute("data-head") == "9"
        page.locator("tbody tr").nth(3).click()
        assert page.locator("#chosen").inner_text().lower() == "layer 0, head 3"


def test_several_heads_show_their_mean(show, decoder):
    with show(decoder) as page:
        page.locator(".tile").nth(5).click()
        page.locator(".tile").nth(11).click(modifiers=["Control"])
        assert "2 heads" in page.locator("#chosen").inner_text()
        page.locator("#large").scroll_into_view_if_needed()
        (query, key), shown = over_map(page, 0.3, 0.9)
        one, other = exact_weights(decoder.calls[1], 0), exact_weights(decoder.calls[2], 1)
        assert shown == pytest.approx((one + other)[query, key] / 2, rel=0.005 + F16_ERROR)


def test_the_text_is_shaded_by_the_weights_of_the_token_under_the_pointer(show, decoder):
    with show(decoder) as page:
        page.locator(".tile").nth(10).click()
        page.locator(".token").nth(20).hover()
        page.wait_for_timeout(150)
        weights = exact_weights(decoder.calls[2], 0)[20]
        rows = page.locator("#strongest li")
        order = np.argsort(-weights)[:8]
        assert [int(rows.nth(i).locator("small").inner_text()) for i in range(8)] == order.tolist()
        shades = page.evaluate("[...document.querySelectorAll('.token')].map((t) => t.style.backgroundColor)")
        assert all(shades[:21]) and not any(shades[21:])
        light = [sum(map(int, re.findall(r"\d+", shade)[:3])) for shade in shades[:21]]
        assert int(np.argmin(light)) == order[0]
        page.locator("#direction button").nth(1).click()
        page.locator(".token").nth(3).hover()
        page.wait_for_timeout(150)
        column = exact_weights(decoder.calls[2], 0)[:, 3]
        assert int(rows.nth(0).locator("small").inner_text()) == int(column.argmax())


def test_a_click_holds_a_token_and_escape_lets_it_go(show, decoder):
    with show(decoder) as page:
        page.locator(".token").nth(7).click()
        page.mouse.move(5, 5)
        page.wait_for_timeout(50)
        assert page.locator(".token.focus").get_attribute("data-i") == "7"
        page.keyboard.press("Escape")
        assert page.locator(".token.focus").count() == 0


def test_arrow_keys_move_between_heads_and_cells(show, decoder):
    with show(decoder) as page:
        page.locator(".tile").nth(6).click()
        for key, head in (("ArrowRight", 7), ("ArrowDown", 12), ("ArrowLeft", 11), ("ArrowUp", 6)):
            page.keyboard.press(key)
            assert page.locator(".tile[aria-selected=true]").get_attribute("data-head") == str(head)
            assert page.evaluate("document.activeElement.dataset.head") == str(head)
        page.locator("#large").focus()
        for key in ("ArrowDown", "ArrowDown", "ArrowRight"):
            page.keyboard.press(key)
            page.wait_for_timeout(40)
        assert (
            "(2)" in page.locator("#readout").inner_text() and "(1)" in page.locator("#readout").inner_text()
        )


def test_zoom_shows_fewer_cells(show, decoder):
    with show(decoder) as page:
        page.locator("#large").scroll_into_view_if_needed()
        wide = {tuple(over_map(page, x, 0.9)[0]) for x in np.linspace(0.3, 0.9, 12)}
        page.locator("#zoom button").nth(1).click()
        page.locator("#zoom button").nth(1).click()
        near = {tuple(over_map(page, x, 0.9)[0]) for x in np.linspace(0.3, 0.9, 12)}
        assert len(near) < len(wide)
        page.locator("#zoom button").nth(2).click()
        assert {tuple(over_map(page, x, 0.9)[0]) for x in np.linspace(0.3, 0.9, 12)} == wide


def column(page, place):
    return [float(text) for text in page.locator(f"tbody tr td:nth-child({place})").all_inner_texts()]


def test_the_table_sorts_by_every_column_and_finds(show, decoder):
    with show(decoder) as page:
        headings = page.locator("thead button").all_inner_texts()
        assert headings[:2] == ["layer", "head"]
        for place in range(2, len(headings) + 1):
            heading = page.locator("thead button").nth(place - 1)
            heading.click()
            heading.click()
            first = column(page, place)
            heading.click()
            heading.click()
            second = column(page, place)
            assert first in (sorted(first), sorted(first, reverse=True)) and len(first) == 15
            assert second in (first, first[::-1])
        page.locator("#search").fill("layers.1 head 4")
        assert page.locator("tbody tr").count() == 1
        page.locator("#search").fill("nothing like this")
        assert page.locator("tbody").inner_text() == "No head matches."


def test_the_role_of_a_head_is_told(show):
    record = samples.watched()
    told = [
        row["role"] if row["role"] == "mixed"
        else f"{row['role']} {row['score']:.2f} ({row['low']:.2f}–{row['high']:.2f})"
        for _, row in roles(record).iterrows()
    ]  # fmt: skip
    with show(record) as page:
        assert page.locator("thead button").all_inner_texts()[:3] == ["layer", "head", "role"]
        assert page.locator("tbody tr td:nth-child(3)").all_inner_texts() == told
        titles = [tile.get_attribute("title") for tile in page.locator(".tile").all()]
        assert [title.partition(": ")[2] for title in titles] == told
        page.locator(".tile").nth(2).click()
        assert page.locator("#habit").inner_text().startswith(f"Role: {told[2]}. ")


def test_heads_are_ordered_and_filtered_by_a_number(show, decoder):
    with show(decoder) as page:
        entropy = np.concatenate([call.entropy[0].mean(-1) for call in decoder.calls])
        page.select_option("#order", "entropy down")
        shown = [
            int(head)
            for head in page.evaluate("[...document.querySelectorAll('.tile')].map((t) => t.dataset.head)")
        ]
        assert shown == np.argsort(-entropy).tolist()
        page.locator("#to").fill("1.5")
        assert page.locator(".tile").count() == (entropy <= 1.5).sum() > 0


def test_hostile_tokens_are_shown_as_text(show):
    record = samples.decoder(samples.HOSTILE, layers=1, heads=2)
    with show(record) as page:
        assert page.locator("img").count() == 0
        shown = page.locator(".token").all_inner_texts()
        assert shown[0] == samples.HOSTILE[0].replace(" ", "·")
        assert shown[1:3] == samples.HOSTILE[1:3]
        assert shown[3] == "⟨202E⟩␀⟨D800⟩" and shown[-1] == "∅"


def test_a_script_from_elsewhere_does_not_run(show, decoder):
    with show(decoder, quiet=False) as page:
        page.evaluate(
            "document.body.append(Object.assign(document.createElement('script'), {text: 'window.ran = 1'}))"
        )
        assert page.evaluate("window.ran") is None
        assert page.evaluate("fetch('data:,x').then(() => 'asked', () => 'refused')") == "refused"


def test_cross_attention_has_two_texts(show):
    record = samples.translator(list("abcdefg"), list("tuvwx"))
    with show(record) as page:
        assert page.locator("#sections button").all_inner_texts() == ["Encoder", "Decoder", "Cross-attention"]
        page.locator("#sections button").nth(2).click()
        assert page.locator(".box").count() == 2
        page.locator(".box").nth(0).locator(".token").nth(3).hover()
        page.wait_for_timeout(150)
        weights = record.calls[4].map(0)[3]
        rows = page.locator("#strongest li")
        assert rows.nth(0).locator(".name").inner_text() == "abcdefg"[int(weights.argmax())]
        assert rows.count() == 7


def test_each_sequence_of_a_batch_can_be_chosen(show):
    record = samples.decoder(samples.pieces(11), layers=1, heads=3, batch=2)
    with show(record) as page:
        page.select_option("#sequences select", "1")
        assert column(page, 5)[0] == pytest.approx(float(record.calls[0].entropy[1, 0].mean()), abs=6e-4)


def test_a_long_text_shows_pooled_cells(show):
    record = samples.decoder(samples.pieces(307), layers=1, heads=2)
    with show(record) as page:
        page.locator("#large").scroll_into_view_if_needed()
        box = page.locator("#large .marks").bounding_box()
        page.mouse.move(box["x"] + 0.3 * box["width"], box["y"] + 0.9 * box["height"])
        page.wait_for_timeout(40)
        words = page.locator("#large .tip").inner_text()
        mean, largest = (float(n) for n in re.search(r"mean ([\d.]+), largest ([\d.]+)", words).groups())
        q0, q1, k0, k1 = (int(n) for n in re.findall(r"\d+", words.split("queries")[1]))
        block = samples.decoder(samples.pieces(307), layers=1, heads=2, vectors=True).calls[0]
        cell = exact_weights(block, 0)[q0 : q1 + 1, k0 : k1 + 1]
        assert (q1 - q0, k1 - k0) == (3, 3)
        assert (mean, largest) == pytest.approx(
            (cell.mean(), cell.max()), rel=0.05 + LOG8_ERROR
        )  # two digits are printed


def test_without_maps_and_tokens_the_page_says_so(show):
    record = samples.decoder(samples.pieces(7), layers=1, heads=2, grid=None)
    record.tokens = None
    with show(record, color_scheme="dark") as page:
        assert "does not hold the tokens" in page.locator("#texts").inner_text()
        assert "holds no map" in page.locator("#head-hint").inner_text()
        assert page.locator("#entropy-chart path.line").count() == 1


@pytest.mark.parametrize("width", [400, 900, 1400])
def test_nothing_is_wider_than_the_window(show, decoder, width):
    with show(decoder) as page:
        page.set_viewport_size({"width": width, "height": 900})
        page.wait_for_timeout(100)
        assert page.evaluate("document.documentElement.scrollWidth") <= width
