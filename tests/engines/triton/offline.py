"""Compile every kernel for a GPU that need not be there: `python offline.py 90` prints their shared memory as JSON.

The interpreter takes Python that the compiler does not; this is where that shows. Nothing is launched.
"""

import json
import sys
from collections.abc import Callable
from typing import Any

import torch
import triton
from triton.backends.compiler import GPUTarget
from triton.backends.driver import DriverBase
from triton.runtime.jit import JITFunction

import regard as rg
from regard.engines.triton import columns, launch, rows, vjp
from regard.shapes import sizes_of
from regard.spec import Spec
from regard.statistics.state import State
from regard.statistics.table import wanted


class Absent(DriverBase):
    """A driver that only says for which GPU to compile."""

    def __init__(self, generation: int) -> None:
        self.generation = generation

    @classmethod
    def is_active(cls) -> bool:
        return True

    def map_python_to_cpp_type(self, ty: str) -> str:
        return ty

    def get_current_target(self) -> GPUTarget:
        return GPUTarget("cuda", self.generation, 32)

    def get_current_device(self) -> int:
        return 0

    def get_current_stream(self, device: int) -> int:
        return 0

    def get_active_torch_device(self) -> torch.device:
        return torch.device("cpu")

    def get_benchmarker(self) -> Any:
        return None


def compile_all(generation: int) -> dict[str, int]:
    """Bytes of shared memory of each kernel, for a call with every statistic."""
    shared: dict[str, int] = {}

    def compiled(kernel: JITFunction, grid: object) -> Callable[..., None]:
        def keep(*arguments: Any, **options: Any) -> None:
            shared[kernel.__name__] = kernel.warmup(*arguments, grid=(1,), **options).metadata.shared

        return keep

    triton.runtime.driver.set_active(Absent(generation))
    launch.capability = lambda device: divmod(generation, 10)
    JITFunction.__getitem__ = compiled
    query, key = (torch.zeros(1, heads, 2048, 64, dtype=torch.bfloat16) for heads in (4, 2))
    spec = Spec.of(sizes_of(query, key, key), mask=rg.causal(), bias=rg.alibi(torch.ones(4)), softcap=5.0)
    want = wanted(top=2, cell=64)
    rows(query, key, key, spec, want)
    rows(query[:, :, :1], key, key, spec, want)  # few queries: the keys are split, and merged
    some = torch.zeros(1, 4, 2048, dtype=torch.float64)
    columns(query, key, spec, some, some, want)
    slopes = torch.zeros(1, 4, 2048, 64), torch.zeros(1, 4, 2048, len(want.columns)).double()
    grads = State(m=some.float(), l=some, u=some, r=some, o=slopes[0], c=slopes[1])
    vjp(query, key, key, spec, want, grads, some, (True, True, True))
    return shared


if __name__ == "__main__":
    print(json.dumps(compile_all(int(sys.argv[1]))))
