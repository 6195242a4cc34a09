"""A mask as FlexAttention's `BlockMask`, from its answers for tiles. Knows nothing of single masks."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import torch
from torch import Tensor

from regard.masks.tile import ALL, NONE, TiledMask

if TYPE_CHECKING:
    from torch.nn.attention.flex_attention import BlockMask


# FlexAttention's default block.
SIZE = 128


def block_mask(
    mask: TiledMask, queries: int, keys: int, offset: int, device: torch.device | str
) -> BlockMask:
    """`mask`, whose tensors are on `device`, for queries from position `offset`; rows share the blocks."""
    # Imported here: it brings in torch's compiler, which `import regard` does without.
    from torch.nn.attention.flex_attention import BlockMask

    # Rows of blocks by NumPy: the questions are asked one by one, on the CPU, whatever device the mask is for.
    partial = np.zeros((-(-queries // SIZE), -(-keys // SIZE)), dtype=bool)
    full = np.zeros_like(partial)
    for row, q0 in enumerate(range(0, queries, SIZE)):
        q1 = min(q0 + SIZE, queries)
        for column, k0 in enumerate(range(0, keys, SIZE)):
            k1 = min(k0 + SIZE, keys)
            tile = mask.tile(offset + q0, offset + q1, k0, k1)
            # A block cut short by the end stays partial, so that the kernel looks at each of its keys.
            full[row, column] = tile is ALL and q1 - q0 == SIZE == k1 - k0
            partial[row, column] = tile is not NONE and not full[row, column]

    def mask_mod(batch: Tensor, head: Tensor, query: Tensor, key: Tensor) -> Tensor:
        return mask.allows(query + offset, key, batch, head)

    return BlockMask.from_kv_blocks(
        *_ordered(partial, device),
        *_ordered(full, device),
        BLOCK_SIZE=SIZE,
        mask_mod=mask_mod,
        seq_lengths=(queries, keys),
    )


def _ordered(blocks: np.ndarray, device: torch.device | str) -> tuple[Tensor, Tensor]:
    """Number of blocks in each row, and their columns first: `(1, 1, rows)` and `(1, 1, rows, columns)`."""
    columns = np.argsort(~blocks, axis=1, kind="stable")
    count, order = (torch.from_numpy(array.astype(np.int32)) for array in (blocks.sum(1), columns))
    return count[None, None].to(device), order[None, None].to(device)
