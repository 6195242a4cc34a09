"""A text with the attention of each sentence: bars and shares, what is known to be right, long and many sentences."""

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from draw.looking import WORDS, axes_of, box, faults, texts, words
from regard import draw
from regard.errors import ArgumentError, ShapeError
from regard.tasks.answer.data import examples
from regard.tasks.common import metrics

STORY = examples(1, facts=2, held=True)[0]


def bars(figure):
    return [patch.get_width() for patch in axes_of(figure, "passage")[0].patches]


def signs(figure):
    """The signs from top to bottom."""
    found = [(-box(text).y0, text.get_text()) for text in texts(figure) if text.get_text() in "✓✗"]
    return [sign for _, sign in sorted(found)]


def frames(figure):
    return [line for line in axes_of(figure, "passage")[0].lines if line.get_gid() == "right"]


def masses_of(count):
    return np.random.default_rng(7).dirichlet(np.full(count, 0.5))


def test_bars_and_shares_are_the_masses():
    masses = 0.6 * masses_of(len(STORY.sentences))
    figure = draw.passage(STORY.sentences, torch.tensor(masses), title=STORY.question, note="One head.")
    assert np.allclose(np.array(bars(figure)) / max(bars(figure)), masses / masses.max())
    written = words(figure)
    assert {*STORY.sentences, STORY.question} <= set(written)
    assert {f"{100 * mass / 0.6:.0f} %" for mass in masses if mass > 0.003} <= set(written)
    assert any("all sentences got together (0.6). One head." in text for text in written)
    (bold,) = {
        text.get_text()
        for text in texts(figure)
        if text.get_weight() == "bold" and text.get_text() in STORY.sentences
    }
    assert bold == STORY.sentences[masses.argmax()]
    assert signs(figure) == [] and frames(figure) == []
    assert faults(figure) == []


def test_support_is_framed_and_found_or_missed():
    sentences = [f"Sentence {i}." for i in range(7)]
    figure = draw.passage(sentences, [1, 5, 2, 0, 1, 4, 3], support=(6, 1))
    assert signs(figure) == ["✓", "✗"]
    framed = [sorted(line.get_ydata())[0::4] for line in frames(figure)]
    middles = [
        next(t.get_position()[1] for t in texts(figure) if t.get_text() == sentences[i]) for i in (1, 6)
    ]
    assert [low < middle < high for (low, high), middle in zip(framed, middles, strict=True)] == [True, True]
    note = "they got 50 %. ✓ got clearly more than every sentence that is not (1 of 2), ✗ did not."
    assert any(note in text for text in words(figure))
    assert faults(figure) == []


@given(st.lists(st.integers(0, 5), min_size=2, max_size=11), st.data())
def test_all_are_found_where_the_score_says_so(masses, data):
    support = data.draw(st.sets(st.integers(0, len(masses) - 1), min_size=1, max_size=len(masses) - 1))
    figure = draw.passage(["A."] * len(masses), masses, support=support)
    every = bool(metrics.support_ranks_first(torch.tensor(masses).double(), sorted(support)))
    assert len(signs(figure)) == len(support)
    assert ("✗" not in signs(figure)) == every


def test_of_many_sentences_the_strongest_stay_in_order():
    masses = masses_of(43)
    order = np.argsort(-masses)
    kept, left = sorted(order[:30]), order[30:]
    support = [int(order[0]), int(order[-1])]
    figure = draw.passage([f"Sentence number {i}." for i in range(43)], masses, support=support)
    assert [text for text in words(figure) if text.startswith("Sentence number")] == [
        f"Sentence number {i}." for i in kept
    ]
    together = f"{100 * masses[left].sum():.0f} %"
    note = f"13 sentences with less are left out, 1 of them known to be right; they got {together} together."
    assert any(note in text for text in words(figure))
    assert len(frames(figure)) == 1
    assert faults(figure) == []


@pytest.mark.parametrize("count", [1, 2, 13, 30, 31, 1009])
def test_any_number_of_sentences_is_readable(count):
    random = np.random.default_rng(count)
    sentences = [" ".join(random.choice(WORDS, random.integers(1, 40))) for _ in range(count)]
    figure = draw.passage(sentences, masses_of(count), support=range(0, count, 5), title="A text" * 30)
    assert len(bars(figure)) == min(count, 30)
    assert faults(figure) == []


@pytest.mark.parametrize(
    "text", ["W" * 997, "\u4e2d" * 211, "word " * 307, "", " \n\t ", "a" * 70 + " b" * 70]
)
def test_long_sentences_are_cut_before_the_bars(text):
    figure = draw.passage([text, "Short."], [0.9, 0.1], support=[0])
    axes = axes_of(figure, "passage")[0]
    left = axes.transData.transform((axes.patches[0].get_x(), 0))[0]
    sentence = [t for t in texts(figure) if t.get_weight() == "bold" and t.get_text() not in ("90 %", "✓")]
    assert len(sentence) <= 3 and all(box(t).x1 < left for t in sentence)
    assert (len(text) > 200) == any(t.get_text().endswith("…") for t in sentence)
    assert faults(figure) == []


def test_no_mass_at_all_is_drawn():
    figure = draw.passage(["A.", "B."], np.zeros(2), support=[1])
    assert bars(figure) == [0, 0] and signs(figure) == ["✗"]
    assert words(figure).count("0 %") == 2
    assert "< 1 %" in words(draw.passage(["A.", "B."], [1.0, 1e-4]))


def test_where_all_are_right_none_is_marked():
    figure = draw.passage(["A.", "B."], [1.0, 2.0], support=[0, 1])
    assert signs(figure) == [] and len(frames(figure)) == 2
    assert "All sentences are known to be right, so that none can be marked as a wrong one." in " ".join(
        words(figure)
    )


@pytest.mark.parametrize(
    ("given", "error", "message"),
    [
        (
            {"masses": np.ones((2, 2))},
            ShapeError,
            r"masses must be \(sentences\), no axis empty, got \(2, 2\)",
        ),
        ({"masses": [1.0]}, ShapeError, "sentences must have one entry for each of the 1 masses, got 2"),
        ({"masses": [1.0, -0.5]}, ArgumentError, "masses must not be negative, got -0.5"),
        ({"masses": [1.0, np.nan]}, ArgumentError, "masses must be finite, got 1 NaN or inf"),
        ({"sentences": "AB"}, ArgumentError, "sentences must be a list of strings, got 'AB'"),
        ({"support": [2]}, ArgumentError, "support must be numbers of sentences from 0 to 1, got 2"),
        ({"support": [-1]}, ArgumentError, "got -1"),
        ({"support": [0.5]}, ArgumentError, "got 0.5"),
        (
            {"support": torch.tensor([True, False])},
            ArgumentError,
            "must be a whole number, got a torch.bool tensor",
        ),
    ],
)
def test_bad_input_is_named(given, error, message):
    with pytest.raises(error, match=message):
        draw.passage(**({"sentences": ["A.", "B."], "masses": [0.5, 0.5]} | given))


@pytest.mark.parametrize("support", [(1,), [1], {1}, torch.tensor([1]), np.array([1]), [np.int64(1)]])
def test_support_may_be_any_numbers(support):
    assert len(frames(draw.passage(["A.", "B."], [0.5, 0.5], support=support))) == 1
