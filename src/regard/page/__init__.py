"""Self-contained HTML pages: `report(record)` of one forward pass, `profile(profile)` of many, `history(history)` of a training."""

from regard.page.history import Part, histories, history
from regard.page.profile import profile
from regard.page.report import report

__all__ = ["Part", "history", "histories", "profile", "report"]
