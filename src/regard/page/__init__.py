"""One self-contained HTML page from a record: `report(record)`."""

from regard.page.report import report

__all__ = ["report"]
