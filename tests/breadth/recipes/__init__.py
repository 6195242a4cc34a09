"""Configurations, classes and inputs of single types, by what they are about."""

from __future__ import annotations

from typing import Any

from breadth.recipes import hearing, reading, seeing, segmenting

PARTS = (reading, seeing, segmenting, hearing)
CLASSES: dict[str, list[str]] = {name: item for part in PARTS for name, item in part.CLASSES.items()}
CONFIGS: dict[str, dict[str, Any]] = {name: item for part in PARTS for name, item in part.CONFIGS.items()}
INPUTS: dict[str, Any] = {name: item for part in PARTS for name, item in part.INPUTS.items()}
