"""What surrounds a call while it is looked at: autocast off, errors with its module's name; and where tensors lie."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch import Tensor

from regard.errors import RegardError, WatchError
from regard.watch.captured import unreadable
from regard.watch.modules import CallSite


def memory(tensor: Tensor) -> int:
    """Where the numbers of a tensor begin; 0 where it has none of its own."""
    try:
        return tensor.untyped_storage().data_ptr()
    # A class of tensors without storage.
    except (RuntimeError, NotImplementedError):
        return 0


@contextmanager
def without_autocast(tensor: Tensor) -> Iterator[None]:
    """Compute without autocast."""
    # Autocast would lower the float32 products that the check and the engines make of lowered tensors.
    if not torch.is_autocast_enabled(tensor.device.type):
        yield
        return
    with torch.autocast(tensor.device.type, enabled=False):
        yield


@contextmanager
def naming(site: CallSite) -> Iterator[None]:
    """Errors about a call name its module."""
    try:
        yield
    except WatchError:
        raise
    except RegardError as error:
        raise unreadable(site, str(error)) from error
