"""The engine's kernels in Triton's interpreter, on the CPU.

Triton decides when a kernel is defined whether it will be interpreted, so the kernels are imported here, under
TRITON_INTERPRET, as Triton itself is in the conftest of all tests; only the tests of this folder run under it, so that
no other call finds the engine willing.
"""

import importlib

import pytest

from regard import engines
from regard.engines import triton as engine

KERNELS = ("rows", "merging", "columns", "gradients")

if engine.launch.installed():
    from triton.language import standard
    from triton.runtime.interpreter import InterpretedFunction

    assert isinstance(standard.max, InterpretedFunction), (
        "Triton must be imported under TRITON_INTERPRET=1, got an earlier import"
    )
    with pytest.MonkeyPatch.context() as environment:
        environment.setenv("TRITON_INTERPRET", "1")
        for kernel in KERNELS:
            importlib.import_module(f"regard.engines.triton.kernels.{kernel}")


@pytest.fixture(autouse=True)
def interpreted(monkeypatch: pytest.MonkeyPatch) -> None:
    """This engine alone, and willing to run on the CPU."""
    if not engine.launch.installed():
        pytest.skip('Triton is not installed: pip install "regard[cuda]"')
    monkeypatch.setenv("TRITON_INTERPRET", "1")
    monkeypatch.setattr(engines, "ENGINES", (engine,))
