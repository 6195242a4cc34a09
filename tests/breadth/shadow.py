"""Labels for every element of a tensor's memory: which row and key of which softmax it came from.

Like the shadow memory of a memory checker: labels belong to storages, so views, slices, transposes and writes in place
need no rule of their own. Knows nothing of Regard.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

NOTHING = -1


class Shadow:
    """One value of `dtype` beside every element of the tensors that were given some."""

    def __init__(self, dtype: torch.dtype | None, blank: float) -> None:
        self.dtype, self.blank = dtype, blank
        self._beside: dict[int, tuple[Any, Tensor]] = {}

    def clear(self) -> None:
        self._beside.clear()

    def __len__(self) -> int:
        return len(self._beside)

    def has(self, tensor: Any) -> bool:
        """Whether the tensor's memory has values beside it."""
        return isinstance(tensor, Tensor) and _strided(tensor) and _key(tensor) in self._beside

    def read(self, tensor: Tensor) -> Tensor | None:
        """What stands beside the tensor's elements, in its shape."""
        found = self._beside.get(_key(tensor)) if _strided(tensor) else None
        if found is None:
            return None
        return torch.as_strided(found[1], tensor.shape, tensor.stride(), tensor.storage_offset())

    def write(self, tensor: Tensor, values: Tensor) -> None:
        """Put values, which broadcast to the tensor, beside its elements."""
        if not _strided(tensor):
            return
        key = _key(tensor)
        if key not in self._beside:
            storage = tensor.untyped_storage()
            count = storage.nbytes() // tensor.element_size()
            memory = torch.full((count,), self.blank, dtype=self.dtype or tensor.dtype)
            # The storage is kept, so that no other tensor gets its address while the label stands.
            self._beside[key] = storage, memory
        place = torch.as_strided(self._beside[key][1], tensor.shape, tensor.stride(), tensor.storage_offset())
        place.copy_(values)

    def erase(self, tensor: Tensor) -> None:
        """Nothing stands beside the tensor's elements any more."""
        if self.has(tensor):
            self.write(tensor, torch.full((), self.blank, dtype=self.dtype or tensor.dtype))


def _strided(tensor: Tensor) -> bool:
    return (
        tensor.layout is torch.strided
        and tensor.device.type == "cpu"
        and type(tensor) in (Tensor, torch.nn.Parameter)
        and tensor.numel() > 0
    )


def _key(tensor: Tensor) -> int:
    return tensor.untyped_storage()._cdata
