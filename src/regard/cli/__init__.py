"""The command line. Knows how mistakes are told; the work is done elsewhere, in a module for each command."""

from __future__ import annotations

import sys

from regard.cli import interrupts
from regard.errors import RegardError


def main() -> None:
    """Run the command line; a user's mistake ends in one message and exit status 2, never in a traceback.

    An interrupt ends in silence, with exit status 130.
    """
    try:
        from regard.cli.commands import app

        with interrupts.raised():
            app()
    except KeyboardInterrupt:
        sys.exit(interrupts.STATUS)
    except (RegardError, OSError, MemoryError) as error:
        print(f"regard: {error or type(error).__name__}", file=sys.stderr)
        sys.exit(2)
