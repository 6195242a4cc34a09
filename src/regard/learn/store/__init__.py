"""What learners have done, in a database: lessons, exercises, cards, bookmarks, notes, a log of checks; and classes.

SQLite in the user's data folder, or PostgreSQL by its URL. Imported only where it is used: it needs the extra `learn`.
"""

from regard.learn.store.classes import Classes, NoClassError
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
    "Classes",
    "Event",
    "Learner",
    "Lesson",
    "NoClassError",
    "Note",
    "Progress",
    "Solution",
    "Store",
    "default_url",
    "from_document",
    "merge",
    "to_document",
]
