"""Which exercises a learner has passed, and the cards of quizzes, in one file of the user's data folder.

Knows nothing of exercises and questions.
"""

from __future__ import annotations

import contextlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from regard import files
from regard.errors import ArgumentError, require
from regard.files import sealing

FORM = sealing.Form("regard-learn-progress", 1, "progress of a learner")
NAME = "learn.json"


def data_folder() -> Path:
    """The folder of the system in which a user's programs keep their data.

    Raises:
        MissingPackageError: platformdirs is not installed.
    """
    return Path(require("platformdirs", extra="look").user_data_dir("regard", appauthor=False))


class Progress:
    """The names of the exercises that were passed, and when questions are to be asked again.

    Args:
        path: of the file; None: `learn.json` in the user's data folder. It is written at the first success or
            answer.

    Raises:
        ArgumentError: there is a file, and it is not what was written there.
    """

    def __init__(self, path: Path | None = None) -> None:
        self.path = path or data_folder() / NAME
        self._passed: set[str] = set()
        self._cards: dict[int, dict[str, Any]] = {}
        with contextlib.suppress(FileNotFoundError):
            body = sealing.read(self.path, FORM, ArgumentError)
            self._passed = {str(name) for name in body.get("passed", ())}
            self._cards = {int(card["card_id"]): card for card in body.get("cards", ())}

    def __contains__(self, name: str) -> bool:
        return name in self._passed

    def add(self, name: str) -> None:
        """Remember that an exercise was passed."""
        if name not in self._passed:
            self._passed.add(name)
            self._write()

    def remove(self, name: str) -> None:
        """Forget that an exercise was passed, as its file begins anew."""
        if name in self._passed:
            self._passed.discard(name)
            self._write()

    def cards(self) -> dict[int, dict[str, Any]]:
        """The cards of the questions that were answered, by `card_id`."""
        return dict(self._cards)

    def save_card(self, card: Mapping[str, Any]) -> None:
        """Store a card, in the place of an earlier one with its `card_id`: what JSON can hold."""
        self._cards[int(card["card_id"])] = dict(card)
        self._write()

    def _write(self) -> None:
        cards = [self._cards[number] for number in sorted(self._cards)]
        content = sealing.document(FORM, {"passed": sorted(self._passed), "cards": cards}, indent=1)
        files.write(self.path, content, error=ArgumentError, what="progress")
