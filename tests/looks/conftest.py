"""Looks at models that have not learned: see `untrained`."""

from untrained import fresh

__all__ = ["fresh"]
