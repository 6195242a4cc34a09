"""Prints what the explorer's server answers, as an OpenAPI description: for openapi-typescript and its like.

python scripts/write_openapi.py > openapi.json && npx openapi-typescript openapi.json --output web/src/api.d.ts
"""

from __future__ import annotations

import json

from regard.explorer.app import create_app
from regard.explorer.jobs import Jobs
from regard.explorer.opened import Opened
from regard.explorer.security import Access
from regard.explorer.worker import Worker


def description() -> str:
    """The description, as JSON."""
    opened = Opened()
    # Nothing is run: the worker would be started by the first run.
    jobs = Jobs(opened, Worker(()))
    try:
        return json.dumps(create_app(opened, jobs, Access()).openapi(), indent=1)
    finally:
        jobs.close()


if __name__ == "__main__":
    print(description())
