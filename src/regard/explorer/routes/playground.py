"""The playground: a layer of attention, answered while a slider moves."""

from __future__ import annotations

from dataclasses import fields
from threading import Event
from typing import Any

from fastapi import APIRouter, Request, Response

from regard.explorer.routes.shared import ARRAYS, Arrays, Turn
from regard.explorer.routes.views import Code
from regard.web.playground import PlaygroundState, answer

router = APIRouter()


@router.post("/playground", responses=ARRAYS, response_class=Response)
async def play(request: Request, state: PlaygroundState, turn: Turn) -> Any:
    """What a layer of these settings does.

    `weights` float32 (heads, queries, keys), `entropy` (heads, queries), `bound` (queries), `allowed` uint8 (queries,
    keys); metadata: tokens, memory_tokens, roles, sentences, parameters, cost, bounds.
    """

    def run(_cancel: Event) -> Response:
        shown = answer(state)
        return Arrays(shown.arrays, shown.info)

    return await turn(request, run)


@router.post("/playground/snippet")
def snippet(state: PlaygroundState) -> Code:
    """Python that gives what the playground shows of a state."""
    changed = [
        f"{field.name}={getattr(state, field.name)!r}"
        for field in fields(state)
        if getattr(state, field.name) != field.default
    ]
    lines = [
        "from regard.web.playground import PlaygroundState, answer",
        "",
        f"shown = answer(PlaygroundState({', '.join(changed)}))",
        'weights, entropy = shown.arrays["weights"], shown.arrays["entropy"]',
    ]
    return Code("\n".join(lines) + "\n")
