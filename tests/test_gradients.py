"""Gradients: against finite differences and a dense softmax, with empty rows, dropout, and in O(n) memory."""

import subprocess
import sys

import pytest
import torch

import regard as rg
from helpers.cases import Case, draw_tensors, tiles_of
from regard import reference
from regard.spec.bias import Dense, ScoreMod
from regard.statistics.table import Wanted

LINEAR = ("distance", "position", "spread", "first", "self_mass", "previous", "local")
SMOOTH = ("output", "lse", "entropy", "effective_keys", "sum_squares", *LINEAR)
SIZES = (2, 6, 3, 5, 7, 3, 2)  # batch, heads, kv_heads, queries, keys, dim, value_dim


def gradcheck(function, tensors, *, fast=True):
    """Against finite differences: along random directions, or (not fast) for every element."""
    return torch.autograd.gradcheck(function, tensors, fast_mode=fast)


def leaves(*sizes):
    return [tensor.requires_grad_() for tensor in draw_tensors(*sizes)]


def everything(query, key, value, **spec):
    """Every differentiable result; what an empty row holds is a constant, and −inf has no finite difference."""
    observation = rg.observe(query, key, value, statistics=[*SMOOTH[1:], "sink", GROUP], **spec)
    results = [getattr(observation, name) for name in SMOOTH[2:] if name != "output"]
    lse = observation.lse.where(observation.lse.isfinite(), 0)
    if "sink_logit" in spec:  # without one it is a constant
        results.append(observation.sink)
    return observation.output, lse, observation.groups["odd"], *results


GROUP = rg.statistics.group("odd", torch.arange(7) % 2 == 1)
MASKS = {
    "all": None,
    "causal": rg.causal(),
    "band with empty rows": rg.near(1) & rg.prefix([4, 7]),
    "padding": rg.padding([5, 3], start=[0, 2]),
    "scattered": rg.dense(keep=torch.arange(35).view(5, 7) % 3 == 0),
}


@pytest.mark.parametrize("mask", MASKS.values(), ids=MASKS.keys())
def test_query_key_and_value(mask):
    tensors = leaves(*SIZES)
    with tiles_of(2, 4):
        assert gradcheck(lambda *t: everything(*t, mask=mask), tensors)


def test_every_element_of_a_small_call():
    tensors = leaves(1, 2, 1, 3, 7, 2, 1)
    with tiles_of(2, 4):
        assert gradcheck(lambda *t: everything(*t, mask=rg.near(1) & rg.prefix(6)), tensors, fast=False)


@pytest.mark.parametrize(
    "spec",
    [
        {"softcap": 1.5, "align": "start"},
        {"sink_logit": torch.linspace(-2, 2, 6, dtype=torch.float64), "mask": rg.near(1) & rg.prefix(4)},
        {
            "bias": ScoreMod(
                lambda score, b, h, q, k: torch.where(k != q, score * 0.5 + h * score.tanh(), -torch.inf)
            )
        },
        {"bias": torch.randn(5, 7).double().masked_fill(torch.eye(5, 7) > 0, -torch.inf), "softcap": 3.0},
        {"scale": 0.0, "mask": rg.causal()},
    ],
    ids=["softcap", "sink", "score_mod", "blocking bias", "scale 0"],
)
def test_under_every_kind_of_spec(spec):
    tensors = leaves(2, 6, 3, 5, 7, 3, 2)
    with tiles_of(2, 4):
        assert gradcheck(lambda *t: everything(*t, **spec), tensors)


@pytest.mark.parametrize(
    "shape", [(2, 6, 5, 7), (1, 6, 5, 7), (2, 1, 1, 7), (1, 1, 5, 1), (1, 6, 1, 1), (5, 7), (1, 7)]
)
@pytest.mark.parametrize("mask", [None, rg.near(1) & rg.prefix(4)], ids=["all", "empty rows"])
def test_a_dense_bias(shape, mask):
    query, key, value = draw_tensors(*SIZES)
    bias = torch.randn(shape, dtype=torch.float64, requires_grad=True)
    with tiles_of(2, 4):
        assert gradcheck(lambda b: everything(query, key, value, bias=b, mask=mask), bias)
        assert gradcheck(lambda b: rg.attend(query, key, value, bias=Dense(b), softcap=2.0), bias)


@pytest.mark.parametrize("mask", [None, rg.near(1) & rg.prefix(4)], ids=["all", "empty rows"])
def test_slopes_tables_and_sinks(mask):
    query, key, value = leaves(*SIZES)
    with tiles_of(2, 4):
        for make, shape in (
            (rg.alibi, (6,)),
            (rg.relative, (6, 5)),
            (rg.relative, (1, 3)),
            (rg.relative, (6, 1)),
        ):
            values = torch.randn(shape, dtype=torch.float64, requires_grad=True)
            assert gradcheck(
                lambda q, b, make=make: everything(q, key.detach(), value.detach(), bias=make(b), mask=mask),
                (query, values),
            )
        sink = torch.randn(6, dtype=torch.float64, requires_grad=True)
        assert gradcheck(
            lambda q, s: everything(q, key.detach(), value.detach(), sink_logit=s, mask=mask), (query, sink)
        )
        assert gradcheck(lambda s: rg.attend(query.detach(), key, value, sink_logit=s), sink)


@pytest.mark.parametrize("mask", [None, rg.causal()], ids=["all", "causal"])
@pytest.mark.parametrize("align", ["start", "end"])
def test_attend_on_any_path(mask, align):
    for value_dim in (3, 2):
        tensors = leaves(2, 6, 3, 5, 5, 3, value_dim)
        assert gradcheck(lambda *t: rg.attend(*t, mask=mask, align=align), tensors)


def test_empty_rows_give_no_gradient_at_all():
    query, key, value = leaves(*SIZES)
    with tiles_of(2, 4):
        observation = rg.observe(
            query, key, value, mask=rg.prefix([0, 3]), sink_logit=torch.zeros(6).double()
        )
    loss = sum(getattr(observation, name).sum() for name in (*SMOOTH, "sink"))  # lse −inf included
    for grad in torch.autograd.grad(loss, (query, key, value)):
        assert grad.isfinite().all() and not grad[0].any() and grad[1].any()


def test_nothing_leaks_from_values_that_a_score_mod_blocks():
    query, key, value = leaves(*SIZES)
    blocked = torch.tensor([0.0, -torch.inf, 0.0, 0.0, -torch.inf, 0.0, 0.0], dtype=torch.float64)
    bias = ScoreMod(lambda score, b, h, q, k: score + blocked[k])
    broken = value.detach().clone()
    broken[:, :, blocked.isinf()] = torch.nan
    results = []
    for tensor in (value, broken.requires_grad_()):
        with tiles_of(2, 4):
            output = rg.attend(query, key, tensor, bias=bias)
        results.append(torch.autograd.grad(output.square().sum(), (query, key, tensor)))
    for clean, grad in zip(*results, strict=True):
        assert grad.isfinite().all()
        torch.testing.assert_close(grad, clean)


def test_a_sink_of_minus_infinity_is_no_sink():
    query, key, value = leaves(*SIZES)
    sink = torch.full((6,), -torch.inf, dtype=torch.float64, requires_grad=True)
    with_sink, without = rg.observe(query, key, value, sink_logit=sink), rg.observe(query, key, value)
    for name in SMOOTH:
        torch.testing.assert_close(getattr(with_sink, name), getattr(without, name))
    assert not torch.autograd.grad(with_sink.entropy.sum() + with_sink.output.sum(), sink)[0].any()


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
def test_low_precision_gradients_are_close_and_have_the_dtype_of_their_tensor(dtype):
    exact = leaves(*SIZES)
    low = [t.detach().to(dtype).requires_grad_() for t in exact]
    spec = {"mask": rg.near(2), "bias": rg.alibi(torch.rand(6))}
    results = []
    for tensors in (exact, low):
        with tiles_of(2, 4):
            observation = rg.observe(*tensors, statistics=["entropy"], **spec)
        results.append(
            torch.autograd.grad(observation.output.float().sum() + observation.entropy.sum(), tensors)
        )
    eps = torch.finfo(dtype).eps
    for want, got in zip(*results, strict=True):
        assert got.dtype == dtype
        assert (got.double() - want).abs().max() <= 20 * eps * (1 + want.abs().max())


def test_only_what_needs_a_gradient_gets_one():
    query, key, value = draw_tensors(*SIZES)
    key.requires_grad_()
    observation = rg.observe(query, key, value, mask=rg.causal())
    (grad,) = torch.autograd.grad(observation.output.sum() + observation.entropy.sum(), key)
    assert grad.shape == key.shape
    for name in ("argmax", "allowed", "max_weight", "min_weight", "received", "received_max"):
        assert not getattr(observation, name).requires_grad
    with torch.no_grad():
        assert not rg.observe(query, key, value).output.requires_grad


def test_a_loss_on_one_result_is_that_of_this_result():
    tensors = leaves(*SIZES)
    for name in (*SMOOTH, "sink"):
        with tiles_of(2, 4):
            everything_else, alone = (
                rg.observe(*tensors, mask=rg.causal(), sink_logit=torch.ones(6), statistics=statistics)
                for statistics in (None, [] if name == "output" else [name])
            )
        grads = [
            torch.autograd.grad(getattr(seen, name).square().sum(), tensors, materialize_grads=True)
            for seen in (everything_else, alone)
        ]
        for want, got in zip(*grads, strict=True):
            torch.testing.assert_close(got, want)


@pytest.mark.parametrize("mask", [None, rg.causal()], ids=["all", "causal"])
def test_dropout_gradients_are_those_of_its_own_draw(mask):
    query, key, value = leaves(2, 6, 3, 11, 13, 5, 7)
    factor = torch.randn(2, 6, 11, 7, dtype=torch.float64)
    with tiles_of(4, 8):
        eye = torch.eye(13, dtype=torch.float64).expand(2, 3, 13, 13)
        torch.manual_seed(7)
        dropped = rg.attend(query, key, eye, mask=mask, dropout=0.4).detach()  # the weights themselves
        torch.manual_seed(7)
        output = rg.attend(query, key, value, mask=mask, dropout=0.4)
        grads = torch.autograd.grad((factor * output).sum(), (query, key, value))
    weights = reference.weights(query, key, Case(query, key, value, {"mask": mask}).spec)
    drawn = torch.where(weights > 0, dropped / weights.detach(), 0.0)
    want = (weights * drawn) @ value.repeat_interleave(2, 1)
    torch.testing.assert_close(output, want)
    for got, grad in zip(grads, torch.autograd.grad((factor * want).sum(), (query, key, value)), strict=True):
        torch.testing.assert_close(got, grad)


def test_dropout_touches_the_output_alone():
    query, key, value = draw_tensors(*SIZES)
    spec = Case(query, key, value, {"mask": rg.causal()}).spec
    rows = rg.attention.choose("tiles", query, key, value, spec, Wanted()).rows
    plain = rows(query, key, value, spec, Wanted(entropy=True, squares=True))
    dropped = rows(query, key, value, spec, Wanted(entropy=True, squares=True, dropout=0.5, seed=3))
    for name in ("m", "l", "u", "r"):
        assert torch.equal(getattr(plain, name), getattr(dropped, name))
    assert not torch.equal(plain.o, dropped.o)


MEMORY = """
import sys, threading, torch, regard as rg
torch.set_num_threads(1)
n, how = int(sys.argv[1]), sys.argv[2]
tensors = [torch.randn(1, 1, n, 8, requires_grad=True) for _ in range(3)]

def resident():
    return int(open('/proc/self/statm').read().split()[1]) * 4096

def watch():
    while not done.wait(0.002):  # not the high-water mark of the process: importing may have been higher
        seen.append(resident())

def run(query, key, value):
    if how == "tiles":
        found = rg.observe(query, key, value, statistics=["entropy", "lse", "distance"], top=2)
        loss = found.output.sum() + found.entropy.sum() + found.distance.sum()
    else:
        weights = (query @ key.transpose(-1, -2)).softmax(-1)
        loss = (weights @ value).sum()
    loss.backward()

run(*(t[:, :, :256].detach().requires_grad_() for t in tensors))  # what libraries take once is no part of it
done, seen = threading.Event(), [resident()]
watcher = threading.Thread(target=watch)
watcher.start()
run(*tensors)
done.set()
watcher.join()
assert all(t.grad.isfinite().all() for t in tensors)
print((max(seen) - seen[0]) / 2**20)
"""


def megabytes(queries: int, how: str) -> float:
    """Peak memory of forward and backward pass above what was there before, in a process of its own."""
    command = [sys.executable, "-c", MEMORY, str(queries), how]
    return float(subprocess.run(command, capture_output=True, text=True, check=True).stdout)


def test_memory_grows_with_n_and_not_with_its_square():
    matrix = 9_000**2 * 4 / 2**20  # 309 MB, and a dense backward pass holds several
    assert megabytes(9_000, "tiles") < matrix / 8


def test_a_stored_matrix_would_be_seen():
    assert megabytes(3_000, "dense") > 3_000**2 * 4 / 2**20
