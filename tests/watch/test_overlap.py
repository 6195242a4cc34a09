"""Watches that overlap, in one thread or several, in any order: each sees its own model, and nothing stays behind."""

from __future__ import annotations

import itertools
import threading
from collections.abc import Callable
from contextlib import ExitStack

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.nn.attention.flex_attention import flex_attention
from torch.overrides import TorchFunctionMode

import regard
from watch.families import FAMILIES


class Attends(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return F.scaled_dot_product_attention(x, x, x)


class Flex(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return flex_attention(x[:, None], x[:, None], x[:, None])[:, 0]


class ByHand(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return (x @ x.mT).softmax(-1) @ x


KINDS: dict[str, Callable[[], nn.Module]] = {"sdpa": Attends, "flex": Flex, "softmax": ByHand}
X = torch.randn(2, 16, 16)


@pytest.mark.parametrize("order", list(itertools.permutations(range(3))))
def test_watches_end_in_any_order(order: tuple[int, ...]) -> None:
    models = [Attends(), ByHand(), Flex()]
    watches = [regard.watch(model) for model in models]
    records = [watch.__enter__() for watch in watches]
    for place, which in enumerate(order):
        for model in models:
            model(X)
        watches[which].__exit__(None, None, None)
        assert len(records[which]) == place + 1
    for model in models:
        model(X)
    assert sorted(len(record) for record in records) == [1, 2, 3]


def test_a_mode_above_ours_stays() -> None:
    class Counts(TorchFunctionMode):
        seen = 0

        def __torch_function__(self, func, types, args=(), kwargs=None):  # type: ignore[no-untyped-def]
            self.seen += 1
            return func(*args, **(kwargs or {}))

    model, counts = Attends(), Counts()
    watch = regard.watch(model)
    record = watch.__enter__()
    with counts:
        model(X)
        watch.__exit__(None, None, None)
        before = counts.seen
        model(X)
        assert counts.seen > before and len(record) == 1


@pytest.mark.parametrize("kind", KINDS)
def test_threads_watch_their_own_models_at_once(kind: str) -> None:
    together, failed, counts = threading.Barrier(4, timeout=60), [], []

    def work(number: int) -> None:
        try:
            model = KINDS[kind]()
            want = model(X)
            for turn in range(5):
                with ExitStack() as stack:
                    together.wait()
                    record = stack.enter_context(regard.watch(model))
                    if (number + turn) % 2:
                        together.wait()
                    for _ in range(number + 1):
                        assert torch.equal(model(X), want)
                    if not (number + turn) % 2:
                        together.wait()
                counts.append(len(record) == number + 1)
                assert torch.equal(model(X), want)
        except BaseException as error:
            failed.append(error)
            together.abort()

    threads = [threading.Thread(target=work, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failed and counts == [True] * 20


def test_two_threads_with_a_model_of_hugging_face() -> None:
    family, failed = FAMILIES["Llama"], []
    inside, done = threading.Event(), threading.Event()

    def other() -> None:
        try:
            model = family.build()
            with torch.no_grad(), regard.watch(model) as record:
                inside.set()
                done.wait(60)
                model(**family.inputs())
            assert len(record) == 2
            model(**family.inputs())
        except BaseException as error:
            failed.append(error)

    model = family.build()
    with torch.no_grad(), regard.watch(model) as record:
        thread = threading.Thread(target=other)
        thread.start()
        assert inside.wait(60)
        model(**family.inputs())
    done.set()
    thread.join()
    model(**family.inputs())
    assert not failed and len(record) == 2


def test_a_watch_that_ends_in_another_thread_leaves_the_model_as_it_was() -> None:
    model = Attends()
    watch = regard.watch(model)
    record = watch.__enter__()
    want = model(X)
    thread = threading.Thread(target=watch.__exit__, args=(None, None, None))
    thread.start()
    thread.join()
    assert torch.equal(model(X), want) and len(record) == 1
    with regard.watch(model) as second:
        model(X)
    assert len(second) == 1


def test_somebody_who_wraps_our_hook_keeps_the_wrapper() -> None:
    calls, model = [], Attends()
    original = nn.Module.__call__
    watch = regard.watch(model)
    watch.__enter__()
    ours = nn.Module.__call__

    def wrapper(module: nn.Module, *args: object) -> object:
        calls.append(module)
        return ours(module, *args)

    nn.Module.__call__ = wrapper  # type: ignore[method-assign, assignment]
    try:
        model(X)
        watch.__exit__(None, None, None)
        model(X)
        assert len(calls) == 2 and nn.Module.__call__ is wrapper
    finally:
        nn.Module.__call__ = original  # type: ignore[method-assign]
