"""What holds for every figure: it is returned whole, leaves nothing behind, and looks the same everywhere."""

import gc
import subprocess
import sys
import weakref

import matplotlib
import matplotlib.colors
import matplotlib.style
import numpy as np
import pytest

from draw.looking import axes_of, faults, pixels, weights
from regard import draw
from regard.draw import colors, style
from regard.errors import MissingPackageError

FIGURES = {
    "heatmap": lambda: draw.heatmap(weights(5, 5), tokens=["a", " b", "\n", "d", "e"], title="A head"),
    "heads": lambda: draw.heads(weights(2, 3, 5, 5), title="Heads"),
    "entropy": lambda: draw.entropy(np.ones((2, 5)), title="Entropy"),
    "entropies": lambda: draw.entropy(np.ones((2, 8, 5)), title="Entropy"),
    "strength": lambda: draw.strength({"one": weights(5, 5)}, title="Strength"),
    "sharpness": lambda: draw.sharpness(np.arange(5.0), title="Sharpness"),
    "temperatures": lambda: draw.temperatures(np.arange(5.0), title="Temperatures"),
    "positions": lambda: draw.positions(weights(5, 4), title="Positions"),
    "structure": lambda: draw.structure(),
}
every = pytest.mark.parametrize("make", FIGURES.values(), ids=FIGURES)


@every
@pytest.mark.parametrize(
    ("suffix", "start"), [("png", b"\x89PNG"), ("svg", b"<?xml"), ("pdf", b"%PDF")], ids=["png", "svg", "pdf"]
)
def test_figures_are_saved_by_suffix(make, suffix, start, tmp_path):
    path = tmp_path / f"figure.{suffix}"
    make().savefig(path)
    data = path.read_bytes()
    assert data.startswith(start)
    assert 2_000 < len(data) < 2_000_000


@every
def test_the_caller_s_style_changes_nothing(make):
    plain = pixels(make())
    with matplotlib.style.context(["dark_background", "ggplot"]), matplotlib.rc_context({"font.size": 20}):
        assert np.array_equal(pixels(make()), plain)


@every
def test_settings_are_left_as_they_were(make):
    before = dict(matplotlib.rcParams)
    pixels(make())
    assert dict(matplotlib.rcParams) == before


@every
def test_a_figure_is_let_go(make):
    figure = make()
    pixels(figure)
    gone = weakref.ref(figure)
    del figure
    gc.collect()
    assert gone() is None


@every
def test_pages_are_white_and_ink_is_dark(make):
    image = pixels(make())[..., :3]
    assert (image[0] == 255).all()
    assert image.mean() > 150
    assert image.min() < 80


def test_pyplot_is_never_loaded():
    program = (
        "import sys, regard.draw as draw\n"
        "assert 'matplotlib' not in sys.modules\n"
        "draw.heatmap([[1.0]]).savefig(sys.stdout.buffer, format='png')\n"
        "assert 'matplotlib.pyplot' not in sys.modules\n"
    )
    run = subprocess.run([sys.executable, "-c", program], capture_output=True)
    assert run.returncode == 0, run.stderr.decode()


def test_a_missing_matplotlib_is_named(monkeypatch):
    for name in [name for name in sys.modules if name.partition(".")[0] == "matplotlib"]:
        monkeypatch.setitem(sys.modules, name, None)
    with pytest.raises(
        MissingPackageError, match=r"'matplotlib', which is not installed: pip install \"regard\[draw\]\""
    ):
        draw.structure()


def luminance(color):
    """Relative luminance of sRGB (WCAG 2)."""
    channels = np.asarray(color)[..., :3]
    linear = np.where(channels <= 0.04045, channels / 12.92, ((channels + 0.055) / 1.055) ** 2.4)
    return linear @ np.array([0.2126, 0.7152, 0.0722])


def test_larger_weights_are_always_darker():
    assert (np.diff(luminance(colors.sequential()(np.linspace(0, 1, 256)))) < 0).all()


def test_the_diverging_map_is_lightest_in_its_middle():
    light = luminance(colors.diverging()(np.linspace(0, 1, 255)))
    assert (np.diff(light[:128]) > 0).all()
    assert (np.diff(light[128:]) < 0).all()


def test_numbers_in_cells_contrast_with_them():
    figure = draw.heatmap(np.linspace(0, 1, 144).reshape(12, 12))
    axes = axes_of(figure, "weights")[0]
    for text in axes.texts:
        column, row = (round(place) for place in text.get_position())
        under = luminance(colors.sequential()(axes.images[0].norm((12 * row + column) / 143)))
        ink = luminance(matplotlib.colors.to_rgb(text.get_color()))
        assert (max(ink, under) + 0.05) / (min(ink, under) + 0.05) >= 3.0


def test_lines_of_the_palette_differ_for_every_color_vision():
    # Machado et al. 2009, severity 1: what is left of a color without red, green or blue cones.
    cones = {
        "protan": [
            [0.152286, 1.052583, -0.204868],
            [0.114503, 0.786281, 0.099216],
            [-0.003882, -0.048116, 1.051998],
        ],
        "deutan": [
            [0.367322, 0.860646, -0.227968],
            [0.280085, 0.672501, 0.047413],
            [-0.011820, 0.042940, 0.968881],
        ],
    }
    palette = np.array([matplotlib.colors.to_rgb(color) for color in style.PALETTE])
    for matrix in cones.values():
        seen = palette @ np.array(matrix).T
        gaps = np.abs(seen[:, None] - seen[None]).sum(-1) + 9 * np.eye(len(palette))
        assert gaps.min() > 0.2


@pytest.mark.parametrize(
    ("scale", "limit"), [("linear", 0.9), ("linear", 1e-5), ("sqrt", 1.0), ("sqrt", 0.0123), ("sqrt", 7e-7)]
)
def test_ticks_of_the_bar_are_apart_and_in_range(scale, limit):
    places = [colors.norm(scale, limit)(tick) for tick in colors.ticks(scale, limit)]
    assert len(places) >= 3
    assert places[0] == 0
    assert places[-1] <= 1.001
    assert np.diff(places).min() >= 0.1


def test_faults_are_found():
    figure, _ = style.sheet(4, 4)
    for x, word, size in ((1.0, "one", 9), (1.05, "two", 9), (3.9, "beyond", 9), (2.0, "tiny", 3)):
        style.write_at(figure, x, 1.0, word, size)
    assert faults(figure) == ["'tiny' is small", "'beyond' leaves the page", "'one' touches 'two'"]
    style.write_at(figure, 1.0, 3.0, "\U0002a6df")
    with pytest.raises(UserWarning, match="Glyph 173791 .* missing from font"):
        faults(figure)
