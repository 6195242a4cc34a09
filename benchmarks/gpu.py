"""What does the Triton engine give on a GPU? Right answers first, then its speed beside torch's own kernels.

One run of `python -m benchmarks.gpu` answers everything, in under eight minutes, most of which is compilation.
"""

from __future__ import annotations

import statistics
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.nn.functional import scaled_dot_product_attention

import regard as rg
from benchmarks import common
from regard.engines import tiles
from regard.engines import triton as engine
from regard.engines.triton import tile_shapes
from regard.engines.triton.tile_shapes import Plan
from regard.shapes import sizes_of
from regard.spec import Spec
from regard.statistics.table import Wanted, wanted

BAR = (
    "H200, bfloat16, dim 128, causal, 16 384: output and all row statistics ≥ 450 TFLOP/s, ≥ 0.95 × the kernel "
    "without statistics, ≥ 0.70 × cuDNN's SDPA; column fold ≤ 0.6 × forward; decoding ≥ 80 % of a plain read"
)
ENOUGH = 300.0  # seconds after which no more plans are tried
SMOOTH = ["lse", "entropy", "sum_squares", "distance", "position", "spread", "first", "self_mass", "local"]


# --- right answers -----------------------------------------------------------------------------------------


def calls(queries: int, keys: int, heads: int) -> dict[str, tuple[torch.dtype, dict[str, Any]]]:
    """One call for each path through the kernels."""
    cuda, half = torch.device("cuda"), torch.bfloat16
    blocking = torch.randn(queries, keys, device=cuda)
    blocking = blocking.masked_fill(torch.rand_like(blocking) < 0.3, -torch.inf)
    documents = rg.documents(torch.arange(keys) // 100)
    return {
        "all": (half, {}),
        "causal": (half, {"mask": rg.causal()}),
        "causal, float16": (torch.float16, {"mask": rg.causal()}),
        "causal, float32": (torch.float32, {"mask": rg.causal()}),
        "documents": (half, {"mask": documents & rg.causal()}),
        "strided or near": (half, {"mask": (rg.strided(8) | rg.near(5)) & rg.causal()}),
        "softcap and slopes": (half, {"softcap": 5.0, "bias": rg.alibi(torch.rand(heads, device=cuda))}),
        "blocking bias": (half, {"bias": blocking}),
        "sink": (half, {"sink_logit": torch.randn(heads, device=cuda), "mask": rg.prefix([keys - 9, 9])}),
    }


def correctness() -> dict[str, Any]:
    """Largest error of each result against the tiles engine in float64, and how many exceed their bound.

    Errors are relative to 1 + the largest value: 1e-4 for statistics, four roundings for outputs and gradients.
    """
    sizes = 2, 4, 2, 517, 709, 64, 64
    figures: dict[str, Any] = {"wrong": []}
    for name, (dtype, keywords) in calls(sizes[3], sizes[4], sizes[1]).items():
        batch, heads, kv_heads, queries, keys, dim, value_dim = sizes
        shapes = (heads, queries, dim), (kv_heads, keys, dim), (kv_heads, keys, value_dim)
        inputs = [torch.randn(batch, *shape, device="cuda").to(dtype) for shape in shapes]
        got, truth = (
            results(inputs, "triton", keywords),
            results([t.double() for t in inputs], "tiles", keywords),
        )
        errors = {key: error(got[key], truth[key]) for key in truth}
        rounding = 4 * torch.finfo(dtype).eps
        for key, size in errors.items():
            bound = max(1e-4, rounding) if key == "output" or key.startswith("gradient") else 1e-4
            if not size <= bound:
                figures["wrong"].append(f"{name}: {key}: {size:.3g}, at most {bound:.3g}")
        figures[name] = errors
    return figures


def results(inputs: list[Tensor], name: str, keywords: dict[str, Any]) -> dict[str, Tensor]:
    """Output, statistics, column statistics, map and gradients by one engine."""
    leaves = [t.detach().requires_grad_() for t in inputs]
    seen = rg.observe(
        *leaves, engine=name, map=64, statistics=[*SMOOTH, "received", "received_max"], **keywords
    )
    assert seen.output is not None and seen.map is not None and seen.entropy is not None
    found = {key: getattr(seen, key) for key in (*SMOOTH, "received", "received_max")}
    found |= {"output": seen.output, "map total": seen.map.total, "map peak": seen.map.peak}
    torch.manual_seed(1)
    loss = sum(
        (torch.randn(t.shape, device="cuda", dtype=torch.float64) * t.double()).sum()
        for t in (seen.output, seen.entropy)
    )
    assert isinstance(loss, Tensor)
    gradients = torch.autograd.grad(loss, leaves)
    return found | {f"gradient {i}": gradient for i, gradient in enumerate(gradients)}


def error(got: Tensor, truth: Tensor) -> float:
    """Largest error, relative to 1 + the largest value; −inf must stand in the same places."""
    got, truth = got.detach().double(), truth.detach().double()
    if not torch.equal(got.isneginf(), truth.isneginf()):
        return float("inf")
    there = truth.isfinite()
    return float((got - truth)[there].abs().max() / (1 + truth[there].abs().max()))


# --- speed -------------------------------------------------------------------------------------------------


def timed(candidates: dict[str, Callable[[], object]], repetitions: int = 15) -> dict[str, float]:
    """Median seconds of each candidate between events of the device, turn by turn after two warm-ups."""
    for run in candidates.values():
        run()
        run()
    taken: dict[str, list[float]] = {name: [] for name in candidates}
    for _ in range(repetitions):
        for name, run in candidates.items():
            start, stop = (torch.cuda.Event(enable_timing=True) for _ in range(2))
            start.record()
            run()
            stop.record()
            torch.cuda.synchronize()
            taken[name].append(start.elapsed_time(stop) / 1e3)
    return {name: statistics.median(times) for name, times in taken.items()}


def sdpa(backend: SDPBackend, *tensors: Tensor, causal: bool = True) -> Tensor:
    """torch's own attention by one of its kernels."""
    with sdpa_kernel(backend):
        return scaled_dot_product_attention(*tensors, is_causal=causal)


def available(backend: SDPBackend) -> bool:
    """Whether this build of torch runs that kernel here."""
    try:
        sdpa(backend, *(torch.randn(1, 1, 128, 64, device="cuda", dtype=torch.bfloat16) for _ in range(3)))
    except RuntimeError:
        return False
    return True


def drawn(batch: int, heads: int, length: int, dim: int) -> list[Tensor]:
    """Query, key and value of a square call."""
    return [torch.randn(batch, heads, length, dim, device="cuda", dtype=torch.bfloat16) for _ in range(3)]


def forward(batch: int, heads: int, length: int, dim: int) -> dict[str, Any]:
    """The first fold with and without statistics, the second fold, and torch's kernels; causal."""
    tensors = drawn(batch, heads, length, dim)
    query, key, _ = tensors
    spec = Spec.of(sizes_of(*tensors), mask=rg.causal())
    everything, columns = wanted("rows"), replace(wanted("columns"), output=False)
    state = engine.rows(*tensors, spec, Wanted())
    cell = 1 << max(0, (length // 256 - 1).bit_length())
    candidates: dict[str, Callable[[], object]] = {
        "output and all row statistics": lambda: engine.rows(*tensors, spec, everything),
        "output and lse": lambda: engine.rows(*tensors, spec, Wanted()),
        "observe": lambda: rg.observe(*tensors, mask=rg.causal(), statistics="rows", engine="triton"),
        "column fold": lambda: engine.columns(query, key, spec, state.m, state.l, columns),
        "column fold and map": lambda: engine.columns(
            query, key, spec, state.m, state.l, replace(columns, cell=cell)
        ),
    }
    for backend in (SDPBackend.CUDNN_ATTENTION, SDPBackend.FLASH_ATTENTION):
        if available(backend):
            candidates[backend.name] = lambda backend=backend: sdpa(backend, *tensors)
    times = timed(candidates)
    work = 2 * batch * heads * length**2 * dim
    statistics_s, plain_s = times["output and all row statistics"], times["output and lse"]
    figures: dict[str, Any] = {
        "seconds": times,
        "tflops": {name: work / s / 1e12 for name, s in times.items() if not name.startswith("column")},
        "with_over_without_statistics": plain_s / statistics_s,
        "columns_over_forward": times["column fold"] / statistics_s,
    }
    if "CUDNN_ATTENTION" in times:
        figures["speed_over_cudnn"] = times["CUDNN_ATTENTION"] / statistics_s
    return figures


def backward(batch: int, heads: int, length: int, dim: int) -> dict[str, Any]:
    """The gradient of the output, and of output and entropy, beside that of torch's kernels; causal."""
    tensors = [t.requires_grad_() for t in drawn(batch, heads, length, dim)]
    seen = rg.observe(*tensors, mask=rg.causal(), statistics=["entropy"], engine="triton")
    assert seen.output is not None and seen.entropy is not None
    results, slope = (seen.output, seen.entropy), torch.randn_like(seen.output)
    slopes = slope, torch.randn_like(seen.entropy)

    def pulled(outputs: Any, gradients: Any) -> Callable[[], object]:
        return lambda: torch.autograd.grad(outputs, tensors, gradients, retain_graph=True)

    candidates = {"output": pulled(results[0], slope), "output and entropy": pulled(results, slopes)}
    for backend in (SDPBackend.CUDNN_ATTENTION, SDPBackend.FLASH_ATTENTION):
        if available(backend):
            candidates[backend.name] = pulled(sdpa(backend, *tensors), slope)
    times = timed(candidates, 7)
    work = 5 * batch * heads * length**2 * dim
    return {"seconds": times, "tflops": {name: work / s / 1e12 for name, s in times.items()}}


def decoding(heads: int, keys: int, dim: int) -> dict[str, Any]:
    """One query past a long cache: bytes a second, beside those of a plain read of the same memory."""
    cache = torch.randn(2, 1, heads, keys, dim, device="cuda", dtype=torch.bfloat16)
    query = torch.randn(1, heads, 1, dim, device="cuda", dtype=torch.bfloat16)
    key, value = cache
    spec = Spec.of(sizes_of(query, key, value))
    words = cache.view(torch.int64)
    times = timed(
        {
            "output and lse": lambda: engine.rows(query, key, value, spec, Wanted()),
            "output and all row statistics": lambda: engine.rows(query, key, value, spec, wanted("rows")),
            "plain read": lambda: words.amax(),
            "SDPA": lambda: scaled_dot_product_attention(query, key, value),
        },
        50,
    )
    size = cache.numel() * cache.element_size()
    share = times["plain read"] / times["output and all row statistics"]
    return {
        "seconds": times,
        "gigabytes_per_second": {n: size / s / 1e9 for n, s in times.items()},
        "share_of_plain_read": share,
    }


# --- other plans than the table's --------------------------------------------------------------------------

TRIED = (
    Plan(128, 64, 8, 3),
    Plan(128, 64, 8, 3, descriptors=True),
    Plan(128, 64, 8, 3, descriptors=True, specialize=True),
    Plan(128, 64, 8, 4, descriptors=True),
    Plan(128, 128, 8, 2, descriptors=True),
    Plan(64, 64, 4, 3, descriptors=True),
    Plan(128, 32, 8, 4, descriptors=True),
)


@contextmanager
def planned(line: tuple[str, int, int], chosen: Plan) -> Iterator[None]:
    """One line of the table of plans replaced, for as long as this lasts."""
    before = tile_shapes.TABLE[line]
    tile_shapes.TABLE[line] = chosen, chosen
    try:
        yield
    finally:
        tile_shapes.TABLE[line] = before


def other_plans(batch: int, heads: int, length: int, dim: int, until: float) -> dict[str, Any]:
    """Seconds of the first fold, with and without statistics, by plan: what the table should hold on this GPU."""
    tensors = drawn(batch, heads, length, dim)
    spec = Spec.of(sizes_of(*tensors), mask=rg.causal())
    figures: dict[str, Any] = {}
    for chosen in TRIED:
        if time.monotonic() > until:
            figures["left out"] = "time was up"
            break
        with planned(("rows", 2, 64 if dim <= 64 else 128), chosen):
            for name, want in (("all row statistics", wanted("rows")), ("lse", Wanted())):
                run = {name: lambda want=want: engine.rows(*tensors, spec, want)}
                try:
                    figures[f"{chosen}, {name}"] = timed(run, 5)[name]
                except Exception as failure:  # a plan that does not fit this GPU is a result too
                    figures[f"{chosen}, {name}"] = f"{type(failure).__name__}: {failure}"[:200]
    return figures


def main() -> None:
    """Check, measure, and write the result; a wrong answer ends it with status 1."""
    if not torch.cuda.is_available() or not engine.installed():
        sys.exit("benchmarks.gpu needs a CUDA device and Triton: nothing was measured")
    rg.engines.ENGINES = (engine, tiles)
    common.prepare()
    start = time.monotonic()
    figures: dict[str, Any] = {"device": torch.cuda.get_device_name(), "correctness": correctness()}
    with torch.no_grad():
        figures["forward, 16 heads, 16384, dim 128"] = forward(1, 16, 16384, 128)
        figures["forward, 32 heads, 4096, dim 64"] = forward(4, 32, 4096, 64)
        figures["decoding, 8 heads, 131072 keys, dim 128"] = decoding(8, 131072, 128)
    figures["backward, 16 heads, 16384, dim 128"] = backward(1, 16, 16384, 128)
    with torch.no_grad():
        figures["plans, 16 heads, 16384, dim 128"] = other_plans(1, 16, 16384, 128, start + ENOUGH)
    figures["minutes"] = (time.monotonic() - start) / 60
    common.write("gpu", "python -m benchmarks.gpu", BAR, figures)
    if figures["correctness"]["wrong"]:
        sys.exit("wrong answers:\n" + "\n".join(figures["correctness"]["wrong"]))


if __name__ == "__main__":
    main()
