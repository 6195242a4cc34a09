"""The view of the findings, in a real browser: what it says is what `diagnose` says, and its links lead there."""

import pytest
import torch

import regard as rg
from helpers.explored import explored, read
from helpers.ill_heads import Layer, Model, noise, on_key
from regard.analysis import diagnose
from regard.explorer.opened import Opened
from regard.web.tiles import RecordTiles

N = 53
COLORS = {"warning": "rgb(230, 159, 0)", "note": "rgb(156, 195, 224)"}


@pytest.fixture(scope="module")
def record():
    torch.manual_seed(5)
    same = noise(1, N)
    first = Layer(torch.cat((on_key(N, 0), on_key(N, 17), same)))
    model = Model(first, Layer(torch.cat((torch.zeros(1, N, N), same)))).eval()
    with torch.no_grad(), rg.watch(model, keep="vectors", statistics=None, map=64) as record:
        model(torch.randint(1, 31, (1, N)))
    record.tokens = [[f"t{place}" for place in range(N)]]
    return record


def test_findings_are_told_and_lead_to_their_place(record, browser_path):
    diagnosis = diagnose(record)
    opened = Opened()
    opened.add(RecordTiles(record), "ill")
    with explored(opened, browser_path) as page:
        page.get_by_role("link", name="Check").click()
        page.locator("h2").filter(has_text=diagnosis.summary()).wait_for()
        for group in {(one.name, one.severity) for one in diagnosis.findings}:
            mine = [one for one in diagnosis.findings if (one.name, one.severity) == group]
            rows = page.get_by_role("region", name=", ".join(group), exact=True).locator("tbody tr")
            assert rows.count() == len(mine)
            for row, finding in zip(rows.all(), mine, strict=True):
                head, value, *_ = row.locator("td").all_inner_texts()
                assert diagnosis.where(finding) in head
                assert read(value) == pytest.approx(finding.value, rel=5e-3)
        worst = {(one.layer, one.head): one for one in reversed(diagnosis.findings)}
        cells = page.locator(".grid a.cell")
        assert cells.count() == 5
        for cell, (layer, head) in zip(cells.all(), [(0, 0), (0, 1), (0, 2), (1, 0), (1, 1)], strict=True):
            color = cell.evaluate("node => getComputedStyle(node).backgroundColor")
            finding = worst.get((f"layers.{layer}", head))
            assert (finding is None) == (color not in COLORS.values())
            if finding is not None:
                assert color == COLORS[finding.severity]
        rules = page.get_by_role("region", name="Rules").locator("tbody tr")
        assert rules.count() == len(diagnosis.applied) + len(diagnosis.skipped)
        for name, why in diagnosis.skipped.items():
            assert why in rules.filter(has_text=name).inner_text()
        page.get_by_role("region", name="collapse, warning").get_by_role("link", name="head 1").click()
        page.get_by_label("Map of").first.wait_for()
        assert "call=0" not in page.url and "head=1" in page.url and "key=17" in page.url
        page.go_back()
        page.get_by_role("link", name="beside").click()
        page.wait_for_url("**/#/compare?**")
        assert "heads=1.1+0.2" in page.url
