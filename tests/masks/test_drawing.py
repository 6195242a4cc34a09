"""What a mask prints."""

import torch
from hypothesis import given

from helpers.cards import Card
from masks.strategies import trees
from regard import html
from regard.masks import (
    Mask,
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
from regard.masks.drawing import PICTURE_CELLS


def drawn(*lines: str) -> str:
    return "\n".join(lines)


def test_small() -> None:
    mask = causal() & near(2)
    assert repr(mask) == str(mask)
    assert str(mask) == drawn(
        "causal() & near(2)",
        "■ · · · · · · ·",
        "■ ■ · · · · · ·",
        "■ ■ ■ · · · · ·",
        "· ■ ■ ■ · · · ·",
        "· · ■ ■ ■ · · ·",
        "· · · ■ ■ ■ · ·",
        "· · · · ■ ■ ■ ·",
        "· · · · · ■ ■ ■",
    )


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
        block_sparse([[True, False]]).name: "block_sparse(<1 × 2 blocks>, block=64)",
        (~~causal()).name: "causal()",
        (~prefix(3)).name: "~prefix(3)",
    }
    assert list(names) == list(names.values())


# --- in a notebook -----------------------------------------------------------------------------------------


@given(trees())
def test_any_mask_shows_itself(mask: Mask) -> None:
    card = Card(mask)
    (pixels,) = card.images()
    queries, keys = mask.span
    if max(len(queries), len(keys)) <= PICTURE_CELLS:
        step = [max(1, min(256 // len(p), 64)) for p in (queries, keys)]
        allowed = mask.allows(
            torch.tensor(queries)[:, None],
            torch.tensor(keys),
            torch.arange(mask.shape[0])[:, None, None, None],
            torch.arange(mask.shape[1])[:, None, None],
        ).expand(*mask.shape, len(queries), len(keys))
        want = torch.where(allowed.any(1).any(0), html.SOME, html.NONE)
        want[allowed.all(1).all(0)] = html.ALL
        assert pixels[:: step[0], :: step[1]].tolist() == want.tolist()


def test_a_picture_has_the_expression_and_what_its_cells_are() -> None:
    card = Card(near(128) | global_tokens([0]))
    assert "near(128) | global_tokens([0])" in card.text and "each cell 9 × 9 positions" in card.text
    assert all(words in card.text for words in ("may attend", "some may", "none may"))


def test_a_long_mask_is_asked_by_tile_alone() -> None:
    tokens = 131_072

    class Long(type(causal())):
        span = (range(tokens), range(tokens))

        def _allows(self, *_: object) -> torch.Tensor:
            raise AssertionError("asked pair by pair")

    for mask in (Long(), Long() & documents(torch.arange(tokens) // 5000), ~Long()):
        card = Card(mask)
        assert card.size < 10_000 and "each cell 4096 × 4096 positions" in card.text


def test_a_batch_of_rows_that_differ_is_drawn_together() -> None:
    assert "of 3 batch rows × 1 heads together" in Card(padding([2, 5, 7])).text
