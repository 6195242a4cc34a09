"""The folder in which a learner's files lie, one for each exercise that was begun. Knows no verdicts."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from regard import files
from regard.errors import ArgumentError
from regard.learn.exercise import Exercise


@dataclass(frozen=True)
class Workshop:
    """The files to fill in.

    Attributes:
        folder: where they lie; it is made with the first of them.
    """

    folder: Path

    def path(self, exercise: Exercise) -> Path:
        """The file of an exercise, whether it is there or not."""
        return self.folder / exercise.file

    def open(self, exercise: Exercise) -> Path:
        """The file of an exercise, which is laid there unsolved if there is none; one that is there stays as it is.

        Raises:
            ArgumentError: it cannot be written, or something that is no file has its name.
        """
        path = self.path(exercise)
        if path.exists() and not path.is_file():
            raise ArgumentError(f"the exercise must be a file, got {str(path)!r}")
        if not path.exists():
            files.write(path, exercise.unsolved, error=ArgumentError, what="exercise")
        return path

    def reset(self, exercise: Exercise) -> Path:
        """Begin anew; what was in the file stays beside it under the name `….before.py`.

        Returns:
            Where the learner's text is now.
        """
        path = self.path(exercise)
        before = path.with_suffix(".before.py")
        if path.is_file():
            files.write(before, path.read_bytes(), error=ArgumentError, what="exercise")
        files.write(path, exercise.unsolved, error=ArgumentError, what="exercise")
        return before

    def stamp(self, exercise: Exercise) -> tuple[int, int] | None:
        """What changes when the file is saved; None where there is none."""
        try:
            status = self.path(exercise).stat()
        # An editor that saves by renaming leaves no file for a moment.
        except FileNotFoundError:
            return None
        return status.st_mtime_ns, status.st_size

    def text(self, exercise: Exercise) -> str:
        """What is in the file, as text that can be stored anywhere; the unsolved one where there is none."""
        try:
            return self.path(exercise).read_text("utf-8", errors="replace").replace("\0", "")
        except FileNotFoundError:
            return exercise.unsolved
