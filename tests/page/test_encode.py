"""Packed numbers come back within the error that the page states."""

import numpy as np
import pytest
import torch

from page.reading import Contents
from regard.page.encode import DECADES, F16_ERROR, LOG8_ERROR, Numbers, whole


def back(values, code):
    numbers = Numbers()
    numbers.add(torch.ones(1, 3), "log8")  # an odd number of bytes before
    part = numbers.add(values, code)
    return part, Contents({}, numbers.block).array(part), numbers


def test_log8_is_within_its_error():
    values = torch.rand(6, 5, 7).double().pow(9)
    values[1, 2, 3] = 0
    _, found, _ = back(values, "log8")
    top = values.amax((1, 2), keepdim=True).numpy()
    large = values.numpy() > top * 10.0**-DECADES
    error = np.abs(found / values.numpy().clip(min=1e-300) - 1)[large]
    assert 0.5 * LOG8_ERROR < error.max() <= LOG8_ERROR * 1.0001
    assert found[1, 2, 3] == 0
    assert (found[~large] <= 1.03 * top.repeat(5, 1).repeat(7, 2)[~large] * 10.0**-DECADES).all()


def test_log8_keeps_the_largest_of_each_head_and_heads_of_zeros():
    values = torch.rand(3, 11, 2) * torch.tensor([1.0, 0.0, 1e-9])[:, None, None]
    _, found, _ = back(values, "log8")
    np.testing.assert_allclose(found.max((1, 2)), values.amax((1, 2)), rtol=1e-6)
    assert not found[1].any()


def test_f16_is_within_its_error():
    values = torch.rand(2, 13)
    part, found, _ = back(values, "f16")
    assert part["at"] % 4 == 0
    assert np.abs(found / values.numpy() - 1).max() <= F16_ERROR


def test_integers_come_back_whole():
    values = torch.tensor([[-1, 0, 131_071]])
    assert back(values, "i32")[1].tolist() == values.tolist()


def test_what_is_no_number_becomes_zero_and_is_told():
    _, found, numbers = back(torch.tensor([[0.5, torch.nan, torch.inf]]), "log8")
    np.testing.assert_allclose(found, [[0.5, 0, 0]])
    assert numbers.flawed
    assert not back(torch.ones(1, 2), "f16")[2].flawed


def test_what_float16_does_not_hold_is_float32():
    values = torch.tensor([[1.0, 131_072.0], [torch.nan, -3.5]])
    part, found, numbers = back(values, "f16")
    assert part["code"] == "f32" and not numbers.flawed
    np.testing.assert_array_equal(found, values)


def test_truths_come_back_and_take_a_bit_each():
    values = torch.rand(3, 5, 7) > 0.4
    start = Numbers()
    start.add(values, "bits")
    assert start.size == 14
    assert (back(values, "bits")[1] == values.numpy()).all()


def test_what_is_forgotten_takes_no_room():
    numbers = Numbers()
    first = numbers.add(torch.rand(1, 13), "f32")
    start, before = numbers.size, numbers.block
    numbers.add(torch.rand(1, 1009), "f32")
    assert numbers.deflated(start) > 3000
    numbers.forget(start)
    assert numbers.block == before and numbers.add(torch.zeros(1, 1), "f32")["at"] > first["at"]


def test_an_index_stands_before_its_numbers():
    numbers = Numbers()
    numbers.add(torch.ones(1, 2), "f32")
    block = whole({"token": "</script>\ud800"}, numbers)
    start = 4 + int.from_bytes(block[:4], "little")
    assert start % 4 == 0 and block[start:] == numbers.block
    with pytest.raises(ValueError, match="JSON compliant"):
        whole({"a": float("nan")}, numbers)
