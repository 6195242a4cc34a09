"""The report in a real browser, opened from disk: it shows the record's numbers, by pointer, keys and touch."""

import re

import numpy as np
import pytest
import torch

from explorer.browser.conftest import Map, choose
from helpers.exports import open_menu, taken
from page import samples
from page.test_report import exact_weights
from regard.analysis import roles
from regard.page import report
from regard.page.encode import F16_ERROR, LOG8_ERROR
from regard.record.table import table
from regard.web.next_tokens import next_tokens

ALL, HEAD = "#/model", "#/head?call=1&head=2"


def number(text):
    """A number as the page writes it."""
    mantissa, _, exponent = text.replace("−", "-").partition("·10")
    raised = exponent.translate(str.maketrans("⁻⁰¹²³⁴⁵⁶⁷⁸⁹", "-0123456789")) or "0"
    return float(mantissa) * 10.0 ** int(raised)


def weight(page):
    """The exact number behind the weight that is written."""
    page.wait_for_selector(".weight[data-weight]")
    return float(page.locator(".weight").first.get_attribute("data-weight"))


def titles(page, block):
    """The numbers of the tokens of a block of text, by their places."""
    told = page.locator(f"[aria-label^='{block}'] button").evaluate_all("all => all.map((one) => one.title)")
    return {int(one.split(",")[0]): number(one.rpartition(" ")[2]) for one in told if "," in one}


def test_the_value_under_the_pointer_is_the_weight(show, decoder):
    weights = exact_weights(decoder.calls[1], 2)
    with show(decoder, HEAD) as page:
        shown = Map(page)
        for query, key in ((0, 0), (28, 3), (17, 16), (9, 9), (23, 0)):
            shown.hover(*shown.point(query, key, (29, 29)))
            page.wait_for_selector(f".pair:has(:text-is('query {query}')):has(:text-is('key {key}'))")
            assert weight(page) == pytest.approx(weights[query, key], rel=F16_ERROR, abs=2**-25)
            written = number(page.locator(".weight").inner_text())
            assert written == pytest.approx(weights[query, key], rel=0.005 + F16_ERROR)
        shown.hover(*shown.point(3, 20, (29, 29)))
        page.wait_for_selector(".weight:text-is('masked')")
        # Nothing is said of what the page does not hold.
        assert "score" not in page.locator("dl").first.inner_text()


def test_colors_are_those_of_the_weights(show, decoder):
    weights = exact_weights(decoder.calls[1], 2)
    with show(decoder, f"{HEAD}&scale=linear&range=one", quiet=False) as page:
        shown = Map(page)
        pixels = shown.pixels()
        pairs = [(query, key) for query in range(0, 29, 4) for key in range(0, 29, 3)]
        places = [shown.point(query, key, (29, 29)) for query, key in pairs]
        shades = shown.shades(np.array([pixels[y, x] for x, y in places])) / 255
        wanted = np.array([weights[pair] if pair[1] <= pair[0] else np.nan for pair in pairs])
        assert (np.isnan(shades) == np.isnan(wanted)).all()
        assert np.nanmax(np.abs(shades - wanted)) < 0.01 and np.nanmax(wanted) > 0.3


def test_all_heads_are_shown_and_lead_to_one(show, decoder):
    with show(decoder) as page:
        tiles = page.locator("a.tile")
        assert tiles.count() == 15
        tiles.first.focus()
        for key in ("ArrowDown", "ArrowRight", "ArrowRight", "Enter"):
            page.keyboard.press(key)
        page.wait_for_selector(".pane[data-state=ready]")
        assert "call=1&head=2" in page.url and page.title().startswith("layer 1.2")
        page.keyboard.press("]")
        page.wait_for_timeout(300)
        assert "head=3" in page.url
        page.go_back()
        assert page.locator("a.tile:visible").count() == 15


def test_small_maps_are_the_weights(show, decoder):
    with show(decoder, f"{ALL}?scale=linear&range=one", quiet=False) as page:
        read = """canvas => [...canvas.getContext('2d').getImageData(0, 0, 29, 29).data]"""
        pixels = np.reshape(page.locator("a.tile canvas").nth(7).evaluate(read), (29, 29, 4))[..., :3]
        ramp = np.reshape(
            page.locator(".legend canvas").evaluate(
                "canvas => [...canvas.getContext('2d').getImageData(0, 0, 256, 1).data]"
            ),
            (256, 4),
        )[:, :3]
        below = np.tri(29, dtype=bool)
        distance = np.abs(pixels[below][:, None] - ramp[None]).sum(-1)
        assert (distance.min(1) == 0).all()
        shades = distance.argmin(1) / 255
        assert np.abs(shades - exact_weights(decoder.calls[1], 2)[below]).max() < 0.01


def test_the_text_is_colored_by_the_weights_of_the_chosen_token(show, decoder):
    weights = exact_weights(decoder.calls[1], 2)
    with show(decoder, f"{HEAD}&query=20") as page:
        page.wait_for_selector("[aria-label^='Text, colored'] button[title*=weight]")
        shown = titles(page, "Text, colored")
        assert [shown[key] for key in range(21)] == pytest.approx(weights[20, :21], rel=0.006, abs=1e-7)
        assert not any(shown[key] for key in range(21, 29))
        choose(page, "colored by", "to")
        page.locator("[aria-label^='Text, colored'] button").nth(3).click()
        page.wait_for_timeout(200)
        shown = titles(page, "Text, colored")
        assert [shown[query] for query in range(3, 29)] == pytest.approx(weights[3:, 3], rel=0.006, abs=1e-7)


def test_lines_lead_to_the_largest_weights(show, decoder):
    with show(decoder, f"{HEAD}&panel=lines", wanted=".drawing line") as page:
        weights = exact_weights(decoder.calls[1], 2)
        wanted = sum(min(16, int((row >= 0.01).sum())) for row in weights)
        # At the threshold float16 may round up.
        assert abs(page.locator(".drawing line").count() - wanted) <= 1
        page.locator("[aria-label=Queries] button").nth(20).focus()
        strong = page.locator(".drawing line").evaluate_all(
            """lines => lines.filter((line) => line.getAttribute('opacity') > 0.05)
            .map((line) => line.getAttribute('y1'))"""
        )
        assert set(strong) == {str(20 * 20 + 10)}


def test_the_largest_weights_are_found(show, decoder):
    weights = np.where(np.tri(29, k=-8), exact_weights(decoder.calls[1], 2), 0)
    weights[:, 0] = 0
    with show(decoder, HEAD) as page:
        page.get_by_text("Largest weights off the diagonal").click()
        page.wait_for_selector("[aria-label^='Largest weights'] button")
        shown = [
            number(text)
            for text in page.locator("[aria-label^='Largest weights'] button b").all_inner_texts()
        ]
        assert shown == pytest.approx(np.sort(weights.ravel())[::-1][: len(shown)], rel=0.006)


def test_the_table_is_the_record_s_and_sorts_and_finds(show, decoder):
    heads = table(decoder.calls)
    with show(decoder) as page:
        headings = page.locator("thead button").all_inner_texts()
        assert headings[0] == "head"
        read = "all => all.map((cell) => Number(cell.dataset.value))"
        columns = [page.locator(f"tbody td:nth-child({place})") for place in range(2, len(headings) + 1)]
        values = [column.evaluate_all(read) for column in columns]
        for name in ("entropy", "distance"):
            assert values[headings.index(name) - 1] == pytest.approx(heads[name].tolist(), rel=1e-9)
        for place, column in enumerate(columns):
            heading = page.locator("thead th").nth(place + 1)
            heading.locator("button").click()
            assert heading.get_attribute("aria-sort") == "descending"
            assert column.evaluate_all(read) == sorted(values[place], reverse=True)
            heading.locator("button").click()
            assert column.evaluate_all(read) == sorted(values[place])
        page.get_by_label("Find").fill("layers.1 head 4")
        assert page.locator("tbody tr").count() == 1
        page.locator("tbody a").click()
        page.wait_for_selector(".pane[data-state=ready]")
        assert "call=1&head=4" in page.url
        page.get_by_role("link", name="All heads").click()
        page.get_by_label("Find").fill("nothing like this")
        assert page.locator("tbody").inner_text() == "No head matches."


def test_the_role_of_a_head_is_told(show):
    record = samples.watched()
    told = roles(record)
    with show(record) as page:
        assert page.locator("thead button").all_inner_texts()[:2] == ["head", "role"]
        shown = page.locator("tbody tr td:nth-child(2)").all_inner_texts()
        assert [text.split()[0] for text in shown] == [str(role).split()[0] for role in told["role"]]
        for text, (_, row) in zip(shown, told.iterrows(), strict=True):
            numbers = [number(one) for one in re.findall(r"−?\d+(?:\.\d+)?(?:·10[⁻⁰-⁹]+)?", text)]
            if row["role"] != "mixed":
                assert numbers == pytest.approx(row[["score", "low", "high"]].astype(float), rel=0.05)


def test_heads_are_sorted_by_a_number(show, decoder):
    with show(decoder) as page:
        choose(page, "Sort", "entropy")
        choose(page, "Color", "entropy")
        page.wait_for_timeout(200)
        shown = [number(text) for text in page.locator("a.tile .chip > span").all_inner_texts()]
        entropy = np.concatenate([call.entropy[0].mean(-1) for call in decoder.calls])
        assert shown == pytest.approx(sorted(entropy, reverse=True), rel=0.05)


def test_next_tokens_are_those_of_the_model(show, decoder):
    logits = 3 * torch.randn(29, 53)
    told = {"next_tokens": next_tokens(logits, lambda token: f"t{token}")}
    with show(decoder, f"{HEAD}&query=11", told=told) as page:
        page.wait_for_selector("[aria-label='Next tokens'][data-position='11'] tbody tr")
        rows = page.locator("table[aria-label='Next tokens'] tbody tr")
        likeliest = logits[11].softmax(-1).topk(6)
        assert rows.locator("th").all_inner_texts() == [f"t{token}" for token in likeliest.indices.tolist()]
        shown = [float(cell.get_attribute("data-value")) for cell in rows.locator("td").all()]
        assert shown == pytest.approx(likeliest.values.tolist(), rel=1e-5)
    with show(decoder, HEAD) as page:
        assert page.locator("[aria-label='Next tokens']").count() == 0


def test_each_sequence_of_a_batch_can_be_chosen_and_compared(show):
    record = samples.decoder(samples.pieces(11), layers=1, heads=3, batch=2, vectors=True)
    with show(record) as page:
        entropy = record.calls[0].entropy.mean(-1)
        place = 2 + page.locator("thead button").all_inner_texts()[1:].index("entropy")
        for row, text in enumerate(("text-0", "text-1")):
            choose(page, "Text", text)
            page.wait_for_timeout(200)
            cell = page.locator(f"tbody tr:first-child td:nth-child({place})")
            assert float(cell.get_attribute("data-value")) == pytest.approx(float(entropy[row, 0]), rel=1e-6)
    with show(record, "#/compare?record=text-0&heads=0.1 text-1~0.1") as page:
        maps = [Map(page, index) for index in range(2)]
        maps[1].hover(*maps[1].point(9, 4, (11, 11)))
        page.wait_for_selector(".weight[data-weight] >> nth=1")
        shown = [float(one.get_attribute("data-weight")) for one in page.locator(".weight").all()]
        wanted = [exact_weights(record.calls[0], 1, row)[9, 4] for row in range(2)]
        assert shown == pytest.approx(wanted, rel=F16_ERROR) and abs(shown[0] - shown[1]) > 1e-4


def test_cross_attention_has_two_texts(show):
    record = samples.translator(list("abcdefg"), list("tuvwx"))
    with show(record) as page:
        assert page.locator("main section h3").all_inner_texts() == ["Encoder", "Decoder", "Cross-attention"]
    with show(record, "#/head?call=4&head=0&query=3") as page:
        page.wait_for_selector("[aria-label^='Text, colored'] button[title*=weight]")
        assert (
            "".join(page.locator("[aria-label='Tokens of the queries'] button").all_inner_texts()) == "tuvwx"
        )
        assert "".join(page.locator("[aria-label^='Text, colored'] button").all_inner_texts()) == "abcdefg"
        shown = titles(page, "Text, colored")
        assert [shown[key] for key in range(7)] == pytest.approx(
            record.calls[4].map(0)[3].tolist(), rel=0.006
        )


def test_hostile_tokens_are_shown_as_text(show):
    record = samples.decoder(samples.HOSTILE, layers=1, heads=2)
    with show(record, "#/head") as page:
        assert page.locator("img").count() == 0
        shown = page.locator("[aria-label^='Text'] button").all_inner_texts()
        assert shown[:3] == samples.HOSTILE[:3]
        assert shown[3] == "⟨202E⟩⟨0000⟩⟨D800⟩" and shown[-1] == "∅"


def test_a_script_from_elsewhere_does_not_run(show, decoder):
    with show(decoder, quiet=False) as page:
        page.evaluate(
            "document.body.append(Object.assign(document.createElement('script'), {text: 'window.ran = 1'}))"
        )
        assert page.evaluate("window.ran") is None
        assert page.evaluate("fetch('data:,x').then(() => 'asked', () => 'refused')") == "refused"


@pytest.mark.parametrize("pool", ["max", "mean"])
def test_a_long_text_shows_cells_and_says_so(show, pool):
    record = samples.decoder(samples.pieces(307), layers=1, heads=2, vectors=True)
    weights = exact_weights(record.calls[0], 1)
    with show(record, f"#/head?call=0&head=1&pool={pool}") as page:
        shown = Map(page)
        shown.hover(*shown.point(201, 102, (307, 307)))
        words = {"max": "largest", "mean": "mean"}[pool]
        page.wait_for_selector(f"dt:has-text('{words} of its cell of 4 × 4')")
        (query,), (key,) = (
            re.findall(rf"{name} (\d+)", page.locator(".pair").inner_text()) for name in ("query", "key")
        )
        cell = weights[int(query) // 4 * 4 :, int(key) // 4 * 4 :][:4, :4]
        assert weight(page) == pytest.approx(
            {"max": cell.max, "mean": cell.mean}[pool](), rel=LOG8_ERROR + 1e-3
        )
        page.mouse.move(2, 2)
        page.locator("[aria-label^='Text, colored'] button").nth(150).click()
        page.wait_for_selector("[aria-label^='Text, colored'] button[title*='mean of its cell']")
        text = titles(page, "Text, colored")
        cells = weights[148:152].reshape(4, 307)[:, :152].reshape(4, 38, 4).mean((0, 2))
        assert [text[key] for key in range(0, 152, 4)] == pytest.approx(
            cells, rel=LOG8_ERROR + 6e-3, abs=1e-7
        )
        page.get_by_role("button", name="Lines").click()
        assert "single weights, which are not on this page" in page.locator(".lines").inner_text()


def test_queries_that_begin_within_a_cell_stand_where_they_are(show):
    scores = 2 * torch.randn(1, 2, 5, 307)
    call = samples.call("layers.0", scores, mask=samples.regard.causal())
    with show(samples.Record([call]), "#/head?call=0&head=1") as page:
        shown = Map(page)
        # 307 keys are as wide as the map, and five queries stand in its middle.
        box = shown.box
        side = box["width"] / 307
        for query in (1, 2):
            shown.hover(300.5 * side, box["height"] / 2 + (query + 0.5 - 2.5) * side)
            page.wait_for_selector(f".pair:has-text('query {query}')")
            first = (query + 2) // 4 * 4
            rows = slice(max(0, first - 2), first + 2)
            masked = scores[0, 1].masked_fill(torch.ones(5, 307).triu(303).bool(), -torch.inf).softmax(-1)
            wanted = float(masked[rows, 300:304].max())
            page.wait_for_timeout(150)
            assert weight(page) == pytest.approx(wanted, rel=LOG8_ERROR + 1e-3)


def test_without_maps_and_tokens_the_page_says_so(show):
    record = samples.decoder(samples.pieces(7), layers=1, heads=2, grid=None)
    record.tokens = None
    with show(record, "#/head", wanted=".pane", color_scheme="dark") as page:
        assert "there is nothing to draw" in page.locator(".pane").inner_text()
        page.get_by_role("link", name="All heads").click()
        assert page.locator("tbody tr").count() == 2


def test_the_reader_s_theme_is_that_of_the_whole_page(show, decoder):
    with show(decoder, color_scheme="light") as page:
        color = "getComputedStyle(document.body).backgroundColor"
        light = page.evaluate(color)
        choose(page, "Theme", "dark")
        assert page.evaluate(color) != light
        assert page.locator(".regard").get_attribute("data-theme") == "dark"


def test_a_browser_that_cannot_unpack_says_so(opened, decoder):
    with opened(report(decoder), before="delete window.DecompressionStream") as page:
        page.wait_for_selector("#trouble:visible")
        assert "browser of 2023 or later" in page.locator("#trouble").inner_text()


@pytest.mark.parametrize("kind", ["PNG", "SVG"])
@pytest.mark.parametrize("panel", ["map", "lines"])
def test_what_is_seen_can_be_taken_away(show, decoder, kind, panel, tmp_path):
    wanted = {"map": ".pane[data-state=ready]", "lines": ".drawing line"}[panel]
    with show(decoder, f"{HEAD}&panel={panel}", wanted=wanted, quiet=False) as page:
        # What a server draws cannot be had from a file.
        assert open_menu(page).get_by_role("button", name="PDF", exact=True).is_disabled()
        content = taken(page, tmp_path, kind).read_bytes()
    assert content.startswith({"PNG": b"\x89PNG", "SVG": b"<?xml"}[kind]) and len(content) > 5000
