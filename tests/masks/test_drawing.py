"""What a mask prints."""

import torch

from regard.masks import (
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


def drawn(*lines: str) -> str:
    return "\n".join(lines)


def test_small() -> None:
    assert repr(causal() & near(2)) == str(causal() & near(2)) == drawn(
        "causal() & near(2)",
        "■ · · · · · · ·",
        "■ ■ · · · · · ·",
        "■ ■ ■ · · · · ·",
        "· ■ ■ ■ · · · ·",
        "· · ■ ■ ■ · · ·",
        "· · · ■ ■ ■ · ·",
        "· · · · ■ ■ ■ ·",
        "· · · · · ■ ■ ■",
    )  # fmt: skip


def test_large_masks_are_pooled() -> None:
    assert str(near(128) | global_tokens([0])) == drawn(
        "near(128) | global_tokens([0])",
        "▒ ▒ ▒ ▒ ▒ ▒ ▒ ▒",
        "■ ▒ · · · · · ·",
        "■ ■ ▒ · · · · ·",
        "▒ ■ ■ ▒ · · · ·",
        "▒ ▒ ■ ■ ▒ · · ·",
        "▒ ▒ ▒ ■ ■ ▒ · ·",
        "▒ · ▒ ▒ ■ ■ ▒ ·",
        "▒ · · ▒ ■ ■ ■ ▒",
        "each cell 33 × 33 positions: ■ all allowed, ▒ some, · none",
    )


def test_a_dense_mask_is_drawn_whole() -> None:
    keep = torch.ones(3, 16).tril(13).bool()
    assert str(dense(keep=keep)) == drawn(
        "dense(<1 × 1 × 3 × 16>)",
        "■ ■ ■ ■ ■ ■ ■ ·",
        "■ ■ ■ ■ ■ ■ ■ ▒",
        "■ ■ ■ ■ ■ ■ ■ ■",
        "each cell 1 × 2 positions: ■ all allowed, ▒ some, · none",
    )


def test_rows_of_a_batch_that_differ() -> None:
    lines = str(padding([2, 5])).splitlines()
    assert lines[:4] == ["padding([2, 5])", "■ ■ ▒ ▒ ▒ · · ·", "■ ■ ▒ ▒ ▒ · · ·", "▒ ▒ ▒ ▒ ▒ · · ·"]


def test_names() -> None:
    names = {
        (~(causal() | near(3, 1)) & prefix([1, 2])).name: "~(causal() | near(3, 1)) & prefix([1, 2])",
        (causal() & (strided(4) | near(2))).name: "causal() & (strided(4) | near(2))",
        padding(list(range(9)), start=2).name: "padding([0, 1, 2, 3, 4, 5, …], start=2)",
        documents([[0, 0, 1]]).name: "documents(<1 × 3 ids>)",
        random_blocks(2, keys=99).name: "random_blocks(2, block=64, seed=0, keys=99)",
        (~~causal()).name: "causal()",
        (~prefix(3)).name: "~prefix(3)",
    }
    assert list(names) == list(names.values())
