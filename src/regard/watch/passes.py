"""The forward passes that a training makes anyway, each watched while it runs.

Knows when a pass begins and ends, and which passes belong to the training; what its calls say is the recorder's work.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import nn

from regard.record import Record
from regard.statistics.table import Choice
from regard.watch.recorder import Recorder
from regard.watch.selection import layers_of, refuse_compiled, selected_modules
from regard.watch.settings import Settings
from regard.watch.watch import check_seen


@contextmanager
def training_passes(
    model: nn.Module,
    seen: Callable[[Record], None],
    *,
    statistics: tuple[str | Choice, ...],
    layers: str | int | Iterable[str | int] | None = None,
) -> Iterator[None]:
    """Within it, each forward pass of a model whose gradients are wanted is watched as by `watch`.

    Nothing is hooked between passes, and what runs without gradients, such as an evaluation, is left alone. A pass that
    gradient checkpointing makes once more is no new one. Outputs, gradients and random states stay what they were.

    Args:
        model: the module that is called, or one whose parts are called, as a training step of Lightning does.
        seen: gets the record of each pass when the pass is over, in the thread that ran it.
        statistics: what to keep of each call, as for `watch`.
        layers: which modules to watch, as for `watch`; None: all.

    Raises:
        WatchError: an attention call that cannot be read exactly, or a compiled model; names the module and the way
            out.
        ArgumentError: a layer that does not exist.
    """
    settings = Settings(False, statistics, None, 0, False)
    chosen = selected_modules(model, layers_of(layers))

    def recorder() -> Recorder:
        return Recorder(model, settings, Record(), chosen)

    refuse_compiled(recorder().modules)
    passes = _Passes(model, recorder, seen)
    with ExitStack() as hooks:
        hooks.callback(passes.abandon)
        for module in _entrances(model):
            before = module.register_forward_pre_hook(passes.before, with_kwargs=True)
            # Called after a failure too, or a batch that did not fit into memory would leave its pass open.
            after = module.register_forward_hook(passes.after, with_kwargs=True, always_call=True)
            hooks.callback(before.remove)
            hooks.callback(after.remove)
        yield


def _entrances(model: nn.Module) -> Iterator[nn.Module]:
    """The model, and the modules through which a training step may enter it that does not call the model itself."""
    yield model
    for child in model.children():
        if isinstance(child, nn.ModuleList | nn.ModuleDict):
            yield from _entrances(child)
        else:
            yield child


@dataclass(eq=False)
class _Passes:
    """The pass that runs now, if one does, and who gets it when it is over."""

    model: nn.Module
    recorder: Callable[[], Recorder]
    seen: Callable[[Record], None]
    running: Recorder | None = None
    failure: BaseException | None = None
    stack: ExitStack = field(default_factory=ExitStack)

    def before(self, module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        """A module is called: where no pass runs, one begins."""
        again = torch._C._current_graph_task_id() != -1
        if self.running is not None or again or not torch.is_grad_enabled() or torch.compiler.is_compiling():
            return
        self.running, self.failure = self.recorder(), sys.exc_info()[1]
        self.stack.enter_context(self.running.watching())
        # Looking at a tensor's shape would be a call that our own mode sees.
        with torch._C.DisableTorchFunction():
            self.running.entered(module, args, kwargs)

    def after(self, module: nn.Module, _args: Any, _kwargs: Any, result: Any) -> None:
        """A module is over: with the one that began the pass, the pass."""
        recorder = self.running
        if recorder is None or recorder.depth != 1 or recorder.modules.stack[0].module is not module:
            return
        # Torch does not say whether the module failed; an error that was not there before is its own.
        failed = sys.exc_info()[1] is not self.failure
        with torch._C.DisableTorchFunction():
            recorder.left(result)
        self.abandon()
        if failed:
            return
        # Parts of a step, such as its loss, need not attend anything; the model itself must.
        if recorder.layers or module is self.model:
            check_seen(recorder)
        with torch.no_grad():
            self.seen(recorder.record)

    def abandon(self) -> None:
        """Watch no more; a pass that is not over is forgotten."""
        self.running, self.failure = None, None
        self.stack.close()
