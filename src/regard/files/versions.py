"""Which versions made a file: what is written says so."""

from __future__ import annotations

import platform
import sys
from functools import cache
from importlib.metadata import PackageNotFoundError, version


@cache
def own_version() -> str:
    """The version that is installed, such as "0.1.0"; "0" where the package runs from its sources."""
    try:
        return version("regard")
    except PackageNotFoundError:
        return "0"


def versions(*names: str) -> dict[str, str]:
    """The versions of "regard", "python" and packages, in the order asked for; without packages that are not imported.

    Example:
        >>> from regard.files.versions import versions
        >>> list(versions("regard", "torch", "python", "never_imported"))
        ['regard', 'torch', 'python']
    """
    known = {"regard": own_version(), "python": platform.python_version()}
    for name in names:
        if name not in known and (module := sys.modules.get(name)) is not None:
            known[name] = str(module.__version__)
    return {name: known[name] for name in names if name in known}
