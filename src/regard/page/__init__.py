"""Self-contained HTML pages: `report(record)` of one forward pass, `life(life)` of a training."""

from regard.page.growing import Part, life, lives
from regard.page.report import report

__all__ = ["Part", "life", "lives", "report"]
