"""Darker is more, on every level; text can be read on each of them."""

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from regard import html
from regard.html.colors import BLANK, LEVELS, PALETTE, TABLE_LEVELS, gradient, readable_on


def luminance(color):
    channels = np.array(color) / 255
    linear = np.where(channels <= 0.04045, channels / 12.92, ((channels + 0.055) / 1.055) ** 2.4)
    return linear @ (0.2126, 0.7152, 0.0722)


def test_each_level_is_darker_than_the_one_before():
    assert np.diff([luminance(color) for color in PALETTE[:LEVELS, :3]]).max() < 0


def test_text_can_be_read_on_each_level():
    for level in range(LEVELS):
        ink = readable_on(level)
        light, dark = sorted(luminance(c) for c in (PALETTE[level, :3], tuple(bytes.fromhex(ink[1:]))))[::-1]
        assert (light + 0.05) / (dark + 0.05) >= 4.0


def test_levels_rise_with_the_values():
    assert html.levels(np.array([0.0, 0.5, 1.0])).tolist() == [0, 32, 63]
    assert html.levels(np.array([-1.0, 1.0, 9.0]), 2.0, top=TABLE_LEVELS).tolist() == [0, 22, 45]
    assert html.levels(np.zeros(3)).tolist() == [0, 0, 0]
    assert html.levels(np.array([np.nan, np.inf, 1.0])).tolist() == [BLANK, BLANK, 63]


@given(st.lists(st.floats(), max_size=7))
@example([2.2250738585e-313, -1.0])
def test_any_numbers_have_a_level(values):
    levels = html.levels(np.array(values))
    assert levels.dtype == np.uint8 and all(level <= BLANK for level in levels.tolist())


@pytest.mark.parametrize("top", [1, 7, TABLE_LEVELS, LEVELS - 1])
def test_a_gradient_has_at_least_two_colors(top):
    assert gradient(top).count("#") >= 2
