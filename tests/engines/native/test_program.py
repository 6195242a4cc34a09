"""Mask programs in C++ say what the masks themselves say, pair by pair and tile by tile."""

import ctypes
import shutil
import subprocess
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from masks.strategies import BATCH, HEADS, KEYS, OFFSET, QUERIES, block_grids, leaves, trees
from regard.engines.native.mask_program import DEEPEST, Program, can_compile, compiled
from regard.errors import ArgumentError
from regard.masks import (
    ALL,
    NONE,
    SOME,
    And,
    Causal,
    Mask,
    Not,
    Tile,
    block_sparse,
    causal,
    dense,
    documents,
    global_tokens,
    near,
    padding,
    prefix,
    random_blocks,
    strided,
)

NATIVE = Path(__file__).parents[3] / "native"
SHIM = Path(__file__).with_name("mask_shim.cpp")
BUILDS = {"plain": ["-O1"], "vectorised": ["-O3", "-march=native"]}
Positions = tuple[int, int, int]  # first, step, count


@dataclass(frozen=True)
class Shim:
    """The C++ of one build, asked about one mask."""

    library: ctypes.CDLL
    program: Program | None

    def arguments(self, batch: int, head: int) -> tuple[object, ...]:
        if self.program is None:
            return None, None, ctypes.c_int64(batch), ctypes.c_int64(head)
        pointers = [table.data_ptr() for table in self.program.tables]
        tables = (ctypes.c_void_p * len(pointers))(*pointers)
        code = ctypes.c_void_p(self.program.code.data_ptr())
        return code, tables, ctypes.c_int64(batch), ctypes.c_int64(head)

    def classify(self, batch: int, head: int, queries: Positions, keys: Positions) -> Tile:
        answer = self.library.classify_tile(*self.arguments(batch, head), numbers(queries), numbers(keys))
        return Tile(answer)

    def allowed(
        self, batch: int, head: int, queries: Positions, keys: Positions, turned: bool
    ) -> torch.Tensor:
        """Bool (queries, keys); `turned`: with the queries along the lanes."""
        lanes, rows = (queries, keys) if turned else (keys, queries)
        out = (ctypes.c_uint64 * (rows[2] + 1))()
        out[rows[2]] = guard = 0x5EED
        self.library.allowed_pairs(
            *self.arguments(batch, head), numbers(lanes), numbers(rows), int(turned), out
        )
        assert out[rows[2]] == guard, "a word past the last row was written"
        bits = np.unpackbits(np.array(out[: rows[2]], dtype="<u8").view(np.uint8), bitorder="little")
        bits = torch.from_numpy(bits.reshape(rows[2], 64)).bool()
        assert not bits[:, lanes[2] :].any(), "a bit past the last lane is set"
        bits = bits[:, : lanes[2]]
        return bits.T if turned else bits


def numbers(positions: Positions) -> ctypes.Array[ctypes.c_int64]:
    return (ctypes.c_int64 * 3)(*positions)


@pytest.fixture(scope="module", params=BUILDS)
def asking(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Callable[..., Shim]:
    """Compiles a mask, and gives what answers for it in C++."""
    compiler = shutil.which("g++") or shutil.which("clang++")
    if compiler is None:
        pytest.skip("mask programs are evaluated in C++: needs g++ or clang++ on the PATH")
    built = tmp_path_factory.mktemp("shim") / "shim.so"
    flags = [*BUILDS[request.param], "-std=c++17", "-Wall", "-Wextra", "-Werror", "-shared", "-fPIC"]
    subprocess.run([compiler, *flags, f"-I{NATIVE}", str(SHIM), "-o", str(built)], check=True)
    library = ctypes.CDLL(str(built))

    def ask(mask: Mask | None, queries: int = QUERIES, offset: int = OFFSET) -> Shim:
        program = None if mask is None else compiled(mask, queries, offset)
        assert mask is None or program is not None
        return Shim(library, program)

    return ask


def truth(mask: Mask, batch: int, head: int, queries: Positions, keys: Positions) -> torch.Tensor:
    """What the mask says of each pair."""
    q, k = (torch.arange(count) * step + first for first, step, count in (queries, keys))
    allowed = mask.allows(q[:, None], k, torch.tensor(batch), torch.tensor(head))
    return allowed.expand(queries[2], keys[2])


def exact(allowed: torch.Tensor) -> Tile:
    return ALL if allowed.all() else SOME if allowed.any() else NONE


def spans(start: int, stop: int, most: int = 64) -> st.SearchStrategy[Positions]:
    """Positions within [start, stop), in steps of one or more."""

    def from_first(first: int) -> st.SearchStrategy[Positions]:
        return st.sampled_from([1, 1, 2, 3, 5, 8, 23]).flatmap(
            lambda step: st.integers(1, min(most, (stop - 1 - first) // step + 1)).map(
                lambda count: (first, step, count)
            )
        )

    return st.integers(start, stop - 1).flatmap(from_first)


def check(
    shim: Shim, mask: Mask, batch: int, head: int, queries: Positions, keys: Positions
) -> tuple[Tile, Tile]:
    """Pairs agree both ways round, and the tile's promise holds; gives what was said and what is."""
    expected = truth(mask, batch, head, queries, keys)
    for turned in (False, True):
        got = shim.allowed(batch, head, queries, keys, turned)
        assert torch.equal(got, expected), (mask.name, batch, head, queries, keys, turned)
    said, holds = shim.classify(batch, head, queries, keys), exact(expected)
    assert said in (SOME, holds), (mask.name, batch, head, queries, keys)
    return said, holds


@settings(max_examples=400)
@given(
    trees(),
    st.integers(0, BATCH - 1),
    st.integers(0, HEADS - 1),
    spans(OFFSET, OFFSET + QUERIES),
    spans(0, KEYS),
)
def test_pairs_and_tiles_of_every_mask(asking, mask, batch, head, queries, keys):
    check(asking(mask), mask, batch, head, queries, keys)


def wide_leaves() -> st.SearchStrategy[Mask]:
    """Leaves over a few hundred positions, so that words, blocks and cells end within a tile; batch of 3, 2 heads."""
    far = st.integers(0, WIDE)
    lengths = far | st.lists(far, min_size=3, max_size=3).map(torch.tensor)
    share = st.sampled_from([0.0, 0.02, 0.5, 0.98, 1.0])
    sides = st.sampled_from([(1, 1), (3, 1), (1, 2), (3, 2)])
    return st.one_of(
        st.just(causal()),
        st.builds(near, far, far),
        st.integers(1, 90).map(strided),
        st.builds(
            random_blocks,
            st.integers(1, 5),
            st.sampled_from([1, 7, 64, 100]),
            far,
            keys=st.sampled_from([None, WIDE]),
        ),
        share.map(lambda share: global_tokens((torch.rand(WIDE) < share).nonzero()[:, 0])),
        lengths.map(prefix),
        st.builds(lambda lengths, start: padding(lengths, start=start), lengths, lengths),
        share.map(lambda share: documents((torch.rand(3, WIDE) < share).cumsum(1))),
        st.just(None).map(lambda _: documents(torch.randint(4, (WIDE,)))),
        block_grids(WIDE, WIDE),
        st.builds(lambda sides, share: dense(keep=torch.rand(*sides, WIDE, WIDE) < share), sides, share),
    )


WIDE = 307


@settings(max_examples=300)
@given(wide_leaves(), wide_leaves(), st.sampled_from(["leaf", "and", "or", "not"]), st.data())
def test_tiles_wider_than_words(asking, leaf, other, joined, data):
    mask = {"leaf": leaf, "and": leaf & other, "or": leaf | other, "not": ~leaf}[joined]
    shim = asking(mask, WIDE, 0)
    for _ in range(4):
        queries, keys = data.draw(spans(0, WIDE)), data.draw(spans(0, WIDE))
        check(shim, mask, data.draw(st.integers(0, 2)), data.draw(st.integers(0, 1)), queries, keys)


@given(
    # Blocks are written down for the call's own queries alone.
    leaves().filter(lambda mask: not mask.name.startswith(("random_blocks", "block_sparse"))),
    spans(-40, 80),
    spans(-40, 80),
    st.integers(0, BATCH - 1),
)
def test_positions_outside_of_the_content(asking, mask, queries, keys, batch):
    """Negative positions, and positions past what the mask knows, mean in C++ what they mean in Python."""
    check(asking(mask), mask, batch, 0, queries, keys)


def test_stretches_that_run_past_one_row_of_ids(asking):
    """The labels of the next batch row lie behind them in memory."""
    shim = asking(documents([[0, 1, 1], [0, 0, 0]]), 3, 0)
    assert shim.classify(0, 0, (1, 1, 3), (1, 1, 2)) is SOME


@given(st.integers(-90, 90), st.integers(1, 130), st.sampled_from([1, 5, 64]), st.data())
def test_random_blocks_of_any_queries(asking, offset, queries, block, data):
    mask = random_blocks(2, block=block, seed=3, keys=data.draw(st.sampled_from([None, 97])))
    query, key = data.draw(spans(offset, offset + queries)), data.draw(spans(-9, 150))
    check(asking(mask, queries, offset), mask, 0, 0, query, key)


@pytest.mark.parametrize("name", ["dense", "random", "blocks", "tokens", "documents", "near", "strided"])
def test_every_place_of_a_word(asking, name):
    """Tiles of 64 × 64 that begin at each position of a word of bits, and at each position of a block."""
    masks = {
        "dense": dense(keep=torch.rand(WIDE, WIDE) < 0.5),
        "random": random_blocks(3, block=10),
        "blocks": block_sparse(torch.rand(31, 31) < 0.5, block=10),
        "tokens": global_tokens(torch.randperm(WIDE)[:40]),
        "documents": documents((torch.rand(WIDE) < 0.1).cumsum(0)),
        "near": near(20, 9),
        "strided": strided(11),
    }
    shim = asking(masks[name], WIDE, 0)
    for first in range(66):
        check(shim, masks[name], 0, 0, (99 - first, 1, 64), (first, 1, 64))


@given(
    st.one_of(
        st.just(causal()),
        st.builds(near, st.integers(0, 90), st.integers(0, 90)),
        st.integers(0, 90).map(prefix),
        st.integers(1, 90).map(strided),
    ),
    st.tuples(st.integers(-50, 90), st.just(1), st.integers(1, 64)),
    st.tuples(st.integers(-50, 90), st.just(1), st.integers(1, 64)),
)
def test_masks_of_positions_are_sure_of_every_tile(asking, mask, queries, keys):
    for query, key in ((queries, keys), ((queries[0], 1, 1), (keys[0], 1, 1))):
        said, holds = check(asking(mask), mask, 0, 0, query, key)
        assert said is holds


def test_one_batch_row_is_told_from_another(asking):
    """`Mask.tile` speaks of all rows of a batch; C++ speaks of one."""
    tile = (0, 1, 5), (0, 1, 5)
    for mask in (
        prefix([7, 0, 3]),
        padding([7, 1, 0]),
        documents(torch.tensor([[1] * 9, [*range(9)], [2, 4, 4] * 3])),
    ):
        assert mask.tile(0, 5, 0, 5) is SOME
        assert asking(mask, 9, 0).classify(0, 0, *tile) is ALL
    assert asking(prefix([7, 0, 3]), 9, 0).classify(1, 0, *tile) is NONE


def test_long_stretches_are_classified_at_once(asking):
    n = 1 << 40
    shim, last = asking(near(255) & ~prefix(5), n, 0), (n - 64, 1, 64)  # sees the keys from n − 319 to n − 1
    assert shim.classify(0, 0, last, (0, 1, n - 319)) is NONE
    assert shim.classify(0, 0, last, (0, 1, n - 318)) is SOME
    assert shim.classify(0, 0, last, (n - 256, 1, 193)) is ALL
    assert shim.classify(0, 0, last, (n - 257, 1, 2)) is SOME
    assert shim.classify(0, 0, last, (n - 64, 1, 2)) is SOME


def test_numbers_past_every_position(asking):
    """Counts beyond every position act as what they are: endless. Larger ones than 2⁴⁰ are refused."""
    most = 2**40
    for mask in (near(most, most), prefix(most), padding(most), prefix([most])):
        assert asking(mask, 9, 0).classify(0, 0, (0, 1, 9), (0, 1, 2**40)) is ALL
    assert asking(strided(most), 9, 0).classify(0, 0, (3, 1, 4), (3, 1, 4)) is SOME
    assert asking(strided(most), 9, 0).classify(0, 0, (3, 1, 4), (7, 1, 4)) is NONE
    blocks = asking(random_blocks(1, block=most), 9, -5)
    assert blocks.classify(0, 0, (-2, 1, 4), (0, 1, 4)) is SOME
    assert blocks.allowed(0, 0, (-2, 1, 4), (0, 1, 4), False).any(1).tolist() == [False, False, True, True]
    for too_many in (2**40 + 1, 2**63 - 1, 2**80):
        for build in (near, prefix, padding, strided):
            with pytest.raises(ArgumentError, match="must be at most 1099511627776"):
                build(too_many)


def test_no_mask_allows_every_pair(asking):
    assert asking(None).classify(2, 1, (-5, 3, 7), (0, 1, 11)) is ALL
    assert asking(None).allowed(2, 1, (-5, 3, 7), (0, 1, 11), True).all()


def test_a_wrong_program_is_seen(asking):
    right = asking(near(3)).program
    # A copy: programs of equal masks share their words, with the calls of other tests too.
    wrong = Program(right.code.clone(), right.tables)
    wrong.code[2] += 1  # one key too few
    with pytest.raises(AssertionError):
        check(replace(asking(near(3)), program=wrong), near(3), 0, 0, (OFFSET, 1, QUERIES), (0, 1, KEYS))


def test_programs_are_plain_tensors():
    content = (
        dense(keep=torch.rand(3, 3) < 0.5),
        documents([0, 0, 1]),
        global_tokens([1]),
        random_blocks(2, block=2),
        padding([1, 2]),
    )
    program = compiled(And(content) | ~causal(), 3, 0)
    assert (
        program.code.dtype == torch.int64 and program.code.ndim == 1 and len(program.code) == program.code[1]
    )
    for tensor in (program.code, *program.tables):
        assert type(tensor) is torch.Tensor and tensor.device.type == "cpu" and tensor.is_contiguous()
        assert tensor.dtype in (torch.int64, torch.uint8)


def test_sizes_of_programs():
    """A node is its kind, its length and what it holds: content stays in the tables, most of it not copied."""
    sizes = {
        causal(): 4,
        near(5): 4,
        strided(3): 3,
        global_tokens([1, 2]): 4,
        prefix(2): 4,
        ~causal() & near(5): 2 + 6 + 4,
    }
    assert {mask.name: len(compiled(mask, 7, 0).code) for mask in sizes} == {
        m.name: n for m, n in sizes.items()
    }
    ids = torch.arange(1000) // 10
    mask = documents(ids)
    ours = {table.data_ptr() for table in compiled(mask, 1000, 0).tables}
    assert {ids.data_ptr(), mask.lows.ctypes.data, mask.highs.ctypes.data} == ours
    bits = dense(keep=torch.rand(99, 99) < 0.5)
    assert bits.bits.data_ptr() in {table.data_ptr() for table in compiled(bits, 99, 0).tables}


class Odd(Causal):
    """A mask of a user."""

    def _allows(self, q_pos, k_pos, batch, head):
        return (k_pos % 2 == 1) & super()._allows(q_pos, k_pos, batch, head)


def test_masks_of_users_are_not_compiled():
    for mask in (Odd(), ~Odd(), near(3) & Odd(), near(3) | (causal() & ~Odd())):
        assert not can_compile(mask) and compiled(mask, 3, 0) is None


def test_nesting_is_bounded(asking):
    mask = causal()
    for _ in range(DEEPEST - 1):
        mask = Not(mask)
    check(asking(mask), mask, 0, 0, (OFFSET, 1, QUERIES), (0, 1, KEYS))
    assert not can_compile(Not(mask)) and compiled(Not(mask), 3, 0) is None
