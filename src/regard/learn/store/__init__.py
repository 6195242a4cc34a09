"""What learners have done, in a database: lessons, exercises, quiz cards, bookmarks, notes, and a log of checks.

SQLite in the user's data folder, or PostgreSQL by its URL. Imported only where it is used: it needs the extra `learn`.
"""

from regard.learn.store.document import from_document, to_document
from regard.learn.store.learner import Learner
from regard.learn.store.progress import (
    Bookmark,
    Card,
    Event,
    Lesson,
    Note,
    Progress,
    Solution,
    merge,
)
from regard.learn.store.store import Store, default_url

__all__ = [
    "Bookmark",
    "Card",
    "Event",
    "Learner",
    "Lesson",
    "Note",
    "Progress",
    "Solution",
    "Store",
    "default_url",
    "from_document",
    "merge",
    "to_document",
]
