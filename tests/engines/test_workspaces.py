"""Memory of the tiles engine goes from one fold to the next: to one at a time, and never with a result in it."""

import threading

import pytest
import torch

import regard as rg
from regard.engines.walk import LARGEST_KEPT, plain, workspaces
from regard.shapes import sizes_of
from regard.spec import Spec
from regard.statistics.observation import Observation

LIKE = torch.zeros(3)


def places(spaces) -> set[int]:
    return {space(10).data_ptr() for space in spaces}


def test_memory_is_kept_for_the_next_fold_and_never_shared():
    with workspaces(LIKE, 10, torch.float64, 1) as (outer,):
        outer(10).fill_(1.0)
        with workspaces(LIKE, 10, torch.float64, 2) as inner:
            for space in inner:
                space(10).fill_(2.0)
            seen = places([outer, *inner])
        assert len(seen) == 3 and outer(10).unique().tolist() == [1.0]
    with workspaces(LIKE, 20, torch.float32, 2) as again:
        assert places(again) < seen


def test_threads_have_memory_of_their_own():
    seen, ready = [], threading.Barrier(4)

    def fold() -> None:
        for _ in range(50):
            with workspaces(LIKE, 10, torch.float32, 2) as spaces:
                ready.wait(timeout=60)
                seen.append(places(spaces))
                ready.wait(timeout=60)

    threads = [threading.Thread(target=fold) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    # The barriers let all four hold theirs at once: each turn is four entries in a row.
    for turn in range(0, len(seen), 4):
        assert len(set.union(*seen[turn : turn + 4])) == 8


@pytest.mark.parametrize("elements", [10, LARGEST_KEPT // 4, LARGEST_KEPT])
def test_memory_of_an_inference_can_be_written_to_afterwards(elements):
    with torch.inference_mode(), workspaces(LIKE, elements, torch.float32, 1) as (space,):
        space(2, 5).fill_(1.0)
    with torch.no_grad(), workspaces(LIKE, elements, torch.float32, 1) as (space,):
        assert space(2, 5).fill_(3.0).sum() == 30


@pytest.mark.parametrize("tokens", [1, 2, 67])
def test_no_result_lies_in_the_memory_of_its_fold(tokens):
    torch.manual_seed(0)
    vectors = [torch.randn(3, 1, 2, tokens, 8) for _ in range(2)]
    seen = [
        rg.observe(*vectors[0], mask=mask, engine="tiles", map=cell, top=top)
        for mask in (None, rg.causal())
        for cell, top in ((1, 1), (16, 3))
    ]
    before = [[t.clone() for t in tensors_of(one)] for one in seen]
    for mask in (None, rg.causal()):
        rg.observe(*vectors[1], mask=mask, engine="tiles", map=1)
    for one, kept in zip(seen, before, strict=True):
        assert len(kept) > 10
        for after, then in zip(tensors_of(one), kept, strict=True):
            torch.testing.assert_close(after, then, rtol=0, atol=0, equal_nan=True)


def tensors_of(seen: Observation) -> list[torch.Tensor]:
    parts = [*vars(seen).values(), *vars(seen.map).values(), *vars(seen.top or seen.map).values()]
    return [part for part in parts if isinstance(part, torch.Tensor)]


@pytest.mark.parametrize("scale", [1.0, 0.125, 2.0**-8, 0.1])
def test_a_power_of_two_may_scale_the_query(scale):
    torch.manual_seed(0)
    query, key = torch.randn(1, 2, 37, 64), torch.randn(1, 2, 41, 64)
    products = torch.bmm(query[0], key[0].transpose(1, 2))
    assert torch.equal(plain(query, key, Spec.of(sizes_of(query, key), scale=scale))[0], products * scale)
