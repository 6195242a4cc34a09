"""Stands in for torchvision where that cannot be installed: its names exist, so that what imports them can be imported.

Of what it computes, models of attention ask for a frozen batch norm and for `roi_align`: the mean of what is seen in a
box is read here at the middle of each of its cells.
"""

from __future__ import annotations

import importlib.abc
import importlib.machinery
import sys
from types import ModuleType
from typing import Any

__version__ = "0.0.0"


class _Absent(type):
    def __getattr__(cls, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return _absent(name)


def _absent(name: str) -> Any:
    """A class of that name with which nothing can be done."""
    if name == "FrozenBatchNorm2d":
        import torch

        return type(name, (torch.nn.BatchNorm2d,), {})
    if name == "roi_align":
        return _roi_align
    return _Absent(name, (), {"__doc__": "Not here."})


def _roi_align(seen: Any, boxes: Any, size: int) -> Any:
    """Each box (n × 4 for each picture, as left, top, right, bottom) as size × size cells."""
    import torch

    height, width = seen.shape[-2:]
    middles = (torch.arange(size, dtype=seen.dtype) + 0.5) / size
    found = []
    for picture, corners in zip(seen, boxes, strict=True):
        low, high = corners[:, None, :2], corners[:, None, 2:]
        places = low + middles[:, None] * (high - low)  # n × size × (x, y)
        unit = 2 * places / torch.tensor([width, height], dtype=seen.dtype) - 1
        grid = torch.stack(
            (unit[:, None, :, 0].expand(-1, size, -1), unit[:, :, None, 1].expand(-1, -1, size)), -1
        )
        found.append(
            torch.nn.functional.grid_sample(
                picture.expand(len(corners), -1, -1, -1), grid, align_corners=False
            )
        )
    return torch.cat(found)


class _Module(ModuleType):
    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return _absent(name)


class _Finder(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    def find_spec(self, name: str, path: Any = None, target: Any = None) -> Any:
        if not name.startswith("torchvision."):
            return None
        return importlib.machinery.ModuleSpec(name, self, is_package=True)

    def create_module(self, spec: Any) -> ModuleType:
        return _Module(spec.name)

    def exec_module(self, module: ModuleType) -> None:
        return None


sys.meta_path.append(_Finder())


def __getattr__(name: str) -> Any:
    if name.startswith("__"):
        raise AttributeError(name)
    import importlib

    return importlib.import_module(f"torchvision.{name}")
