"""The worst finding of every head as a color, in its own cell."""

import numpy as np
import pytest
from matplotlib.colors import to_rgb

from draw.looking import axes_of, faults, words
from regard import draw
from regard.analysis.diagnosis import Diagnosis, Finding
from regard.analysis.diagnosis.diagnosis import Heads
from regard.draw.findings import COLORS
from regard.errors import RecordError


def finding(name, severity, layer, head):
    return Finding(name, severity, layer, "self", head, 1.0, 0.5, sentence=f"{name} in {layer}")


def diagnosis(*findings, heads=(5, 3)):
    layers = tuple(Heads(f"layers.{index}", "self", count) for index, count in enumerate(heads))
    return Diagnosis(findings, layers, 7, 100, {"collapse": "", "sink": ""})


def test_cells_have_the_color_of_the_worst_finding():
    severe, note = finding("collapse", "severe", "layers.0", 2), finding("sink", "note", "layers.0", 2)
    row = finding("sink", "warning", "layers.1", None)
    figure = draw.findings(diagnosis(severe, row, note))
    (axes,) = axes_of(figure, "findings")
    shown = np.asarray(axes.images[0].get_array())
    assert shown.shape == (2, 5, 3)
    expected = [["", "", "severe", "", ""], ["warning"] * 3 + [None] * 2]
    for i, line in enumerate(expected):
        for j, name in enumerate(line):
            np.testing.assert_allclose(shown[i, j], to_rgb(COLORS.get(name, "white")), atol=0.003)
    assert any("collapse (1), sink (2)" in word for word in words(figure))
    assert faults(figure) == []


@pytest.mark.parametrize("heads", [(1,), (2,) * 3, (12,) * 12, (71,) * 37])
def test_every_size_fits_its_sheet(heads):
    figure = draw.findings(diagnosis(finding("sink", "note", "layers.0", 0), heads=heads))
    assert faults(figure) == []


def test_a_finding_about_the_model_stands_below():
    whole = Finding("not finite", "severe", "", "", None, 1.0, 0.0, sentence="not finite in the model")
    assert any("not finite in the model" in word for word in words(draw.findings(diagnosis(whole))))


def test_nothing_cannot_be_drawn():
    with pytest.raises(RecordError, match="at least one head"):
        draw.findings(Diagnosis())
