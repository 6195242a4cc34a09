"""The description of the server is what it does: drawn requests, right and wrong ones, find no answer of 500."""

import contextlib
import importlib.util
import json
from itertools import count
from pathlib import Path

import pytest
import schemathesis
from hypothesis import HealthCheck, given, settings
from hypothesis.errors import Unsatisfiable
from schemathesis import GenerationMode
from schemathesis.checks import not_a_server_error

# Drawn for each route, right and wrong ones each.
EXAMPLES = 6
KNOWN = {"record": "r1", "call": 0, "head": 1, "cell": 1, "row": 0, "column": 0, "query": 3, "key": 2}


def let_in(access) -> dict[str, str]:
    """Headers as of a browser that came with the token; the library asks at port 80."""
    return {"host": "127.0.0.1", "cookie": f"regard-80={access.session}"}


@pytest.mark.parametrize("mode", [GenerationMode.POSITIVE, GenerationMode.NEGATIVE])
def test_no_request_ends_in_a_500(app, access, mode):
    schema = schemathesis.openapi.from_asgi("/api/openapi.json", app, headers=let_in(access))
    statuses, turn = set(), count()
    for found in schema.get_all_operations():
        operation = found.ok()
        # Closed by chance, the record would leave nothing to ask for.
        if operation.method == "delete" and operation.path == "/api/records/{record}":
            continue

        @given(case=operation.as_strategy(generation_mode=mode))
        @settings(
            max_examples=EXAMPLES, suppress_health_check=list(HealthCheck), derandomize=True, database=None
        )
        def ask(case):
            # Every second one is about what is there, which no draw finds.
            if case.path_parameters and next(turn) % 2:
                known = {name: value for name, value in KNOWN.items() if name in case.path_parameters}
                case.path_parameters.update(known)
            answer = case.call(headers=let_in(access))
            statuses.add(answer.status_code)
            case.validate_response(answer, checks=[not_a_server_error])
            assert answer.status_code not in (401, 403), "the cookie must let every request in"

        # A route without arguments cannot be asked wrongly.
        with contextlib.suppress(Unsatisfiable):
            ask()
    assert statuses & {404, 422}, "some requests must have been wrong"


def test_every_route_of_the_contract_is_described(app):
    paths = set(app.openapi()["paths"])
    head = "/api/records/{record}/calls/{call}/heads/{head}"
    wanted = {
        "/api/state",
        "/api/records/{record}",
        "/api/records/{record}/overview",
        "/api/records/{record}/calls/{call}/series/{name}",
        "/api/records/{record}/snippet",
        "/api/records/{record}/export",
        f"{head}/tiles/{{cell}}/{{row}}/{{column}}",
        f"{head}/rows/{{query}}",
        f"{head}/columns/{{key}}",
        f"{head}/window",
        f"{head}/pairs/{{query}}/{{key}}",
        f"{head}/peaks",
        "/api/runs",
        "/api/jobs/{job}",
        "/api/jobs/{job}/events",
        "/api/playground",
    }
    assert wanted <= paths


def test_the_script_prints_the_description(app):
    script = Path(__file__).parents[2] / "scripts" / "write_openapi.py"
    specification = importlib.util.spec_from_file_location("write_openapi", script)
    module = importlib.util.module_from_spec(specification)
    specification.loader.exec_module(module)
    assert json.loads(module.description()) == app.openapi()
