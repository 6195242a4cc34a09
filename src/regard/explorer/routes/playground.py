"""The playground: a layer of attention, answered while a slider moves."""

from __future__ import annotations

from dataclasses import fields
from threading import Event
from typing import Annotated, Any

from fastapi import APIRouter, Request, Response
from pydantic import Field
from pydantic.dataclasses import dataclass

from regard.explorer.routes.shared import ARRAYS, Arrays, QuickLane
from regard.explorer.routes.views import Code
from regard.web.playground import PlaygroundState, answer
from regard.web.playground.state import Pattern

router = APIRouter()


@dataclass(frozen=True)
class PlaygroundRequest(PlaygroundState):
    """A state of the playground; all of it may be left out."""

    pattern: Annotated[Pattern, Field(alias="made")] = "repeated"


@router.post("/playground", responses=ARRAYS, response_class=Response)
async def play(request: Request, state: PlaygroundRequest, lane: QuickLane) -> Any:
    """What a layer of these settings does.

    `weights` float32 (heads, queries, keys), `entropy` (heads, queries), `bound` (queries), `allowed` uint8 (queries,
    keys); metadata: tokens, memory_tokens, roles, sentences, parameters, cost, bounds.
    """

    def run(_cancel: Event) -> Response:
        shown = answer(state)
        return Arrays(shown.arrays, shown.info)

    return await lane(request, run)


@router.post("/playground/snippet")
def snippet(state: PlaygroundRequest) -> Code:
    """Python that gives what the playground shows of a state."""
    changed = [
        f"{field.name}={getattr(state, field.name)!r}"
        for field in fields(PlaygroundState)
        if getattr(state, field.name) != field.default
    ]
    lines = [
        "from regard.web.playground import PlaygroundState, answer",
        "",
        f"shown = answer(PlaygroundState({', '.join(changed)}))",
        'weights, entropy = shown.arrays["weights"], shown.arrays["entropy"]',
    ]
    return Code("\n".join(lines) + "\n")
