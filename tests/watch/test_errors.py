"""What cannot be read is an error that names the module and the way out; what is asked wrongly, one that says so."""

from __future__ import annotations

from typing import Any

import pytest
import torch
import torch.nn.functional as F
import transformers
from torch import Tensor, nn
from torch._subclasses import FakeTensorMode
from transformers.modeling_utils import AttentionInterface

import regard
from regard.errors import ArgumentError, UnseenWarning, WatchError
from watch.families import FAMILIES

LLAMA = FAMILIES["Llama"]


class HiddenAttention(nn.Module):
    """Attention whose weights are made without a softmax."""

    def forward(self, x: Tensor) -> Tensor:
        return (x @ x.mT).sigmoid() @ x


class Plain(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return F.scaled_dot_product_attention(x, x, x)


class Both(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.plain, self.hidden = Plain(), HiddenAttention()

    def forward(self, x: Tensor) -> Tensor:
        return self.hidden(self.plain(x))


X = torch.randn(2, 5, 4)


def test_attention_that_is_not_seen() -> None:
    module = Both()
    reason = "products of scores that no softmax was made of with other tensors"
    with (
        pytest.warns(UnseenWarning, match=f"1 modules that may attend .hidden: {reason}"),
        regard.watch(module) as record,
    ):
        module(X)
    assert len(record) == 1 and record.unseen == {"hidden": reason}
    with (
        pytest.raises(
            WatchError, match=f"HiddenAttention ran, .*: HiddenAttention shows {reason}, or layers"
        ),
        regard.watch(module.hidden),
    ):
        module.hidden(X)
    for layers in ("plain", "!hidden", ["plain", "!hid*"]):
        with regard.watch(module, layers=layers) as record:
            module(X)
        assert len(record) == 1 and not record.unseen


def test_a_branch_that_is_not_taken_is_no_error() -> None:
    class OptionalAttention(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.project = nn.Linear(4, 4)

        def forward(self, x: Tensor, memory: Tensor | None = None) -> Tensor:
            return x if memory is None else self.project(x)

    module = nn.Sequential(Plain(), OptionalAttention())
    with regard.watch(module) as record:
        module(X)
    assert len(record) == 1


def test_a_model_that_was_not_run() -> None:
    with pytest.raises(WatchError, match="Both must be run inside the with block"), regard.watch(Both()):
        pass
    module = nn.Linear(4, 4)
    with pytest.raises(WatchError, match="Linear ran, but no attention call was seen"), regard.watch(module):
        module(X)


def test_compiled_modules() -> None:
    hidden = r"OptimizedModule is compiled .* watch and run model\._orig_mod"
    with pytest.raises(WatchError, match=hidden), regard.watch(torch.compile(Plain(), backend="eager")):
        pass
    module = Both()
    module.plain.compile(backend="eager")
    with (
        pytest.raises(
            WatchError, match=r"plain was compiled in place, .* call model\.compile\(\) after watching"
        ),
        regard.watch(module),
    ):
        pass
    with pytest.raises(WatchError, match="is TorchScript"), regard.watch(torch.jit.trace(Plain(), X)):
        pass


def test_models_that_are_compiled_from_outside() -> None:
    module = Plain()
    compiled = torch.compile(module, backend="eager")
    with (
        pytest.raises(WatchError, match=r"Plain must be run .* not through torch\.compile"),
        regard.watch(module),
    ):
        compiled(X)
    model = LLAMA.build()
    hidden = r"LlamaForCausalLM compiles itself to generate .* give generate\(…, disable_compile=True\)"
    with pytest.raises(WatchError, match=hidden), regard.watch(model):
        model.get_compiled_call(None)


def kernel(
    module: nn.Module,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    mask: Any,
    *,
    temperature: float = 1.0,
    **rest: Any,
) -> Any:
    """A kernel of its own: nothing of what it does is seen."""
    with torch._C.DisableTorchFunction():
        return by_hand(query, key, value, temperature, rest)


def by_hand(query: Tensor, key: Tensor, value: Tensor, temperature: float, rest: dict[str, Any]) -> Any:
    scaling = rest.get("scaling") or query.shape[-1] ** -0.5
    key, value = (part.repeat_interleave(query.shape[1] // key.shape[1], 1) for part in (key, value))
    scores = query @ key.mT * (scaling / temperature)
    hidden = torch.ones(scores.shape[-2:], dtype=torch.bool).triu(1 + key.shape[2] - query.shape[2])
    if rest.get("sliding_window"):
        hidden |= torch.ones(scores.shape[-2:], dtype=torch.bool).tril(-rest["sliding_window"])
    scores = scores.masked_fill(hidden if rest.get("is_causal", True) else torch.tensor(False), -torch.inf)
    weights = (scores - scores.amax(-1, keepdim=True)).exp()
    weights = F.dropout(weights / weights.sum(-1, keepdim=True), rest.get("dropout", 0.0))
    return (weights @ value).transpose(1, 2).contiguous(), None


@pytest.fixture
def with_kernel() -> Any:
    AttentionInterface.register("own_kernel", kernel)
    yield
    del AttentionInterface._global_mapping["own_kernel"]


@pytest.mark.usefixtures("with_kernel")
@pytest.mark.parametrize("name", ["Llama", "Mistral"])
def test_a_kernel_behind_the_interface_is_read_from_its_arguments(name: str) -> None:
    family = FAMILIES[name]
    with torch.no_grad():
        model = family.build("own_kernel")
        with regard.watch(model) as record:
            model(family.inputs()["input_ids"])
        eager = family.build("eager")
        with regard.watch(eager) as expected:
            eager(family.inputs()["input_ids"])
    for call, want in zip(record, expected, strict=True):
        torch.testing.assert_close(call.entropy, want.entropy, atol=1e-5, rtol=0)
        assert torch.equal(call.allowed, want.allowed)


class Tempered(nn.Module):
    """Calls the interface with an argument that Regard does not know."""

    def __init__(self, temperature: float, dropout: float = 0.0) -> None:
        super().__init__()
        self.temperature, self.dropout, self.is_causal = temperature, dropout, True

    def forward(self, x: Tensor) -> Tensor:
        attend = transformers.modeling_utils.ALL_ATTENTION_FUNCTIONS.get_interface("own_kernel", kernel)
        q = x[:, None]
        return attend(self, q, q, q, None, temperature=self.temperature, dropout=self.dropout)[0]


@pytest.mark.usefixtures("with_kernel")
def test_an_unknown_argument_counts_only_if_it_changes_something() -> None:
    harmless, harmful = (
        (Tempered(1.0), Tempered(1.0, dropout=0.5)),
        (Tempered(3.0), Tempered(3.0, dropout=0.5)),
    )
    for module in harmless:
        torch.manual_seed(3)
        want = module(X), torch.rand(())
        torch.manual_seed(3)
        with regard.watch(module) as record:
            got = module(X), torch.rand(())
        assert len(record) == 1 and all(map(torch.equal, want, got))
    message = r"does not explain its output; .* does not know: temperature\. Ways out"
    for module in harmful:
        with pytest.raises(WatchError, match=message), regard.watch(module):
            module(X)


def seen_by_hand(
    module: nn.Module,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    mask: Any,
    *,
    temperature: float,
    **rest: Any,
) -> Any:
    return by_hand(query, key, value, temperature, rest)


@pytest.mark.parametrize("dropout", [0.0, 0.5])
def test_a_registered_function_in_python_is_read_by_its_weights(dropout: float) -> None:
    AttentionInterface.register("own_kernel", seen_by_hand)
    try:
        module = Tempered(3.0, dropout)
        with regard.watch(module) as record:
            module(X)
    finally:
        del AttentionInterface._global_mapping["own_kernel"]
    scores = (X @ X.mT).double() / 6
    hidden = torch.ones(5, 5, dtype=torch.bool).triu(1)
    want = scores.masked_fill(hidden, -torch.inf).softmax(-1).sum(1)
    torch.testing.assert_close(record[0].received[:, 0].double(), want, atol=1e-6, rtol=0)


def through_torch(
    module: nn.Module, query: Tensor, key: Tensor, value: Tensor, mask: Any, **given: Any
) -> Any:
    """A registered function that changes the scale and calls torch: its arguments do not tell."""
    key, value = (part.repeat_interleave(query.shape[1] // key.shape[1], 1) for part in (key, value))
    return F.scaled_dot_product_attention(query, key, value, is_causal=True, scale=0.9).transpose(1, 2), None


def test_a_registered_function_is_read_by_the_calls_inside_it_if_its_arguments_do_not_explain_it() -> None:
    AttentionInterface.register("through_torch", through_torch)
    try:
        model = LLAMA.build("through_torch")
        with torch.no_grad(), regard.watch(model, keep="vectors") as record:
            model(LLAMA.inputs()["input_ids"])
    finally:
        del AttentionInterface._global_mapping["through_torch"]
    assert [call.spec.scale for call in record] == [0.9, 0.9]


def test_tensors_of_classes_and_transforms_that_hide_their_numbers() -> None:
    module = Plain()
    hidden = pytest.raises(WatchError, match="its tensors are of the class FakeTensor")
    with FakeTensorMode() as fake, hidden, regard.watch(module):
        module(fake.from_tensor(X))
    with pytest.raises(WatchError, match=r"inside a transform of torch\.func"), regard.watch(module):
        torch.vmap(module)(X)


def test_tensors_without_numbers_or_of_whole_numbers() -> None:
    with pytest.raises(
        WatchError, match=r"Plain \(Plain\): query holds no numbers: the model is on the meta device"
    ):
        module = Plain()
        with regard.watch(module):
            module(X.to("meta"))
    model = LLAMA.build("eager").to("meta")
    with pytest.raises(WatchError, match=r"LlamaAttention.*: query holds no numbers"), regard.watch(model):
        model(LLAMA.inputs()["input_ids"].to("meta"))


def test_an_error_of_the_model_comes_first() -> None:
    module = Plain()
    with pytest.raises(RuntimeError, match="shape|size|must match"), regard.watch(module):
        F.scaled_dot_product_attention(X, X[:, :, :3], X)


@pytest.mark.parametrize(("options", "message"), [
    (dict(layers="plian"), r"layers must name modules of Both, got 'plian'; did you mean 'plain'\?"),
    (dict(layers=[3]), "layers must name modules of Both, got 3; blocks: none"),
    (dict(keep="everything"), "keep must be \"statistics\" or \"vectors\", got 'everything'"),
    (dict(statistics=["entropi"]), "unknown statistic 'entropi'; did you mean 'entropy'"),
    (dict(top=-1), "top must be at least 0, got -1"),
    (dict(map=0), "map must be at least 1 cell a side, got 0"),
    (dict(tokens="abc"), "tokens must be a list of strings, or one such list for each row of the batch"),
    (dict(tokens=[["a"], [1]]), "tokens must be a list of strings"),
    (dict(tokens=["a"] * 5), r"tokens must have one list for each of \[2\] rows, got 1 lists"),
    (dict(tokens=[["a"] * 5, ["a"] * 6]), r"tokens must be as many as queries or keys, \[5\], got 6"),
    (dict(source_tokens=[["a"]] * 3), r"source_tokens must have one list for each of \[2\] rows, got 3 lists"),
])  # fmt: skip
def test_wrong_arguments(options: dict[str, Any], message: str) -> None:
    module = Both()
    options = {"layers": "plain"} | options
    with pytest.raises(ArgumentError, match=message), regard.watch(module, **options):
        module(X)


def test_no_module() -> None:
    with (
        pytest.raises(ArgumentError, match="model must be a torch.nn.Module, got function"),
        regard.watch(kernel),
    ):
        pass
