"""Packed numbers come back within the error that the page states."""

import base64
import zlib

import numpy as np
import torch

from page.reading import Contents
from regard.page.encode import DECADES, F16_ERROR, LOG8_ERROR, Numbers


def back(values, code):
    numbers = Numbers()
    numbers.add(torch.ones(1, 1, 3), "log8")  # an odd number of bytes before
    part = numbers.add(values, code)
    block = zlib.decompress(base64.b64decode(numbers.text()))
    return part, Contents({}, block).array(part), numbers


def test_log8_is_within_its_error():
    values = torch.rand(2, 3, 5, 7).double().pow(9)
    values[0, 1, 2, 3] = 0
    _, found, _ = back(values, "log8")
    top = values.amax((2, 3), keepdim=True).numpy()
    large = values.numpy() > top * 10.0**-DECADES
    error = np.abs(found / values.numpy().clip(min=1e-300) - 1)[large]
    assert 0.5 * LOG8_ERROR < error.max() <= LOG8_ERROR * 1.0001
    assert found[0, 1, 2, 3] == 0
    assert (found[~large] <= 1.03 * top.repeat(5, 2).repeat(7, 3)[~large] * 10.0**-DECADES).all()


def test_log8_keeps_the_largest_of_each_head_and_heads_of_zeros():
    values = torch.rand(1, 3, 11, 2) * torch.tensor([1.0, 0.0, 1e-9])[:, None, None]
    _, found, _ = back(values, "log8")
    np.testing.assert_allclose(found.max((2, 3)), values.amax((2, 3)), rtol=1e-6)
    assert not found[0, 1].any()


def test_f16_is_within_its_error():
    values = torch.rand(2, 1, 13)
    part, found, _ = back(values, "f16")
    assert part["at"] % 4 == 0
    assert np.abs(found / values.numpy() - 1).max() <= F16_ERROR


def test_integers_come_back_whole():
    values = torch.tensor([[[-1, 0, 131_071]]])
    assert back(values, "i32")[1].tolist() == values.tolist()


def test_what_is_no_number_becomes_zero_and_is_told():
    _, found, numbers = back(torch.tensor([[[0.5, torch.nan, torch.inf]]]), "log8")
    np.testing.assert_allclose(found, [[[0.5, 0, 0]]])
    assert numbers.flawed
    assert not back(torch.ones(1, 1, 2), "f16")[2].flawed
