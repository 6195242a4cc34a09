"""Shapes of tiles, warps and stages for each kernel, by width, type and generation of the GPU. Knows no tensors."""

from __future__ import annotations

from dataclasses import dataclass, replace

# A tile of wider rows does not fit next to its sums.
MOST_WIDTH = 256
MOST_TOP = 16
# The most parts that the keys of one row are split into.
SPLITS = 128


@dataclass(frozen=True)
class Plan:
    """How a kernel is launched.

    Attributes:
        block_q, block_k: queries and keys of a tile, powers of two.
        warps, stages: of one program.
        descriptors: keys and values come through the tensor memory accelerator.
        specialize: the compiler may give warps roles (loads, products, exponentials).
    """

    block_q: int
    block_k: int
    warps: int
    stages: int
    descriptors: bool = False
    specialize: bool = False


# (kernel, bytes of an element, width up to) → plan on Hopper, plan from Ampere up, where a tile and its stages must
# fit 99 KiB of shared memory. Chosen so that the loop over full tiles keeps all its registers.
TABLE: dict[tuple[str, int, int], tuple[Plan, Plan]] = {
    ("rows", 2, 64): (Plan(128, 64, 8, 3, descriptors=True), Plan(64, 64, 4, 2)),
    ("rows", 2, 128): (Plan(128, 64, 8, 3, descriptors=True), Plan(64, 32, 4, 2)),
    ("rows", 2, 256): (Plan(64, 64, 8, 2, descriptors=True), Plan(64, 32, 8, 1)),
    ("rows", 4, 64): (Plan(32, 32, 4, 2), Plan(32, 32, 4, 2)),
    ("rows", 4, 256): (Plan(32, 32, 8, 1), Plan(32, 32, 8, 1)),
    ("columns", 2, 64): (Plan(128, 128, 8, 3), Plan(64, 64, 4, 3)),
    ("columns", 2, 128): (Plan(64, 128, 8, 3), Plan(64, 64, 4, 2)),
    ("columns", 2, 256): (Plan(64, 64, 8, 2), Plan(64, 64, 8, 1)),
    ("columns", 4, 256): (Plan(32, 32, 4, 1), Plan(32, 32, 4, 1)),
    ("gradients", 2, 64): (Plan(64, 64, 4, 2), Plan(64, 64, 4, 2)),
    ("gradients", 2, 128): (Plan(64, 64, 8, 2), Plan(64, 32, 4, 1)),
    ("gradients", 2, 256): (Plan(32, 32, 4, 2), Plan(32, 32, 4, 1)),
    ("gradients", 4, 64): (Plan(32, 32, 4, 1), Plan(32, 32, 4, 1)),
    ("gradients", 4, 256): (Plan(16, 32, 8, 1), Plan(16, 32, 8, 1)),
}


def plan(kernel: str, itemsize: int, width: int, capability: tuple[int, int], dense: bool) -> Plan:
    """The plan of the narrowest line of the table that holds this width.

    Args:
        dense: whether a tile of a dense bias is read too, which leaves no shared memory for stages.
    """
    fitting = [line for line in TABLE if line[:2] == (kernel, itemsize) and width <= line[2]]
    hopper, ampere = TABLE[min(fitting, key=lambda line: line[2])]
    chosen = ampere
    if capability >= (9, 0):
        chosen = hopper
    if dense:
        return replace(chosen, stages=1)
    return chosen


def splits_of(programs: int, keys: int, block_k: int) -> int:
    """In how many parts the keys are split, from sizes alone, so that few queries still fill the machine."""
    return max(1, min(SPLITS, -(-FILL // max(programs, 1)), keys // (LEAST * block_k)))


# Programs that keep a large GPU busy.
FILL = 512
# Tiles of keys that a split holds at least.
LEAST = 4
