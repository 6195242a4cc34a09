"""The folds as operators of torch: torch's own checks of them, and compiled graphs against eager calls."""

from dataclasses import fields, is_dataclass

import pytest
import torch
from torch import Tensor
from torch._subclasses import FakeTensorMode
from torch.fx.experimental.proxy_tensor import make_fx

import regard as rg
from regard.engines import native, torch_ops
from regard.errors import EngineError, MaskError, ShapeError
from regard.masks import Causal
from regard.shapes import sizes_of
from regard.spec import Spec
from regard.spec.bias import Logarithm, ScoreMod
from regard.statistics.observation import COLUMNS, OFFSETS, ROWS
from regard.statistics.table import Wanted, wanted

SIZES = (2, 6, 3, 5, 11, 7, 13)  # batch, heads, kv_heads, queries, keys, dim, value_dim


def tensors(dtype=torch.float32, grad=False):
    batch, heads, kv_heads, queries, keys, dim, value_dim = SIZES
    shapes = (batch, heads, queries, dim), (batch, kv_heads, keys, dim), (batch, kv_heads, keys, value_dim)
    return [torch.randn(shape, dtype=dtype).requires_grad_(grad) for shape in shapes]


# --- torch's own checks ------------------------------------------------------------------------------------

WANTED = {
    "all": wanted(
        [
            *ROWS,
            *COLUMNS,
            *OFFSETS,
            rg.statistics.group("odd", torch.arange(11) % 2 == 1),
            rg.statistics.matching("same", torch.arange(11) % 3, torch.arange(11) % 2, high=4),
        ],
        top=2,
        cell=4,
    ),
    "output": Wanted(),
    "dropout": Wanted(dropout=0.3, seed=5),
    "entropy": wanted(["entropy"], output=False),
}
SPECS = {
    "plain": {},
    "mask": {"mask": rg.padding(torch.tensor([11, 7])) & (rg.causal() | rg.near(1)), "softcap": 3.0},
    "bias": {"mask": rg.dense(keep=torch.rand(5, 11) < 0.5), "bias": torch.randn(5, 11), "scale": 0.3},
    "alibi": {"bias": rg.alibi(torch.rand(6)), "align": "start"},
    "relative": {"bias": rg.relative(torch.randn(6, 5)), "mask": rg.random_blocks(2, block=2)},
}


def packed(inputs, keywords, want, engine="tiles"):
    return torch_ops._packed(engine, Spec.of(sizes_of(*inputs), **keywords), want)


no_native = pytest.mark.skipif(native.why_not() is not None, reason=f"the native engine: {native.why_not()}")
on_both_engines = pytest.mark.parametrize("engine", ["tiles", pytest.param("native", marks=no_native)])
on_every_spec = pytest.mark.parametrize("keywords", SPECS.values(), ids=SPECS.keys())


@pytest.mark.parametrize(
    "want, engine",
    [pytest.param(want, "tiles", id=f"tiles-{name}") for name, want in WANTED.items()]
    + [  # the native engine drops no weights
        pytest.param(want, "native", id=f"native-{name}", marks=no_native)
        for name, want in WANTED.items()
        if not want.dropout
    ],
)
@on_every_spec
def test_opcheck_of_the_rows(keywords, want, engine):
    inputs = tensors(grad=True)
    bias, *rest = packed(inputs, keywords, want, engine)
    arguments = (*inputs, None if bias is None else bias.clone().requires_grad_(), *rest)
    torch.library.opcheck(torch.ops.regard.rows.default, arguments)


@on_both_engines
@on_every_spec
def test_opcheck_of_the_gradient(keywords, engine):
    inputs, want = tensors(), WANTED["all"]
    arguments = packed(inputs, keywords, want, engine)
    state = dict(zip(torch_ops._names(want, 13), torch.ops.regard.rows(*inputs, *arguments), strict=True))
    sums = [state["m"], state["l"], *(torch.randn_like(state[name]) for name in ("u", "r", "o", "c"))]
    needed = [True, True, False, arguments[0] is not None]
    arguments = (*inputs, *arguments, sums, "u r o c", needed)
    torch.library.opcheck(torch.ops.regard.rows_backward.default, arguments)


@on_both_engines
@on_every_spec
def test_opcheck_of_the_columns(keywords, engine):
    query, key, value = tensors()
    arguments = packed((query, key, value), keywords, WANTED["all"], engine)
    m, l = torch.randn(2, *query.shape[:3]).exp()
    torch.library.opcheck(torch.ops.regard.columns.default, (query, key, m, l, *arguments))


def test_a_wrong_fake_kernel_would_be_found():
    with torch.library._scoped_library("regard_test", "FRAGMENT"):

        @torch.library.custom_op("regard_test::wrong", mutates_args=())
        def wrong(x: Tensor) -> Tensor:
            return x.clone()

        wrong.register_fake(lambda x: x.new_empty(x.shape[0] + 1))
        with pytest.raises(torch.testing._internal.optests.OpCheckError, match="faketensor"):
            torch.library.opcheck(wrong, (torch.randn(3),))


# --- compiled graphs ---------------------------------------------------------------------------------------


def found(result):
    """Every tensor of a result, by name."""
    if isinstance(result, Tensor):
        return {"output": result}
    parts = {f.name: getattr(result, f.name) for f in fields(result)}
    inner = [(n, part) for n, part in parts.items() if is_dataclass(part) or isinstance(part, dict)]
    nested = {
        f"{n}.{m}": t
        for n, part in inner
        for m, t in (part if isinstance(part, dict) else vars(part)).items()
    }
    return {name: t for name, t in (parts | nested).items() if isinstance(t, Tensor)}


def graded(call, inputs):
    """Results of a call and the gradients of one smooth function of them all."""
    torch.manual_seed(3)  # of dropout
    leaves = [t.detach().clone().requires_grad_(t.is_floating_point()) for t in inputs]
    results = found(call(*leaves))
    waves = [
        t.double() * torch.arange(1, t.numel() + 1).view(t.shape).sin()
        for t in results.values()
        if t.requires_grad
    ]
    total = sum(wave.where(wave.isfinite(), 0).sum() for wave in waves)
    return results, torch.autograd.grad(total, [leaf for leaf in leaves if leaf.requires_grad])


OUTSIDE = rg.near(3) & ~rg.prefix(torch.tensor([2, 5])) | rg.dense(keep=torch.rand(5, 11) < 0.3)
CALLS = {
    "sdpa's path": (lambda q, k, v: rg.attend(q, k, v), ()),
    "causal": (lambda q, k, v: rg.attend(q, k, v, mask=rg.causal(), align="start"), ()),
    "a mask outside": (lambda q, k, v: rg.attend(q, k, v, mask=OUTSIDE, softcap=3.0), ()),
    "numbers inside": (lambda q, k, v: rg.attend(q, k, v, mask=rg.random_blocks(2, block=2) | rg.strided(3)), ()),
    "padding inside": (
        lambda q, k, v, n: rg.attend(q, k, v, mask=rg.padding(n) & rg.causal()),
        (torch.tensor([11, 8]),),
    ),
    "documents and tokens inside": (
        lambda q, k, v, i, t: rg.attend(q, k, v, mask=rg.documents(i) | rg.global_tokens(t)),
        (torch.arange(22).view(2, 11) // 3, torch.tensor([4, 1])),
    ),
    "dense inside": (lambda q, k, v, m: rg.attend(q, k, v, mask=rg.dense(drop=m)), (torch.rand(5, 11) < 0.5,)),
    "dense bias": (lambda q, k, v, b: rg.attend(q, k, v, bias=b, mask=rg.prefix(9)), (torch.randn(5, 11),)),
    "alibi, sink": (
        lambda q, k, v, b, s: rg.attend(q, k, v, bias=rg.alibi(b), sink_logit=s),
        (torch.rand(6), torch.randn(6)),
    ),
    "relative": (lambda q, k, v, b: rg.attend(q, k, v, bias=rg.relative(b), scale=0.3), (torch.randn(6, 5),)),
    "logarithm": (lambda q, k, v: rg.attend(q.exp(), k.exp(), v, bias=Logarithm(), scale=1.0), ()),
    "dropout": (lambda q, k, v: rg.attend(q, k, v, dropout=0.3), ()),
    "everything": (lambda q, k, v: rg.observe(q, k, v, mask=rg.causal(), top=3, map=4), ()),
    "choices": (
        lambda q, k, v, s, g: rg.observe(
            q, k, v, sink_logit=s, engine="tiles",
            statistics=["entropy", "sink", rg.statistics.first(2), rg.statistics.group("some", g)],
        ),
        (torch.randn(6), torch.rand(2, 11) < 0.5),
    ),
}  # fmt: skip


@pytest.mark.parametrize("call, more", CALLS.values(), ids=CALLS.keys())
def test_compiled_without_a_break_and_the_same_numbers(call, more):
    torch._dynamo.reset()
    inputs = [*tensors(), *more]
    want, want_grads = graded(call, inputs)
    got, got_grads = graded(torch.compile(call, fullgraph=True, backend="aot_eager"), inputs)
    assert got.keys() == want.keys()
    for name, tensor in want.items():
        assert got[name].requires_grad == tensor.requires_grad, name
        torch.testing.assert_close(got[name], tensor)
    for got_grad, want_grad in zip(got_grads, want_grads, strict=True):
        torch.testing.assert_close(got_grad, want_grad)


@pytest.mark.parametrize("dtype", [torch.float64, torch.bfloat16])
def test_other_precisions_compiled(dtype):
    torch._dynamo.reset()
    call = lambda q, k: rg.observe(q, k, mask=rg.near(3), map=4)  # noqa: E731
    inputs = tensors(dtype)[:2]
    want, want_grads = graded(call, inputs)
    got, got_grads = graded(torch.compile(call, fullgraph=True, backend="aot_eager"), inputs)
    torch.testing.assert_close(got, want)
    torch.testing.assert_close(got_grads, want_grads)


class Layer(torch.nn.Module):
    """Attention with all that can be learned, and its entropy in the loss."""

    def __init__(self):
        super().__init__()
        self.projections = torch.nn.Linear(24, 72)
        self.table, self.sink = torch.nn.Parameter(torch.randn(3, 9)), torch.nn.Parameter(torch.randn(3))
        self.mask = rg.causal() & rg.near(4)

    def forward(self, x, lengths):
        query, key, value = (t.unflatten(2, (3, 8)).transpose(1, 2) for t in self.projections(x).chunk(3, -1))
        mask, bias = self.mask & rg.padding(lengths), rg.relative(self.table)
        output = rg.attend(query, key, value, mask=mask, bias=bias, sink_logit=self.sink, softcap=5.0)
        entropy = rg.observe(query, key, mask=self.mask, statistics=["entropy"]).entropy
        return output.transpose(1, 2).flatten(2), entropy.mean()


def step(model, layer, *inputs):
    layer.zero_grad()
    output, entropy = model(*inputs)
    (output.square().sum() + entropy).backward()
    return [output.detach(), entropy.detach(), *(p.grad.clone() for p in layer.parameters())]


@pytest.mark.parametrize("dynamic, backend", [(None, "inductor"), (True, "aot_eager")])
def test_a_layer_at_several_lengths(dynamic, backend):
    torch._dynamo.reset()
    layer = Layer()
    model = torch.compile(layer, fullgraph=True, dynamic=dynamic, backend=backend)
    for tokens, lengths in ((11, [11, 7]), (11, [3, 5]), (13, [13, 1]), (17, [2, 17])):
        inputs = torch.randn(2, tokens, 24), torch.tensor(lengths)
        torch.testing.assert_close(step(model, layer, *inputs), step(layer, layer, *inputs))


def test_export():
    layer, x = Layer(), torch.randn(2, 11, 24)
    program = torch.export.export(layer, (x, torch.tensor([11, 7])), strict=False)
    lengths = torch.tensor([4, 9])
    torch.testing.assert_close(program.module()(x, lengths), layer(x, lengths))


# --- what a graph cannot hold ------------------------------------------------------------------------------


def test_a_mask_built_in_a_graph_and_used_outside_of_it():
    built = torch.compile(lambda n: (n + 1, rg.padding(n) & rg.causal()), backend="eager")(
        torch.tensor([3, 1])
    )
    assert built[1] == rg.padding(torch.tensor([3, 1])) & rg.causal()
    assert built[1].tile(3, 4, 0, 2).name == "NONE"


def test_content_is_checked_when_the_graph_runs():
    call = torch.compile(lambda q, k, v, n: rg.attend(q, k, v, mask=rg.padding(n)), backend="aot_eager")
    with pytest.raises(MaskError, match="real tokens must end within the sequence, got an end at 12"):
        call(*tensors(), torch.tensor([3, 12]))
    with pytest.raises(ShapeError, match="one dim, got 7 and 13"):
        torch.ops.regard.rows(*(tensors()[i] for i in (0, 2, 2)), *packed(tensors(), {}, Wanted()))


@pytest.mark.parametrize(
    "keywords, message",
    [
        ({"bias": ScoreMod(lambda score, b, h, q, k: score)}, "a bias of type ScoreMod is Python code"),
        ({"mask": type("Own", (Causal,), {})()}, "is Python code, which cannot be serialized"),
    ],
)
def test_python_code_is_refused_with_the_way_out(keywords, message):
    with pytest.raises(EngineError, match=f"{message}.*outside of the compiled function"):
        packed(tensors(), keywords, Wanted())


def test_an_engine_asked_for_by_name_never_falls_back():
    arguments = packed(tensors(), {}, Wanted(), engine="abacus")
    with pytest.raises(EngineError, match="got 'abacus'"):
        torch.ops.regard.rows(*tensors(), *arguments)


def test_a_second_derivative_is_an_error():
    inputs = tensors(torch.float64, grad=True)
    sums = torch.ops.regard.rows(*inputs, *packed(inputs, {}, Wanted()))
    (grad,) = torch.autograd.grad(sums[2].square().sum(), inputs[0], create_graph=True)
    with pytest.raises(EngineError, match="attention's gradient can be taken once.*outside of the compiled"):
        grad.sum().backward()
    (grad,) = torch.autograd.grad(sums[1].sum(), inputs[0], create_graph=True)
    with pytest.raises(EngineError, match="attention's gradient can be taken once.*outside of the compiled"):
        torch.autograd.grad(grad.sum() + inputs[0].sum(), inputs[0])


# --- tensors without numbers --------------------------------------------------------------------------------


def test_a_graph_of_make_fx_holds_attention_and_not_its_numbers():
    call = lambda q: rg.observe(q, q, q, mask=rg.near(1), map=2)  # noqa: E731
    first, other = torch.randn(1, 2, 5, 4), torch.randn(1, 2, 5, 4)
    graph = make_fx(lambda q: list(found(call(q)).values()))(first)
    torch.testing.assert_close(graph(other), list(found(call(other)).values()))


def test_fake_and_meta_tensors_give_their_like():
    real = rg.observe(*tensors(), mask=rg.padding([11, 7]), map=2)
    with FakeTensorMode() as mode:
        seen = rg.observe(*tensors(), mask=rg.padding(torch.tensor([11, 7])), map=2)
        assert rg.attend(*tensors()).shape == real.output.shape
    assert rg.attend(*(mode.from_tensor(t) for t in tensors())).shape == real.output.shape
    nowhere = rg.observe(*(t.to("meta") for t in tensors()), mask=rg.padding([11, 7]), map=2)
    for other in map(found, (seen, nowhere)):
        assert {name: (t.shape, t.dtype) for name, t in other.items()} == {
            name: (t.shape, t.dtype) for name, t in found(real).items()
        }


@pytest.mark.parametrize("change", [Tensor.to_sparse, lambda t: torch.nested.nested_tensor(list(t))])
def test_what_is_not_stored_as_an_array_is_refused(change):
    with pytest.raises(ShapeError, match="query must be a dense tensor, got a nested or sparse one"):
        rg.attend(*map(change, tensors()))


@pytest.mark.parametrize("backend", ["eager", "inductor"])
def test_vmap_within_a_graph(backend):
    query, key, value = torch.randn(1, 4, 5, 3), torch.randn(1, 2, 7, 3), torch.randn(1, 2, 7, 3)
    mask, queries = rg.near(2) & rg.causal(), torch.randn(3, *query.shape)

    def one(query):
        seen = rg.observe(query, key, value, mask=mask, map=4)
        return seen.output, seen.entropy, seen.received, seen.map.total

    found = torch.compile(torch.vmap(one), backend=backend, fullgraph=True)(queries)
    for tensor, *samples in zip(found, *map(one, queries), strict=True):
        torch.testing.assert_close(tensor, torch.stack(samples))
