"""Models whose tokens lie on many processes are refused; models whose layers lie on many devices are watched."""

import pytest
import torch
import torch.distributed as dist
from torch import nn
from torch.nn import functional

import regard as rg
from regard import scale
from regard.errors import WatchError

TOKENS, HEADS, DIM = 6, 2, 4


class Attention(nn.Module):
    """Self-attention by torch's function, of whatever tensors it gets."""

    def forward(self, x):
        return functional.scaled_dot_product_attention(x, x, x)


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.attention, self.other = Attention(), Attention()

    def forward(self, x, y):
        return self.attention(x), self.other(y)


@pytest.fixture
def mesh():
    """A mesh of one process."""
    from torch.distributed.device_mesh import init_device_mesh

    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    yield init_device_mesh("cpu", (1,))
    dist.destroy_process_group()


def layers(record):
    return [call.layer for call in record.calls]


def tokens():
    return torch.randn(1, HEADS, TOKENS, DIM)


def test_distributed_tensors_are_refused(mesh):
    from torch.distributed.tensor import Replicate, distribute_tensor

    x = distribute_tensor(tokens(), mesh, [Replicate()])
    model = Model()
    with torch.no_grad():
        try:
            model(x, tokens())
        except Exception as error:
            pytest.skip(f"torch itself does not compute it here: {error}")
        with (
            pytest.raises(
                WatchError, match=r"attention \(Attention\): its tensors are distributed.*scale.observe"
            ),
            rg.watch(model),
        ):
            model(x, tokens())
        # The way out that the message names.
        with rg.watch(model, layers="!attention") as record:
            model(x, tokens())
    assert layers(record) == ["other"]


@pytest.mark.parametrize("outside", [True, False], ids=["watch outside", "watch inside"])
def test_context_parallelism_is_refused_however_it_is_nested(mesh, outside):
    from torch.distributed.tensor.experimental import context_parallel

    model, x, y = Model(), tokens(), tokens()

    def parallel():
        return context_parallel(mesh, buffers=[x, y], buffer_seq_dims=[2, 2])

    with torch.no_grad(), pytest.raises(WatchError, match="torch's context_parallel.*regard.scale.observe"):
        if outside:
            with rg.watch(model), parallel():
                model(x, y)
        else:
            with parallel(), rg.watch(model):
                model(x, y)
    # Nothing of it is left.
    with torch.no_grad(), rg.watch(model) as record:
        model(x, y)
    assert layers(record) == ["attention", "other"]


class Sharded(nn.Module):
    """Self-attention over the processes of a group."""

    def forward(self, x):
        return scale.attend(x, x, x, keys=scale.contiguous(TOKENS, dist.get_world_size()))


@pytest.fixture
def half_sharded(mesh):
    """A model with a module of torch's attention, and one whose tokens lie on the processes of a group."""
    model = Model()
    model.attention = Sharded()
    return model


@pytest.mark.parametrize("outside", [True, False], ids=["outer watch", "inner watch"])
def test_shards_of_a_sequence_are_refused_however_watches_are_nested(half_sharded, outside):
    x, model = tokens(), half_sharded
    # One watch leaves the module out, the other one does not.
    layers_of = ["!attention", None]
    if outside:
        layers_of.reverse()
    message = r"attention \(Sharded\): it calls regard.scale.attend, .*regard.scale.observe"
    with torch.no_grad():
        with (
            pytest.raises(WatchError, match=message),
            rg.watch(model, layers=layers_of[0]),
            rg.watch(model, layers=layers_of[1]),
        ):
            model(x, x)
        with rg.watch(model, layers="!attention") as record:
            whole, _ = model(x, x)
        # Outside of the model's modules it is nobody's layer.
        with rg.watch(model.other):
            model.other(x)
            alone = scale.attend(x, x, x, keys=scale.contiguous(TOKENS, 1))
    assert layers(record) == ["other"]
    assert torch.equal(whole, alone)


def test_heads_of_shards_cannot_be_changed(half_sharded):
    x, model = tokens(), half_sharded
    with (
        torch.no_grad(),
        pytest.raises(WatchError, match="regard.scale.attend"),
        rg.intervene(model, [("attention", 0)], output="zero"),
    ):
        model(x, x)
    with torch.no_grad(), rg.intervene(model, [("other", 0)], output="zero"):
        _, other = model(x, x)
    assert not other[:, 0].any() and other[:, 1].any()


@pytest.mark.parametrize("where", ["disk", "cpu"])
def test_a_model_whose_layers_lie_on_many_devices_is_watched(where, tmp_path):
    accelerate = pytest.importorskip("accelerate")
    transformers = pytest.importorskip("transformers")
    torch.manual_seed(0)
    sizes = {"n_layer": 3, "n_head": 2, "n_embd": 16, "vocab_size": 31, "n_positions": 16}
    config = transformers.GPT2Config(**sizes, bos_token_id=0, eos_token_id=0)
    model = transformers.GPT2LMHeadModel(config).eval()
    ids = torch.arange(11)[None]
    with torch.no_grad(), rg.watch(model, map=4) as whole:
        logits = model(ids).logits
    parts = {"transformer.wte": "cpu", "transformer.wpe": "cpu", "transformer.ln_f": "cpu", "lm_head": "cpu"}
    # The middle layer's weights are on no device until it runs.
    parts |= {"transformer.h.0": "cpu", "transformer.h.1": where, "transformer.h.2": "cpu"}
    spread = accelerate.dispatch_model(
        model, parts, main_device="cpu", offload_dir=str(tmp_path), force_hooks=True
    )
    if where == "disk":
        assert spread.transformer.h[1].attn.c_attn.weight.device.type == "meta"
    with torch.no_grad(), rg.watch(spread, map=4) as record:
        again = spread(ids).logits
    assert torch.equal(again, logits) and layers(record) == layers(whole)
    for call, other in zip(record.calls, whole.calls, strict=True):
        assert torch.equal(call.entropy, other.entropy) and torch.equal(call.map.total, other.map.total)
