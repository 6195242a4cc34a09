"""What a page owes everybody: it fits the screen, light, dark and on a phone, and axe-core finds no fault."""

from __future__ import annotations

from house import guards

AXE = guards.ROOT / "web" / "node_modules" / "axe-core" / "axe.min.js"
# Options of a page, by how it is looked at.
LOOKS: dict[str, dict] = {"light": {}, "dark": {"theme": "dark"}, "phone": {"width": 390, "height": 844}}


def put(page, look: str) -> None:
    """Look at an open page otherwise: another scheme of colors, another window."""
    options = LOOKS[look]
    page.emulate_media(color_scheme=options.get("theme", "light"))
    page.set_viewport_size({"width": options.get("width", 1280), "height": options.get("height", 800)})


def findings(page) -> list[tuple[str, str, str]]:
    """What axe-core finds but what it calls minor: its rule, the element, and why."""
    page.evaluate(AXE.read_text("utf-8"))
    return [
        (one["id"], node["html"][:160], node["failureSummary"])
        for one in page.evaluate("axe.run().then(result => result.violations)")
        if one["impact"] != "minor"
        for node in one["nodes"]
    ]


def check(page) -> None:
    """Fail where a page is wider than its window, or axe-core finds a fault."""
    assert page.evaluate("document.documentElement.scrollWidth - innerWidth") <= 0
    assert findings(page) == []
