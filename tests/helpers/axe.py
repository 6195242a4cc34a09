"""What axe-core finds wrong with a page that is open in a browser."""

from __future__ import annotations

from typing import Any

from house import guards

SCRIPT = guards.ROOT / "web" / "node_modules" / "axe-core" / "axe.min.js"


def faults(page: Any) -> list[tuple[str, str, str]]:
    """The rules that are broken, each with the element and what is wrong; what axe-core calls minor is left out.

    Args:
        page: of Playwright, whose policy lets scripts be evaluated.
    """
    page.evaluate(SCRIPT.read_text("utf-8"))
    violations = page.evaluate("axe.run().then(result => result.violations)")
    return [
        (one["id"], node["html"][:160], node["failureSummary"])
        for one in violations
        if one["impact"] != "minor"
        for node in one["nodes"]
    ]
