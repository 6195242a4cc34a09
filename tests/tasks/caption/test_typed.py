"""Typed digits are told from handwriting, also in fonts that nothing was drawn with, and no handwriting is."""

import numpy as np
import pytest
import torch

from regard.tasks.caption import data as caption
from regard.tasks.caption.typed import typed
from regard.tasks.common.looks import look

image = pytest.importorskip("PIL.Image")
image_draw = pytest.importorskip("PIL.ImageDraw")
image_font = pytest.importorskip("PIL.ImageFont")
matplotlib = pytest.importorskip("matplotlib")
OTHERS = ("STIXGeneral.ttf", "STIXGeneralBol.ttf", "cmr10.ttf", "cmss10.ttf", "cmtt10.ttf", "cmb10.ttf")


def page(scene, font, size, side):
    """A scene's digits as they are typed."""
    picture = image.new("L", (side, side), 255)
    unit, letters = side / caption.CANVAS, image_font.truetype(font, int(size * side / caption.CANVAS))
    for digit, (top, left) in zip(scene.digits, scene.corners, strict=True):
        x0, y0, x1, y1 = letters.getbbox(str(digit))
        corner = ((left + 4) * unit - (x0 + x1) / 2, (top + 4) * unit - (y0 + y1) / 2)
        image_draw.Draw(picture).text(corner, str(digit), font=letters, fill=0)
    return picture


def ink(picture):
    small = picture.resize((caption.CANVAS, caption.CANVAS), image.Resampling.BOX)
    found = 1 - np.asarray(small, dtype=np.float64) / 255
    return found / found.max()


def test_handwriting_that_is_held_out_passes():
    scenes = caption.scenes(300, held=True, seed=5)
    passed = [not typed(scene.image[0].double().numpy()) for scene in scenes]
    assert np.mean(passed) >= 0.99


def test_typed_digits_are_doubted():
    found = []
    for number, scene in enumerate(caption.scenes(150, seed=5)):
        font = f"{matplotlib.get_data_path()}/fonts/ttf/{OTHERS[number % len(OTHERS)]}"
        found.append(typed(ink(page(scene, font, 9 + number % 4, 256 + 64 * (number % 3)))))
    assert np.mean(found) >= 0.9


@pytest.mark.parametrize("empty", [torch.zeros(32, 32), torch.full((32, 32), 0.2), torch.ones(32, 32)])
def test_what_has_no_digits_is_not_called_typed(empty):
    assert not typed(empty.double().numpy())


def test_a_typed_picture_is_doubted_where_it_is_looked_at(fresh, tmp_path):
    fresh("caption")
    font = f"{matplotlib.get_data_path()}/fonts/ttf/DejaVuSans.ttf"
    page(caption.scenes(1, size=3, seed=5)[0], font, 11, 320).save(tmp_path / "typed.png")
    notes = look("caption", tmp_path / "typed.png").notes
    assert any(note.startswith("The digits look typed.") for note in notes)
