"""A life holds what each head did, merges, and is kept in one small file."""

import numpy as np
import pytest
import torch

from regard import statistics
from regard.errors import ArgumentError, RecordError
from regard.training import Life, Probe
from training import tiny


def lived(steps=(0, 3, 7), picture=(0, 7), model=None, **settings):
    """A life, one random model after the other."""
    probe, life = tiny.probe(**settings), Life()
    for step in steps:
        torch.manual_seed(step)
        own = model or tiny.gpt()
        for parameter in own.parameters():
            parameter.data.normal_(0, 0.5)
        life = life.merge(probe.look(own, step, picture=step in picture))
    return life


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
    life = tiny.probe(cells=64).look(model, 5)
    weights = truth(model, tiny.batch(5))
    entropy = torch.special.entr(weights).sum(-1).mean((1, 3)).flatten()
    places = torch.arange(tiny.LENGTH)
    distance = (weights * (places[:, None] - places).abs()).sum(-1).mean((1, 3)).flatten()
    previous = weights.diagonal(-1, -2, -1).sum(-1).mean(1).flatten() / tiny.LENGTH
    for name, expected in (("entropy", entropy), ("distance", distance), ("previous", previous)):
        assert torch.allclose(life.of_statistic(name)[0].double(), expected, atol=1e-5)
    for place, kept in enumerate(life.maps):
        assert torch.allclose(kept[0].double(), weights[place].mean(0), atol=6e-4)  # float16


def test_a_text_of_another_length_makes_coarser_maps():
    life = tiny.probe(cells=5).look(tiny.gpt(), 0)
    assert life.layers[0].cell == 4 and life.maps[0].shape == (1, tiny.HEADS, 4, 4)


def test_padding_counts_nowhere():
    inputs = tiny.batch(5)
    padded = {name: torch.nn.functional.pad(x[:, :-4], (0, 4)) for name, x in inputs.items()}
    padded["attention_mask"] = torch.ones_like(padded["input_ids"])
    padded["attention_mask"][:, -4:] = 0
    short = {"input_ids": inputs["input_ids"][:, :-4]}
    model = tiny.bert()
    one, other = (Probe(each).look(model).values for each in (short, padded))
    assert torch.allclose(one, other, atol=1e-5)


def test_lives_merge_in_any_grouping():
    a, b, c = (lived((step,), (step,)) for step in (0, 3, 7))
    left, right = a.merge(b).merge(c), a.merge(b.merge(c))
    assert left.steps == right.steps == (0, 3, 7)
    assert torch.equal(left.values, right.values)
    assert all(torch.equal(one, other) for one, other in zip(left.maps, right.maps, strict=True))
    assert Life().merge(a) is a and a.merge(Life()) is a


def test_only_pictured_steps_have_maps():
    life = lived()
    assert life.pictured == (0, 7)
    assert [each.shape[0] for each in life.maps] == [2, 2]
    assert torch.equal(life.maps[1][1], lived((7,), (7,)).maps[1][0])
    assert lived(cells=0).maps == ()


def test_a_life_is_saved_and_loaded(tmp_path):
    life = lived(statistics=("entropy", statistics.local(2)))
    life.save(tmp_path / "life.safetensors")
    again = Life.load(tmp_path / "life.safetensors")
    for name in ("layers", "statistics", "parameters", "steps", "pictured"):
        assert getattr(again, name) == getattr(life, name)
    assert again.parameters == {"local": 2}
    assert torch.equal(again.values, life.values)
    assert all(torch.equal(one, other) for one, other in zip(again.maps, life.maps, strict=True))
    assert list(tmp_path.iterdir()) == [tmp_path / "life.safetensors"]


def test_a_hundred_probes_of_48_heads_are_two_megabytes(tmp_path):
    model = tiny.gpt(layers=6, heads=8)
    probe = Probe({"input_ids": torch.randint(1, tiny.VOCABULARY, (2, tiny.LENGTH))})
    seen = probe.look(model)
    steps = tuple(range(100))
    pictured = tuple(sorted(probe.pictured(steps)))
    assert len(pictured) == 16 and pictured[0] == 0 and pictured[-1] == 99
    maps = tuple(torch.rand(16, 8, 32, 32).half() for _ in range(6))
    values = seen.values.expand(100, -1, -1)
    Life(seen.layers, seen.statistics, seen.parameters, steps, values, pictured, maps).save(tmp_path / "life")
    assert (tmp_path / "life").stat().st_size <= 2_000_000


def test_the_table_has_a_row_for_each_step_and_head():
    life = lived()
    table = life.table
    assert list(table.columns[:4]) == ["layer", "kind", "head", "step"]
    assert len(table) == 3 * tiny.LAYERS * tiny.HEADS
    one = table[(table.layer == "transformer.h.1.attn") & (table["head"] == 2) & (table.step == 3)]
    assert one.entropy.item() == pytest.approx(life.of_statistic("entropy")[1, 5].item())
    assert Life().table.empty


def test_layers_are_found_by_name():
    life = lived((0,))
    assert life.place("h.1") == life.place(-1) == life.place("transformer.h.1.attn") == 1
    assert life.heads_of(1) == slice(3, 6)
    with pytest.raises(ArgumentError, match="layer must be a number or the name of one layer, got 'attn'"):
        life.place("attn")
    with pytest.raises(ArgumentError, match="layer must be an integer from 0 to 1, got 2"):
        life.place(2)
    with pytest.raises(RecordError, match="'entrop' was not kept; did you mean 'entropy'"):
        life.of_statistic("entrop")


def test_what_does_not_fit_does_not_merge():
    life = lived((3,))
    with pytest.raises(RecordError, match="must come later than step 3, got step 3"):
        life.merge(lived((3,)))
    with pytest.raises(
        RecordError, match=r"lives that merge must agree in layers, got .*transformer.h.1.attn"
    ):
        life.merge(lived((4,), model=tiny.gpt(layers=1)))
    with pytest.raises(
        RecordError, match=r"agree in statistics, got .* and \['entropy', 'entropy_fraction'\]"
    ):
        life.merge(lived((4,), statistics=("entropy",)))


def test_a_damaged_file_is_named(tmp_path):
    path = tmp_path / "life.safetensors"
    with pytest.raises(RecordError, match="life.safetensors: there is no such file"):
        Life.load(path)
    lived().save(path)
    whole = path.read_bytes()
    path.write_bytes(whole[: len(whole) // 2])
    with pytest.raises(RecordError, match="life.safetensors: is no safetensors file that can be read"):
        Life.load(path)
    from safetensors.torch import save_file

    save_file({"values": torch.zeros(1)}, path)
    with pytest.raises(RecordError, match="life.safetensors: is no life of Regard"):
        Life.load(path)
    for name, wrong in (("pictured", "[99]"), ("steps", "[7, 3, 0]"), ("layers", "[]"), ("statistics", "3")):
        path.write_bytes(whole)
        _altered(path, name, wrong)
        with pytest.raises(RecordError, match="life.safetensors: is damaged"):
            Life.load(path)
    path.write_bytes(whole)
    _altered(path, "version", "9")
    with pytest.raises(RecordError, match="has format version 9, this Regard reads 1: update it"):
        Life.load(path)


def _altered(path, name, value):
    """Put another value into the description of a life."""
    import json

    from safetensors import safe_open
    from safetensors.torch import load_file, save_file

    with safe_open(path, "pt") as file:
        body = json.loads(file.metadata()["life"])
    tensors = load_file(path)
    save_file(tensors, path, metadata={"life": json.dumps(body | {name: json.loads(value)})})


def test_printing_is_short():
    assert repr(lived()) == "Life of 6 heads in 2 layers: 3 probes, steps 0 to 7"
    assert repr(Life()) == "Life of 0 heads in 0 layers: 0 probes, no step"
    assert np.isfinite(lived().values.numpy()).all()
