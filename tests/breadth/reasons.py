"""Why a type has no model here, in plain words, where the error that it gives does not say it."""

from __future__ import annotations

import re

RULES = ((r"requires the (\w+) library", r"it needs the library \1, which is not among those of the sweep"),)
NAMED = {
    "gemma4_assistant": "transformers asks that all of its layers share keys, and then refuses layers that all share",
    "layoutxlm": "a configuration for the models of layoutlmv2, which need the library detectron2",
    "nougat": "a configuration for VisionEncoderDecoderModel, whose encoder here is an unknown type",
}


def plain(name: str, error: str) -> str:
    """The reason for a type, from what it is or from the error."""
    if name in NAMED:
        return NAMED[name]
    for pattern, words in RULES:
        found = re.search(pattern, error)
        if found:
            return found.expand(words)
    return error
