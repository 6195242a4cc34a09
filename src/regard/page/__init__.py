"""Self-contained HTML pages.

Of one forward pass (`report`), of many (`profile`), of a training (`history`), of a diagnosis (`findings`).
"""

from regard.page.findings import findings
from regard.page.history import Part, histories, history
from regard.page.profile import profile
from regard.page.report import report

__all__ = ["Part", "findings", "history", "histories", "profile", "report"]
