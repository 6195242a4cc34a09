"""Looks at models that have not learned: see `untrained`."""

from helpers.untrained import fresh

__all__ = ["fresh"]
