"""A history holds what each head did, merges, and is kept in one small file."""

import json

import numpy as np
import pytest
import torch

from regard import statistics
from regard.errors import ArgumentError, RecordError
from regard.files import sealing
from regard.training import History, Monitor
from training import tiny


def a_history(steps=(0, 3, 7), picture=(0, 7), model=None, **settings):
    """A history, one random model after the other."""
    monitor, history = tiny.monitor(**settings), History()
    for step in steps:
        torch.manual_seed(step)
        own = model or tiny.gpt()
        for parameter in own.parameters():
            parameter.data.normal_(0, 0.5)
        history = history.merge(monitor.look(own, step, picture=step in picture))
    return history


def truth(model, inputs):
    """`(layers, batch, heads, queries, keys)`: the weights in float64, as the model itself gives them."""
    model.set_attn_implementation("eager")
    with torch.no_grad():
        weights = torch.stack(model.double().eval()(**inputs, output_attentions=True).attentions)
    model.float().set_attn_implementation("sdpa")
    return weights


def test_values_and_maps_are_those_of_the_weights():
    model = tiny.gpt()
    for parameter in model.parameters():
        parameter.data.normal_(0, 0.5)
    history = tiny.monitor(cells=64).look(model, 5)
    weights = truth(model, tiny.batch(5))
    entropy = torch.special.entr(weights).sum(-1).mean((1, 3)).flatten()
    places = torch.arange(tiny.LENGTH)
    distance = (weights * (places[:, None] - places).abs()).sum(-1).mean((1, 3)).flatten()
    previous = weights.diagonal(-1, -2, -1).sum(-1).mean(1).flatten() / tiny.LENGTH
    for name, expected in (("entropy", entropy), ("distance", distance), ("previous", previous)):
        assert torch.allclose(history.of_statistic(name)[0].double(), expected, atol=1e-5)
    for place, kept in enumerate(history.maps):
        assert torch.allclose(kept[0].double(), weights[place].mean(0), atol=6e-4)  # float16


def test_a_text_of_another_length_makes_coarser_maps():
    history = tiny.monitor(cells=5).look(tiny.gpt(), 0)
    assert history.layers[0].cell == 4 and history.maps[0].shape == (1, tiny.HEADS, 4, 4)


def test_padding_counts_nowhere():
    inputs = tiny.batch(5)
    padded = {name: torch.nn.functional.pad(x[:, :-4], (0, 4)) for name, x in inputs.items()}
    padded["attention_mask"] = torch.ones_like(padded["input_ids"])
    padded["attention_mask"][:, -4:] = 0
    short = {"input_ids": inputs["input_ids"][:, :-4]}
    model = tiny.bert()
    one, other = (Monitor(each).look(model).values for each in (short, padded))
    # Roles that no text can tell are NaN in both.
    assert torch.allclose(one, other, atol=1e-5, equal_nan=True)


def test_histories_merge_in_any_grouping():
    a, b, c = (a_history((step,), (step,)) for step in (0, 3, 7))
    left, right = a.merge(b).merge(c), a.merge(b.merge(c))
    assert left.steps == right.steps == (0, 3, 7)
    assert torch.equal(left.values, right.values)
    assert all(torch.equal(one, other) for one, other in zip(left.maps, right.maps, strict=True))
    assert History().merge(a) is a and a.merge(History()) is a


def test_only_pictured_steps_have_maps():
    history = a_history()
    assert history.pictured == (0, 7)
    assert [each.shape[0] for each in history.maps] == [2, 2]
    assert torch.equal(history.maps[1][1], a_history((7,), (7,)).maps[1][0])
    assert a_history(cells=0).maps == ()


def test_a_history_is_saved_and_loaded(tmp_path):
    history = a_history(statistics=("entropy", statistics.local(2)))
    history.save(tmp_path / "history.safetensors")
    again = History.load(tmp_path / "history.safetensors")
    for name in ("layers", "statistics", "parameters", "steps", "pictured"):
        assert getattr(again, name) == getattr(history, name)
    assert again.parameters == {"local": 2}
    assert torch.equal(again.values, history.values)
    assert all(torch.equal(one, other) for one, other in zip(again.maps, history.maps, strict=True))
    assert list(tmp_path.iterdir()) == [tmp_path / "history.safetensors"]


def test_a_hundred_looks_of_48_heads_are_two_megabytes(tmp_path):
    model = tiny.gpt(layers=6, heads=8)
    monitor = Monitor({"input_ids": torch.randint(1, tiny.VOCABULARY, (2, tiny.LENGTH))})
    seen = monitor.look(model)
    steps = tuple(range(100))
    pictured = tuple(sorted(monitor.pictured(steps)))
    assert len(pictured) == 16 and pictured[0] == 0 and pictured[-1] == 99
    maps = tuple(torch.rand(16, 8, 32, 32).half() for _ in range(6))
    values = seen.values.expand(100, -1, -1)
    History(seen.layers, seen.statistics, seen.parameters, steps, values, pictured, maps).save(
        tmp_path / "history"
    )
    assert (tmp_path / "history").stat().st_size <= 2_000_000


def test_the_table_has_a_row_for_each_step_and_head():
    history = a_history()
    table = history.table
    assert list(table.columns[:4]) == ["layer", "kind", "head", "step"]
    assert len(table) == 3 * tiny.LAYERS * tiny.HEADS
    one = table[(table.layer == "transformer.h.1.attn") & (table["head"] == 2) & (table.step == 3)]
    assert one.entropy.item() == pytest.approx(history.of_statistic("entropy")[1, 5].item())
    assert History().table.empty


def test_layers_are_found_by_name():
    history = a_history((0,))
    assert history.place("h.1") == history.place(-1) == history.place("transformer.h.1.attn") == 1
    assert history.heads_of(1) == slice(3, 6)
    with pytest.raises(ArgumentError, match="layer must be a number or the name of one layer, got 'attn'"):
        history.place("attn")
    with pytest.raises(ArgumentError, match="layer must be an integer from 0 to 1, got 2"):
        history.place(2)
    with pytest.raises(RecordError, match="'entrop' was not kept; did you mean 'entropy'"):
        history.of_statistic("entrop")


def test_what_does_not_fit_does_not_merge():
    history = a_history((3,))
    with pytest.raises(RecordError, match="must come later than step 3, got step 3"):
        history.merge(a_history((3,)))
    with pytest.raises(
        RecordError, match=r"histories that merge must agree in layers, got .*transformer.h.1.attn"
    ):
        history.merge(a_history((4,), model=tiny.gpt(layers=1)))
    with pytest.raises(
        RecordError,
        match=r"agree in statistics, got .* and \['entropy', 'entropy_fraction', 'largest_score'",
    ):
        history.merge(a_history((4,), statistics=("entropy",)))


def test_a_damaged_file_is_named(tmp_path):
    path = tmp_path / "history.safetensors"
    with pytest.raises(RecordError, match="history.safetensors: there is no such file"):
        History.load(path)
    a_history().save(path)
    whole = path.read_bytes()
    for kept in (whole[: len(whole) // 2], whole[:-1], whole + b" ", b"", b"\xff" * 99):
        path.write_bytes(kept)
        with pytest.raises(RecordError, match="history.safetensors: is no safetensors file that can be read"):
            History.load(path)
    from safetensors.torch import save_file

    save_file({"values": torch.zeros(1)}, path)
    with pytest.raises(RecordError, match="history.safetensors: is altered, or has never been sealed"):
        History.load(path)
    path.write_bytes(sealing.packed({"values": torch.zeros(1)}, {"history": "null"}))
    with pytest.raises(RecordError, match="history.safetensors: is no history of Regard"):
        History.load(path)
    path.unlink()
    path.symlink_to(tmp_path / "elsewhere")
    with pytest.raises(RecordError, match="history.safetensors: must be a plain file"):
        History.load(path)
    path.unlink()
    cases = {
        "pictured": ("[99]", "7", "[0.5]"),
        "steps": ("[7, 3, 0]", "[0, 3, 7.5]", '["0", "3", "7"]', "[true, 3, 7]", "null"),
        "layers": ("[]", "[{}]", '[{"name": 3}]', "{}"),
        "statistics": ("3", "[1]", '"entropy"'),
        "parameters": ("3", '{"first": "1"}', "null"),
    }
    for name, wrong in [(name, wrong) for name, several in cases.items() for wrong in several]:
        path.write_bytes(whole)
        _altered(path, name, wrong)
        with pytest.raises(RecordError, match="history.safetensors: is damaged"):
            History.load(path)
    path.write_bytes(whole)
    _altered(path, "version", "9")
    with pytest.raises(RecordError, match="has format version 9, this Regard reads 2: update it"):
        History.load(path)


def _altered(path, name, value):
    """Put another value into the description of a history, and seal it anew, as somebody would who means harm."""
    tensors, metadata = sealing.unpacked(path.read_bytes())
    body = json.loads(metadata["history"]) | {name: json.loads(value)}
    path.write_bytes(sealing.packed(tensors, {"history": json.dumps(body)}))


def test_printing_is_short():
    assert repr(a_history()) == "History of 6 heads in 2 layers: 3 looks, steps 0 to 7"
    assert repr(History()) == "History of 0 heads in 0 layers: 0 looks, no step"
    assert np.isfinite(a_history().values.numpy()).all()


def test_its_card_has_the_first_and_the_last_step():
    history = a_history()
    card = history._repr_html_()
    for row, step in ((0, 0), (-1, 7)):
        for head, value in enumerate(
            history.of_statistic("entropy_fraction")[row, history.heads_of(0)].tolist()
        ):
            assert f'title="head {head}, entropy_fraction, step {step}: {value:.3g}"' in card
    assert "step 3" not in card and "maps of 2 steps" in card
    assert "no step" in History()._repr_html_()
