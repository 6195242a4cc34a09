"""The engine's kernels in Triton's interpreter, on the CPU.

Triton decides when a kernel is defined whether it will be interpreted, so the kernels are imported here, under
TRITON_INTERPRET, as Triton itself is in the conftest of all tests; only the tests of this folder run under it, so that
no other call finds the engine willing.
"""

import importlib
import inspect
from functools import cache

import pytest

from regard import engines
from regard.engines import triton as engine

KERNELS = ("rows", "merging", "columns", "gradients")

if engine.launch.installed():
    from triton.language import core, standard
    from triton.runtime import interpreter

    assert isinstance(standard.max, interpreter.InterpretedFunction), (
        "Triton must be imported under TRITON_INTERPRET=1, got an earlier import"
    )
    with pytest.MonkeyPatch.context() as environment:
        environment.setenv("TRITON_INTERPRET", "1")
        for kernel in KERNELS:
            importlib.import_module(f"regard.engines.triton.kernels.{kernel}")

    @cache
    def builtins_of(place) -> tuple[str, ...]:
        return tuple(name for name, member in inspect.getmembers(place) if core.is_builtin(member))

    def patch_builtins(place, builder, scope) -> None:
        for name in builtins_of(place):
            # A function that another has called finds them patched.
            if core.is_builtin(member := getattr(place, name)):
                interpreter._patch_attr(place, name, member, builder, scope)

    # The interpreter looks through all of Triton's language at every call of a function, which is a third of its time.
    pytest.MonkeyPatch().setattr(interpreter, "_patch_builtin", patch_builtins)


@pytest.fixture(autouse=True)
def interpreted(monkeypatch: pytest.MonkeyPatch) -> None:
    """This engine alone, and willing to run on the CPU."""
    if not engine.launch.installed():
        pytest.skip('Triton is not installed: pip install "regard[cuda]"')
    monkeypatch.setenv("TRITON_INTERPRET", "1")
    monkeypatch.setattr(engines, "ENGINES", (engine,))
