"""Scenes that people draw become the canvas that they would be; what shows no digits is refused, and why is said."""

import struct
import zlib

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from regard.errors import ArgumentError
from regard.tasks.caption import data as caption
from regard.tasks.caption.read_image import LARGEST, canvas

image = pytest.importorskip("PIL.Image")
image_draw = pytest.importorskip("PIL.ImageDraw")
NEAR = 2 / 255  # paper and ink are rounded to whole levels
SCENES = caption.scenes(7, held=True, seed=7)


def ink(scene):
    """A scene `(CANVAS, CANVAS)` whose strongest ink is 1, as a canvas always has it."""
    own = scene.image[0].numpy().astype(np.float64)
    return own / own.max()


def levels(gray):
    return image.fromarray(np.rint(255 * gray).astype(np.uint8))


def of(picture, folder, name="scene.png"):
    picture.save(folder / name)
    found, notes = canvas(folder / name)
    assert found.shape == (1, caption.CANVAS, caption.CANVAS) and found.dtype == torch.float32
    return found[0].double().numpy(), notes


def drawn_on_glass(own):
    """Black ink of which nothing but the ink itself is there."""
    picture = image.new("LA", (caption.CANVAS, caption.CANVAS))
    picture.putalpha(levels(own))
    return picture


LOOKS = {
    "dark on light": lambda own: levels(1 - own),
    "light on dark": levels,
    "gray on cream": lambda own: levels(0.93 - 0.6 * own).convert("RGB"),
    "on a green board": lambda own: image.merge(
        "RGB", [levels(dark + 0.7 * own) for dark in (0.1, 0.3, 0.2)]
    ),
    "transparent": drawn_on_glass,
    "of 16 bits": lambda own: image.fromarray(np.rint(65535 * (1 - own)).astype(np.uint16)),
    "a palette": lambda own: levels(1 - own).convert("P"),
    "with colors for print": lambda own: levels(1 - own).convert("RGB").convert("CMYK"),
}


@pytest.mark.parametrize("look", LOOKS)
@pytest.mark.parametrize("scene", SCENES[:3])
def test_a_scene_is_found_again(look, scene, tmp_path):
    name = "scene.tiff" if look == "with colors for print" else "scene.png"
    found, notes = of(LOOKS[look](ink(scene)), tmp_path, name)
    assert notes == ()
    # Few levels lie between ink and paper where they are not black and white.
    assert np.abs(found - ink(scene)).max() < (0.02 if "on" in look.split() else NEAR)


@pytest.mark.parametrize("scene", SCENES)
@pytest.mark.parametrize("times", [2, 7, 13])
def test_a_larger_scene_is_made_smaller(scene, times, tmp_path):
    large = np.kron(1 - ink(scene), np.ones((times, times)))
    found, notes = of(levels(large), tmp_path)
    assert np.abs(found - ink(scene)).max() < NEAR
    side = 32 * times
    assert notes == (f"The picture was drawn again at 32 × 32 pixels, from {side} × {side}.",)


@pytest.mark.parametrize("dark", [False, True])
@pytest.mark.parametrize("upright", [False, True])
def test_a_scene_that_is_not_square_gets_paper_at_its_long_sides(dark, upright, tmp_path):
    scene = next(
        each
        for each in caption.scenes(200, size=2, held=True)
        if all(4 <= top <= 20 for top, _ in each.corners)
    )
    own = ink(scene)[4:28]  # 24 × 32: no digit is cut
    assert own.sum() == ink(scene).sum()
    wide = np.kron(own if dark else 1 - own, np.ones((5, 5)))
    found, notes = of(levels(wide.T if upright else wide), tmp_path)
    assert np.abs(found - (ink(scene).T if upright else ink(scene))).max() < NEAR
    assert notes[0].endswith("from 120 × 160." if upright else "from 160 × 120.")


@pytest.mark.parametrize(("side", "pen"), [(320, 4), (320, 20), (100, 2), (640, 12), (37, 1)])
def test_loops_drawn_with_a_pen_are_taken(side, pen, tmp_path):
    picture = image.new("L", (side, side), 255)
    draw, unit = image_draw.Draw(picture), side / 32
    for x, y in ((2, 2), (20, 4), (4, 20), (21, 19)):
        draw.ellipse([x * unit, y * unit, (x + 8) * unit, (y + 9) * unit], outline=0, width=pen)
        draw.line([x * unit, (y + 4) * unit, (x + 8) * unit, (y + 6) * unit], fill=0, width=pen)
    found, _ = of(picture, tmp_path)
    assert found.max() == 1 and found[:2].max() == 0 and 0.02 < (found > 0.3).mean() < 0.3


def test_a_photograph_of_paper_is_taken(tmp_path):
    """Soft shadows, a little noise and the blur of a camera leave digits on paper what they are."""
    draw, side = np.random.default_rng(7), 293
    shade = 0.8 + 0.15 * np.linspace(0, 1, side)[:, None] * np.linspace(1, 0, side)
    for scene in SCENES:
        large = np.asarray(levels(ink(scene)).resize((side, side), image.Resampling.BICUBIC)) / 255
        photo = shade * (1 - 0.8 * large) + draw.normal(0, 0.02, (side, side))
        found, _ = of(levels(photo.clip(0, 1)).convert("RGB"), tmp_path, "scene.jpg")
        assert np.corrcoef(found.ravel(), ink(scene).ravel())[0, 1] > 0.9


def gray_noise(side):
    return np.random.default_rng(side).random((side, side))


def specks(part):
    return (np.random.default_rng(7).random((32, 32)) < part).astype(float)


ACROSS = np.linspace(0, 1, 97)
REFUSED = {
    "white": (np.ones((41, 41)), "nothing stands out"),
    "black": (np.zeros((41, 41)), "nothing stands out"),
    "faint": (1 - 0.1 * specks(0.1), "nothing stands out"),
    "one pixel": (np.eye(1, 32 * 32, 500).reshape(32, 32), "only 0.1% is ink"),
    "half": (np.repeat([[0.0, 1.0]], 64, 0).repeat(32, 1), "is plain paper"),
    "stripes": (np.tile([[0.0], [1.0]], (16, 32)), "is plain paper"),
    "a frame's inside": (np.pad(np.ones((24, 24)), 4), "only 44% is plain paper"),
    "a gradient": (np.tile(ACROSS, (97, 1)), "is plain paper"),
    "a sky": (0.9 - 0.6 * np.tile(ACROSS[:, None] ** 3, (1, 97)), "is plain paper"),
    "a lamp": (np.exp(-8 * ((ACROSS - 0.5) ** 2 + (ACROSS[:, None] - 0.5) ** 2)), "is plain paper"),
    "a faint lamp": (0.9 - 0.5 * np.outer(np.hanning(97), np.hanning(97)) ** 2, "is plain paper"),
    "waves": (0.5 + 0.4 * np.outer(np.sin(9 * ACROSS), np.cos(8 * ACROSS)), ""),
    "noise": (gray_noise(32), ""),
    "larger noise": (gray_noise(64), ""),
    "fine noise": (gray_noise(331), "nothing stands out"),
    "few specks": (specks(0.05), "the ink is in specks"),
    "specks": (specks(0.15), "the ink is in specks"),
    "many specks": (specks(0.23), "the ink is in specks"),
    "black and white noise": (specks(0.5), "is plain paper"),
}


@pytest.mark.parametrize("what", REFUSED)
def test_what_shows_no_digits_is_refused(what, tmp_path):
    gray, why = REFUSED[what]
    levels(gray).save(tmp_path / "other.png")
    with pytest.raises(ArgumentError, match="the picture must show 2 to 4 handwritten digits") as error:
        canvas(tmp_path / "other.png")
    assert "other.png" in str(error.value) and why in str(error.value)


@pytest.fixture(scope="module")
def png(tmp_path_factory):
    path = tmp_path_factory.mktemp("png") / "whole.png"
    levels(np.kron(1 - ink(SCENES[0]), np.ones((5, 5)))).save(path)
    return path.read_bytes()


def test_what_is_no_picture_is_refused(png, tmp_path):
    for name, content in {
        "text.png": b"an eight above a two",
        "empty.png": b"",
        "half.png": png[: len(png) // 2],
    }.items():
        (tmp_path / name).write_bytes(content)
        with pytest.raises(
            ArgumentError, match=rf"the picture must be one that can be read, got '.*{name}': \S"
        ):
            canvas(tmp_path / name)
    with pytest.raises(ArgumentError, match=r"the picture must be a file, and there is no '.*nowhere\.png'"):
        canvas(tmp_path / "nowhere.png")
    with pytest.raises(ArgumentError, match="the picture must be one that can be read"):
        canvas(tmp_path)


@settings(max_examples=150)
@given(data=st.data())
def test_a_damaged_file_is_refused_or_read(png, data, tmp_path_factory):
    """Nothing but the one error, wherever a file is cut or changed."""
    cut = data.draw(st.integers(1, len(png)))
    place = data.draw(st.integers(0, cut - 1))
    path = tmp_path_factory.getbasetemp() / "damaged.png"
    path.write_bytes(png[:place] + bytes([data.draw(st.integers(0, 255))]) + png[place + 1 : cut])
    try:
        found, _ = canvas(path)
    except ArgumentError:
        return
    assert found.min() >= 0 and found.max() == 1


def claimed(width, height):
    """A PNG of some hundred bytes that says that it is so large."""
    chunks = [
        (b"IHDR", struct.pack(">IIBBBBB", width, height, 8, 0, 0, 0, 0)),
        (b"IDAT", zlib.compress(bytes(999))),
        (b"IEND", b""),
    ]
    return b"\x89PNG\r\n\x1a\n" + b"".join(
        struct.pack(">I", len(body)) + name + body + struct.pack(">I", zlib.crc32(name + body))
        for name, body in chunks
    )


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize(
    "size",
    [
        (LARGEST + 1, 1),
        (1, LARGEST + 1),
        (9_700, 9_700),
        (11_000, 11_000),
        (100_000, 100_000),
        (3, 2**31 - 1),
    ],
)
def test_a_picture_that_is_too_large_is_refused_before_it_is_read(size, tmp_path):
    (tmp_path / "bomb.png").write_bytes(claimed(*size))
    with pytest.raises(
        ArgumentError, match=r"the picture must be one that can be read, got '.*bomb\.png': .*pixels"
    ):
        canvas(tmp_path / "bomb.png")


def test_a_long_strip_is_read(tmp_path):
    strip = np.ones((5, LARGEST))
    strip[:, 1000:2000] = 0
    levels(strip).save(tmp_path / "strip.png")
    with pytest.raises(ArgumentError, match="nothing stands out"):
        canvas(tmp_path / "strip.png")


@pytest.mark.parametrize("name", ["china.jpg", "flower.jpg"])
def test_photographs_are_refused(name, tmp_path):
    """Of scikit-learn's, whole and in parts, almost all: a dark roof before a white sky is ink on paper."""
    datasets = pytest.importorskip("sklearn.datasets")
    photo = image.fromarray(datasets.load_sample_image(name))
    draw, refused = np.random.default_rng(7), 0
    for part in range(61):
        side = int(draw.integers(60, 420))
        left, top = (int(draw.integers(0, most - side)) for most in photo.size)
        (photo.crop((left, top, left + side, top + side)) if part else photo).save(tmp_path / "part.png")
        try:
            canvas(tmp_path / "part.png")
        except ArgumentError:
            refused += 1
        else:
            assert part, "the whole photograph was taken for digits"
    assert refused >= 52
