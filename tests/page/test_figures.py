"""Figures within a page: whole, told in words, and what matplotlib draws of them."""

import base64
import re
from io import BytesIO
from xml.etree import ElementTree

import matplotlib
import numpy as np
import pytest
from matplotlib.figure import Figure
from PIL import Image

from page import samples
from page.reading import parse
from regard import draw
from regard.errors import ArgumentError
from regard.page import embed, report


@pytest.fixture(scope="module")
def record():
    return samples.decoder(samples.pieces(13), layers=2, heads=3)


@pytest.fixture
def drawn(record):
    return draw.heatmap(record.calls[1], head=2, title="a sharp head")


def plotted(points):
    """A plain figure of matplotlib with as many lines."""
    figure = Figure(figsize=(5, 3))
    axes = figure.subplots()
    axes.plot(np.random.default_rng(3).random((2, points)), label="one axis")
    axes.set(title="noise", xlabel="time ($s$)")
    axes.legend(["one axis"], loc="upper left")
    figure.legend(["first"])
    return figure


def pictures(html):
    """What the images of a page hold: kind and bytes."""
    found = re.findall(r'<img src="data:image/([a-z+]+);base64,([^"]+)"', html)
    return [(kind, base64.b64decode(content)) for kind, content in found]


def as_gray(content, size):
    image = Image.open(BytesIO(content)).convert("L").resize(size)
    return np.asarray(image, np.float64)


def test_without_figures_there_is_none(record):
    html = report(record)
    assert pictures(html) == [] and "<figure><img" not in html and '"figures"' not in html
    assert report(record, figures=[]) == html


def test_figures_stand_above_the_rest_with_their_words(record, drawn):
    html = report(record, figures=[("Its <b>finding</b> & more", drawn), ("Noise", plotted(3))])
    page = parse(html)
    assert page.faults == []
    first, second = (attributes for tag, attributes in page.tags if tag == "img")
    assert first["alt"].startswith("a sharp head. ") and "attention weight" in first["alt"]
    assert second["alt"] == "noise. time ($s$). first. one axis"
    assert (second["width"], second["height"]) == ("480", "288")
    assert "<figcaption>Its &lt;b&gt;finding&lt;/b&gt; &amp; more</figcaption>" in html
    places = [html.index(part) for part in ('class="lede"', 'class="facts"', "<figure><img", 'class="guide"')]
    assert places == sorted(places)
    bare = re.sub(r'<div class="figures">.*</div>\n', "\n", html)
    assert bare.replace(" ", "") == report(record).replace(" ", "")


def test_a_small_figure_stays_lines_and_a_large_one_becomes_dots(record):
    (kind, vector), (other, dots) = pictures(
        report(record, figures=[("few", plotted(3)), ("many", plotted(5003))])
    )
    assert (kind, other) == ("svg+xml", "png")
    assert ElementTree.fromstring(vector).tag.endswith("svg") and len(vector) <= embed.MOST_SVG
    assert b"<text" not in vector and b'xlink:href="http' not in vector  # letters are outlines
    assert Image.open(BytesIO(dots)).size == (2 * 480, 2 * 288)


def test_a_small_picture_looks_like_the_large_one(drawn):
    large, small = (embed.figure(drawn, "", small=each) for each in (False, True))
    ((kind, content),) = pictures(small)
    truth = BytesIO()
    drawn.savefig(truth, dpi=embed.SMALL)
    size = Image.open(truth).size
    assert kind == "png" and len(content) < 0.7 * len(truth.getvalue())
    assert Image.open(BytesIO(content)).size == size
    assert np.abs(as_gray(content, size) - as_gray(truth.getvalue(), size)).mean() < 1
    assert len(small) < len(large)


def test_the_same_figure_is_the_same_page(record):
    one, other = (report(record, figures=[("few", plotted(3))]) for _ in range(2))
    assert one == other


def test_settings_of_the_session_are_neither_used_nor_changed(drawn):
    before = embed.figure(drawn, "")
    changed = {"svg.fonttype": "none", "savefig.bbox": "tight", "svg.image_inline": False}
    with matplotlib.rc_context(changed):
        assert embed.figure(drawn, "") == before
        assert {name: matplotlib.rcParams[name] for name in changed} == changed


def test_a_figure_without_words_is_told_by_its_caption():
    figure = Figure(figsize=(2, 2))
    figure.subplots().plot([1, 2])
    assert embed.said(figure) == ""
    assert 'alt="A line"' in embed.figure(figure, "A line")
    figure.suptitle("word " * 200)
    assert len(embed.said(figure)) <= embed.WORDS and embed.said(figure).endswith("word…")


@pytest.mark.parametrize(
    "wrong", ["Figure", ("caption", "figure"), ("caption",), (3, None), ["caption", None]]
)
def test_what_is_no_figure_is_said(record, wrong):
    with pytest.raises(
        ArgumentError, match="figures must be pairs of a caption and a figure of matplotlib, got"
    ):
        report(record, figures=[wrong])


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_a_browser_draws_what_matplotlib_draws(opened, record, drawn, scheme):
    html = report(record, figures=[("A head", drawn), ("Many", plotted(5003))])
    truth = BytesIO()
    drawn.savefig(truth, dpi=96)
    with opened(html, color_scheme=scheme) as page:
        page.wait_for_function("[...document.images].every((image) => image.complete)")
        seen = page.locator(".figures img").first.screenshot()
    size = (151, 139)
    inner = np.s_[3:-3, 3:-3]  # less the rounded corners
    shown, wanted = (as_gray(content, size)[inner] for content in (seen, truth.getvalue()))
    assert wanted.std() > 10 and np.corrcoef(shown.ravel(), wanted.ravel())[0, 1] > 0.97


@pytest.mark.parametrize("width", [400, 1300])
def test_a_figure_is_never_wider_than_the_page(opened, record, drawn, width):
    html = report(
        record, figures=[("A caption that is quite long. " * 9, drawn), ("Heads", draw.heads(record))]
    )
    with opened(html, viewport={"width": width, "height": 900}) as page:
        assert page.evaluate("document.documentElement.scrollWidth") <= width
        boxes = [page.locator(".figures img").nth(i).bounding_box() for i in range(2)]
        assert all(box["x"] >= 0 and box["x"] + box["width"] <= width for box in boxes)
        natural = page.evaluate("[...document.images].map((i) => i.naturalWidth / i.naturalHeight)")
        assert [box["width"] / box["height"] for box in boxes] == pytest.approx(natural, rel=0.02)
