"""Second derivatives and forward-mode ones: against finite differences, a dense softmax, and torch.func of both."""

import pytest
import torch
from torch.func import functional_call, hessian, jacfwd, jacrev, jvp, vjp, vmap

import regard as rg
from helpers.cases import Case, draw_tensors, tiles_of, weight_error
from regard import reference
from regard.engines import ENGINES
from regard.errors import EngineError, RegardError
from regard.shapes import sizes_of
from regard.spec import Spec
from regard.spec.bias import Logarithm, ScoreMod

SIZES = (2, 4, 2, 3, 5, 3, 2)  # batch, heads, kv_heads, queries, keys, dim, value_dim
LINEAR = ("distance", "position", "spread", "first", "self_mass", "previous", "local")
SMOOTH = ("output", "lse", "entropy", "effective_keys", "sum_squares", *LINEAR)
GROUP = rg.statistics.group("odd", torch.arange(5) % 2 == 1)


def leaves(*sizes):
    return [tensor.requires_grad_() for tensor in draw_tensors(*sizes)]


def everything(query, key, value, **spec):
    """Every differentiable result; what an empty row holds is a constant, and −inf has no finite difference."""
    asked = [*SMOOTH[1:], GROUP] + (["sink"] if "sink_logit" in spec else [])
    seen = rg.observe(query, key, value, statistics=asked, **spec)
    results = [getattr(seen, name) for name in asked if isinstance(name, str) and name != "lse"]
    return seen.output, seen.lse.where(seen.lse.isfinite(), 0), seen.groups["odd"], *results


def check(function, tensors):
    with tiles_of(2, 4):
        assert torch.autograd.gradcheck(function, tensors, check_forward_ad=True, fast_mode=True)
        assert torch.autograd.gradgradcheck(function, tensors, check_fwd_over_rev=True, fast_mode=True)


MASKS = {
    "all": None,
    "causal": rg.causal(),
    "empty rows": rg.near(1) & rg.prefix([2, 5]),
    "scattered": rg.dense(keep=torch.arange(15).view(3, 5) % 3 == 0),
}


@pytest.mark.parametrize("mask", MASKS.values(), ids=MASKS.keys())
def test_of_query_key_and_value(mask):
    check(lambda *t: everything(*t, mask=mask), leaves(*SIZES))


BLOCKING = torch.randn(3, 5).double().masked_fill(torch.eye(3, 5) > 0, -torch.inf)


@pytest.mark.parametrize(
    "spec",
    [
        {"softcap": 1.5, "align": "start"},
        {"bias": ScoreMod(lambda s, b, h, q, k: torch.where(k != q, s * 0.5 + h * s.tanh(), -torch.inf))},
        {"bias": BLOCKING, "softcap": 3.0},
        {"scale": 0.0, "mask": rg.causal()},
    ],
    ids=["softcap", "score_mod", "blocking bias", "scale 0"],
)
def test_under_every_kind_of_spec(spec):
    check(lambda *t: everything(*t, **spec), leaves(*SIZES))


LEARNED = {
    "dense": (lambda b: {"bias": b}, (2, 4, 3, 5)),
    "a row of keys": (lambda b: {"bias": b, "softcap": 2.0}, (1, 5)),
    "alibi": (lambda b: {"bias": rg.alibi(b)}, (4,)),
    "relative": (lambda b: {"bias": rg.relative(b), "mask": rg.near(1)}, (4, 5)),
    "one table for all": (lambda b: {"bias": rg.relative(b)}, (1, 3)),
    "sink": (lambda b: {"sink_logit": b, "mask": rg.near(1) & rg.prefix(4)}, (4,)),
}


@pytest.mark.parametrize("make, shape", LEARNED.values(), ids=LEARNED.keys())
def test_of_what_is_learned(make, shape):
    learned = torch.randn(shape, dtype=torch.float64, requires_grad=True)
    check(lambda b, *t: everything(*t, **make(b)), (learned, *leaves(*SIZES)))


def test_of_linear_attentions_weights():
    query, key, value = (t.detach().abs().requires_grad_() for t in leaves(*SIZES))
    check(
        lambda *t: rg.observe(*t, bias=Logarithm(), scale=1.0, mask=rg.causal()).output, (query, key, value)
    )


@pytest.mark.parametrize("mask", [None, rg.causal(), rg.near(1)], ids=["all", "causal", "near"])
@pytest.mark.parametrize("align", ["start", "end"])
def test_of_attend_on_any_path(mask, align):
    for value_dim in (3, 2):
        check(lambda *t: rg.attend(*t, mask=mask, align=align), leaves(2, 4, 2, 5, 5, 3, value_dim))
    check(lambda *t: rg.weights(*t, mask=mask, align=align), leaves(2, 4, 2, 5, 5, 3, 2)[:2])


def test_of_dropout():
    def call(*tensors):
        torch.manual_seed(5)
        return rg.attend(*tensors, mask=rg.causal(), dropout=0.4)

    check(call, leaves(*SIZES))


def dense(query, key, value, mask=None, bias=None):
    """The textbook formula, differentiable as often as one likes."""
    spec = Spec.of(sizes_of(query, key, value), mask=mask, bias=bias)
    group = query.shape[1] // key.shape[1]
    scores = query @ key.repeat_interleave(group, 1).mT * spec.scale
    scores = scores if bias is None else scores + bias
    if mask is not None:
        keep = mask.dense(*scores.shape[2:], offset=spec.offset)
        scores = scores.masked_fill(~keep, -torch.inf)
    return scores.softmax(-1) @ value.repeat_interleave(group, 1)


def curvature(function, tensors):
    """A gradient of a gradient, every part of it along one direction."""
    torch.manual_seed(1)
    grads = torch.autograd.grad(function(*tensors).double().square().sum(), tensors, create_graph=True)
    along = sum((g.double() * torch.randn(g.shape, dtype=torch.float64)).sum() for g in grads)
    return torch.autograd.grad(along, tensors)


def test_what_was_dropped_silently():
    query, key, value = leaves(1, 2, 2, 5, 5, 4, 4)
    for verb in (
        lambda *t: rg.observe(*t).output,
        lambda *t: rg.attend(*t),
        lambda *t: rg.attend(*t, softcap=1e9),
    ):
        (grad,) = torch.autograd.grad(verb(query, key, value).square().sum(), query, create_graph=True)
        (want,) = torch.autograd.grad(dense(query, key, value).square().sum(), query, create_graph=True)
        got, right = (torch.autograd.grad(g.square().sum(), query)[0] for g in (grad, want))
        torch.testing.assert_close(got, right)


@pytest.mark.parametrize("engine", [engine.name for engine in ENGINES])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_in_every_engine(engine, dtype):
    exact = leaves(2, 4, 2, 13, 13, 8, 8)
    low = [t.detach().to(dtype).requires_grad_() for t in exact]
    exact = [t.detach().double().requires_grad_() for t in low]
    call = lambda *t: rg.observe(*t, mask=rg.causal(), engine=engine, statistics=["entropy"]).output  # noqa: E731
    try:
        got = curvature(call, low)
    except EngineError as refused:
        pytest.skip(str(refused))
    want = curvature(lambda *t: dense(*t, mask=rg.causal()), exact)
    rounding = curvature(lambda *t: dense(*t, mask=rg.causal()), low)
    relative = 4 * weight_error(Case(*exact, {"mask": rg.causal()}), dtype)  # products of up to four weights
    for g, w, naive in zip(got, want, rounding, strict=True):
        assert g.dtype == dtype
        budget = 2 * (naive.double() - w).abs().max() + relative * w.abs().max()
        assert (g.double() - w).abs().max() <= budget


def test_nothing_leaks_from_what_is_blocked():
    query, key, value = leaves(*SIZES)
    hidden = torch.tensor([False, True, False, False, True])
    mask, broken = rg.dense(keep=~hidden[None].expand(3, 5)), []
    for tensor in (key, value):
        other = tensor.detach().clone()
        other[:, :, hidden] = torch.tensor([torch.nan, torch.inf], dtype=other.dtype)[:, None]
        broken.append(other.requires_grad_())
    call = lambda *t: rg.attend(*t, mask=mask)  # noqa: E731
    for got, want in zip(
        curvature(call, (query, *broken)), curvature(call, (query, key, value)), strict=True
    ):
        assert got.isfinite().all()
        torch.testing.assert_close(got, want)


def test_empty_rows_give_none():
    tensors = leaves(*SIZES)
    call = lambda *t: torch.cat([r.flatten() for r in everything(*t, mask=rg.prefix([0, 3]))])  # noqa: E731
    for grad in curvature(call, tensors):
        assert grad.isfinite().all() and not grad[0].any() and grad[1].any()


# --- torch.func ---------------------------------------------------------------------------------------------

TRANSFORMS = {
    "jacrev": lambda f: jacrev(f, (0, 1, 2)),
    "jacfwd": lambda f: jacfwd(f, (0, 1, 2)),
    "jacrev of jacrev": lambda f: jacrev(jacrev(lambda *t: f(*t).square().sum())),
    "hessian": lambda f: hessian(lambda *t: f(*t).square().sum(), (0, 1)),
    "jvp": lambda f: lambda *t: jvp(f, t, tuple(map(torch.cos, t))),
    "vjp": lambda f: lambda *t: vjp(f, *t)[1](torch.ones_like(f(*t))),
    "vmap": lambda f: vmap(lambda q: f(q[None], *CONSTANTS)[0]).__call__,
    "vmap of grad": lambda f: (
        lambda *t: vmap(
            torch.func.grad(lambda q, k, v: f(q[None], k[None], v[None]).square().sum(), (0, 1, 2))
        )(*t)
    ),
}
CONSTANTS = [t[:1] for t in draw_tensors(2, 4, 2, 5, 5, 3, 2)[1:]]
CALLS = {
    "attend": (lambda *t: rg.attend(*t), dense),
    "masked": (lambda *t: rg.attend(*t, mask=rg.near(2)), lambda *t: dense(*t, mask=rg.near(2))),
    "causal": (
        lambda *t: rg.attend(*t, mask=rg.causal(), align="start"),
        lambda *t: dense(*t, mask=rg.causal()),
    ),
    "observe": (
        lambda *t: rg.observe(*t, mask=rg.causal(), map=2).output,
        lambda *t: dense(*t, mask=rg.causal()),
    ),
}


@pytest.mark.parametrize("call, truth", CALLS.values(), ids=CALLS.keys())
@pytest.mark.parametrize("name", TRANSFORMS)
def test_a_transform_of_attention_is_that_of_the_formula(name, call, truth):
    tensors, transform = draw_tensors(2, 4, 2, 5, 5, 3, 2), TRANSFORMS[name]
    tensors = tensors[:1] if name == "vmap" else tensors
    torch.testing.assert_close(transform(call)(*tensors), transform(truth)(*tensors))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_everything_that_is_observed_below_vmap(dtype):
    samples = [torch.randn(3, *shape, dtype=dtype) for shape in ((2, 4, 5, 3), (2, 2, 5, 3), (2, 2, 5, 2))]
    slopes = torch.rand(3, 4, dtype=dtype)

    def call(query, key, value, slope):
        seen = rg.observe(query, key, value, mask=rg.causal(), bias=rg.alibi(slope), map=3, top=2)
        picture = (seen.map.total, seen.map.peak, seen.map.rows)
        return (
            seen.output,
            seen.entropy,
            seen.argmax,
            seen.received,
            seen.received_max,
            *picture,
            *vars(seen.top).values(),
        )

    for axis in (0, 1):
        moved = [t.movedim(0, axis) for t in samples]
        got = vmap(call, in_dims=(axis, axis, axis, 0))(*moved, slopes)
        want = [torch.stack(parts) for parts in zip(*map(call, *samples, slopes), strict=True)]
        torch.testing.assert_close(list(got), want)


def test_the_received_mass_has_no_tangent():
    tensors = draw_tensors(*SIZES)
    received, tangent = jvp(lambda *t: rg.observe(*t).received, tensors, tensors)
    torch.testing.assert_close(received, rg.observe(*tensors).received)
    assert not tangent.any()


def test_a_functional_call_of_a_layer():
    layer = rg.nn.MultiHeadAttention(8, 2, mask=rg.causal(), sink=True).double()
    weights, x = dict(layer.named_parameters()), torch.randn(3, 5, 8, dtype=torch.float64)

    def loss(parameters, sample):
        return functional_call(layer, parameters, (sample[None],)).square().sum()

    found = vmap(torch.func.grad(loss), in_dims=(None, 0))(weights, x)
    for i in range(3):
        want = torch.autograd.grad(layer(x[i : i + 1]).square().sum(), list(weights.values()))
        torch.testing.assert_close([found[name][i] for name in weights], list(want))


def test_a_reference_under_the_same_transforms():
    query, key, value = draw_tensors(*SIZES)
    spec = Case(query, key, value, {"mask": rg.causal()}).spec
    (got,) = jacfwd(lambda q: rg.weights(q, key, mask=rg.causal()), (0,))(query)
    want = jacrev(
        lambda q: dense(q, key, torch.eye(5, dtype=torch.float64).expand(2, 2, 5, 5), mask=rg.causal())
    )(query)
    torch.testing.assert_close(got, want)
    torch.testing.assert_close(rg.weights(query, key, mask=rg.causal()), reference.weights(query, key, spec))


# --- what is refused ----------------------------------------------------------------------------------------


def test_a_third_derivative_is_refused():
    query, key, value = leaves(*SIZES)
    (first,) = torch.autograd.grad(rg.observe(query, key, value).entropy.sum(), query, create_graph=True)
    (again,) = torch.autograd.grad(first.square().sum(), query, create_graph=True)
    with pytest.raises(EngineError, match=r"can be differentiated twice.*third derivative"):
        torch.autograd.grad(again.sum(), query)
    with pytest.raises(EngineError, match=r"gradient of a forward-mode one"):
        jacrev(jacfwd(lambda q: rg.attend(q, key.detach(), value.detach())))(query.detach())


def test_a_score_mod_that_would_lose_a_gradient_is_refused():
    query, key, value = draw_tensors(*SIZES)
    table = torch.randn(3, 5, dtype=torch.float64, requires_grad=True)
    bias = ScoreMod(lambda score, b, h, q, k: score + table[q, k])
    with pytest.raises(EngineError, match=r"score_mod must hold no tensor that requires a gradient"):
        rg.attend(query.requires_grad_(), key, value, bias=bias)
    with torch.no_grad():
        torch.testing.assert_close(
            rg.attend(query, key, value, bias=bias), dense(query, key, value, bias=table)
        )
    with pytest.raises(EngineError, match=r"comes from torch.func"):
        code = lambda t: ScoreMod(lambda score, b, h, q, k: score + t[q, k])  # noqa: E731
        vmap(lambda t: rg.attend(query, key, value, bias=code(t)))(table.detach().expand(2, 3, 5))


def test_a_compiled_call_has_one_derivative():
    torch._dynamo.reset()
    tensors = leaves(*SIZES)
    call = torch.compile(lambda *t: rg.attend(*t, mask=rg.near(1)), backend="aot_eager")
    (grad,) = torch.autograd.grad(call(*tensors).square().sum(), tensors[0], create_graph=True)
    with pytest.raises(RuntimeError, match=r"does not currently support double backward"):
        torch.autograd.grad(grad.sum(), tensors[0])


def refused_below_vmap(call, *samples, **how):
    with pytest.raises(RegardError) as caught:
        vmap(call, **how)(*samples)
    return str(caught.value)


@pytest.mark.parametrize(
    "make, content",
    [
        (lambda t: {"mask": rg.padding(t)}, torch.tensor([[3, 5], [4, 2]])),
        (lambda t: {"mask": rg.documents(t)}, torch.zeros(2, 5, dtype=torch.int64)),
        (lambda t: {"mask": rg.global_tokens(t)}, torch.tensor([[3], [4]])),
        (lambda t: {"mask": rg.near(t)}, torch.tensor([3, 4])),
        (lambda t: {"mask": rg.dense(keep=t)}, torch.rand(2, 3, 5) < 0.5),
        (lambda t: {"mask": rg.dense(additive=t)}, torch.zeros(2, 3, 5)),
    ],
    ids=["padding", "documents", "tokens", "near", "dense", "additive"],
)
def test_masks_whose_numbers_cannot_be_read_and_those_that_can(make, content):
    query, key, value = draw_tensors(*SIZES)
    call = lambda t: rg.attend(query, key, value, **make(t))  # noqa: E731
    assert "got one within torch.vmap: build it outside" in refused_below_vmap(call, content)
    got, tangent = jvp(lambda q: rg.attend(q, key, value, **make(content[0])), (query,), (query,))
    torch.testing.assert_close(got, rg.attend(query, key, value, **make(content[0])))
    assert tangent.any()


def test_dropout_below_vmap_is_drawn_once():
    query, key, value = draw_tensors(*SIZES)
    call = lambda q: rg.attend(q, key, value, dropout=0.5)  # noqa: E731
    for how in ("error", "different"):
        assert 'randomness="same"' in refused_below_vmap(call, query.expand(3, *query.shape), randomness=how)
    same = vmap(call, randomness="same")(query.expand(3, *query.shape))
    assert torch.equal(same[0], same[1]) and torch.equal(same[0], same[2])


def test_what_no_transform_can_make():
    query = torch.randn(1, 2, 3, 4)
    with pytest.raises(EngineError, match=r"below torch.func.functionalize: call attention outside"):
        torch.func.functionalize(lambda q: rg.attend(q, q, q))(query)
    with pytest.raises(EngineError, match=r"a graph of a transform of torch.func"):
        torch.func.linearize(lambda q: rg.attend(q, q, q), query)
    with pytest.raises(EngineError, match=r"it looks at the numbers, which torch.vmap hides"):
        vmap(lambda q: rg.observe(q, q, q, engine="sdpa", statistics=["lse"]).lse)(query[None])
