"""Which version of Regard this is: what is written says so."""

from __future__ import annotations

from functools import cache
from importlib.metadata import PackageNotFoundError, version


@cache
def own_version() -> str:
    """The version that is installed, such as "0.1.0"; "0" where the package runs from its sources."""
    try:
        return version("regard")
    except PackageNotFoundError:
        return "0"
