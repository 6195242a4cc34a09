"""Pictures that are kept with records: pixel by pixel, through a file, and what is refused."""

import base64

import numpy as np
import pytest
import torch

import regard as rg
from regard.errors import ArgumentError, RecordError, ShapeError
from regard.record import Record, attach_picture, picture_of

RNG = np.random.default_rng(5)


def seen() -> Record:
    layer = rg.nn.MultiHeadAttention(8, 2).eval()
    with torch.no_grad(), rg.watch(layer, keep="vectors") as record:
        layer(torch.randn(1, 7, 8))
    return record


@pytest.mark.parametrize("shape", [(11, 13), (1, 11, 13), (3, 11, 13), (11, 13, 3)])
@pytest.mark.parametrize("kind", ["uint8", "float", "half"])
def test_pixels_come_back_as_they_were(shape, kind):
    values = RNG.integers(0, 256, shape, dtype=np.uint8)
    image = {
        "uint8": values,
        "float": torch.from_numpy(values) / 255,
        "half": (torch.from_numpy(values) / 255).half(),
    }
    record = Record()
    attach_picture(record, image[kind], (2, 3), start=1)
    if shape[0] in (1, 3):
        values = values.transpose(1, 2, 0)
    want = np.broadcast_to(values.reshape(11, 13, -1), (11, 13, 3))
    assert np.array_equal(picture_of(record).pixels(), want)


def test_a_picture_is_saved_with_its_record(tmp_path):
    record = seen()
    pixels = RNG.integers(0, 256, (8, 12, 3), dtype=np.uint8)
    attach_picture(record, pixels, (2, 3), start=1, text="source", words=["a", "cat"])
    record.save(tmp_path / "record")
    picture = picture_of(rg.load(tmp_path / "record"))
    assert np.array_equal(picture.pixels(), pixels)
    assert (picture.rows, picture.columns, picture.start, picture.patches) == (2, 3, 1, 6)
    assert (picture.text, picture.words) == ("source", ("a", "cat"))
    assert picture_of(seen()) is None


@pytest.mark.parametrize(
    ("image", "error", "why"),
    [
        (np.zeros((2, 3, 4, 5)), ShapeError, "height"),
        (np.zeros((4, 5, 2)), ShapeError, "height"),
        (np.zeros((0, 5)), ShapeError, "height"),
        (np.full((4, 5), 7.0), ArgumentError, "from 0 to 1"),
        (np.full((4, 5), np.nan), ArgumentError, "from 0 to 1"),
        (np.zeros((4097, 2)), ArgumentError, "4096"),
    ],
)
def test_what_is_no_image_is_refused(image, error, why):
    with pytest.raises(error, match=why):
        attach_picture(Record(), image, (1, 1))


def test_other_arguments_are_refused():
    for wrong in ({"patches": (0, 1)}, {"patches": (1, 1), "start": -1}, {"patches": (1, 1), "text": "keys"}):
        with pytest.raises(ArgumentError):
            attach_picture(Record(), np.zeros((4, 4)), **wrong)


@pytest.mark.parametrize(
    "wrong",
    [
        {"png": "no base64!"},
        {"png": 3},
        {"rows": 0},
        {"columns": "many"},
        {"start": -1},
        {"text": "keys"},
        {"words": [1]},
        {"rows": 4096, "columns": 4096},
    ],
)
def test_a_damaged_picture_is_told(wrong):
    record = Record()
    attach_picture(record, np.zeros((4, 4)), (1, 1))
    record.info["picture"] |= wrong
    with pytest.raises(RecordError):
        picture_of(record)


def test_what_is_no_png_is_told():
    record = Record()
    attach_picture(record, np.zeros((4, 4)), (1, 1))
    record.info["picture"]["png"] = base64.b64encode(b"<svg/>").decode()
    with pytest.raises(RecordError, match="PNG"):
        picture_of(record).pixels()
    record.info["picture"] = [1]
    with pytest.raises(RecordError, match="dictionary"):
        picture_of(record)
