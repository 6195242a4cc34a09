"""The questions that benchmarks ask: Regard, torch's SDPA and stored weights on the same inputs, ready to be timed.

Knows what each candidate computes and how much work that is; it does not time them.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor
from torch.nn.functional import scaled_dot_product_attention

from regard.attention import observe
from regard.bench.machine import label
from regard.bench.timing import Candidates, matmul, reads
from regard.engines import choose
from regard.masks import Mask, causal, documents, near, strided
from regard.shapes import sizes_of
from regard.spec import Spec
from regard.statistics.table import wanted

GRID = 256  # cells a side of the map


@dataclass(frozen=True)
class Setting:
    """Sizes, type and device of a call: `(1, heads, length, dim)` each of query, key and value."""

    length: int
    dim: int = 64
    causal: bool = True
    dtype: torch.dtype = torch.float32
    heads: int = 8
    device: str = "cpu"

    def __str__(self) -> str:
        kind = "full"
        if self.causal:
            kind = "causal"
        type_ = ""
        if self.dtype != torch.float32:
            type_ = f", {str(self.dtype).removeprefix('torch.')}"
        return f"{kind}, n {self.length}, dim {self.dim}{type_}"

    @property
    def mask(self) -> Mask | None:
        """As Regard takes it."""
        if self.causal:
            return causal()
        return None

    @property
    def pairs(self) -> int:
        """Scores that are not masked, over all heads."""
        n = self.length
        return self.heads * (n * (n + 1) // 2 if self.causal else n * n)

    def inputs(self, queries: int | None = None) -> tuple[Tensor, Tensor, Tensor]:
        """Random query, key and value; the same ones for the same setting."""
        # Drawn on the CPU, so that all devices and types get the same numbers.
        generator = torch.Generator().manual_seed(0)
        lengths = (self.length if queries is None else queries, self.length, self.length)
        query, key, value = (
            torch.randn(1, self.heads, n, self.dim, generator=generator).to(self.device, self.dtype)
            for n in lengths
        )
        return query, key, value


@dataclass(frozen=True)
class Contest:
    """One question and its candidates; "regard" is ours, "matmul" and "read …" are the machine's own limits.

    Attributes:
        work: floating-point operations of Regard's answer, or bytes that it reads.
        unit: of `work`.
        share: kept pairs ÷ all pairs, where the question is what a sparse mask saves.
    """

    name: str
    engine: str
    candidates: Candidates
    work: float
    unit: Literal["FLOP", "B"] = "FLOP"
    share: float | None = None


def rows(setting: Setting, *, with_stored: bool = True) -> Contest:
    """Output and all row statistics; "plain" is the same engine giving output and lse only."""
    query, key, value = setting.inputs()
    candidates: Candidates = {
        "regard": lambda: observe(query, key, value, mask=setting.mask, statistics="rows"),
        "plain": lambda: observe(query, key, value, mask=setting.mask, statistics=("lse",)),
        "sdpa": lambda: scaled_dot_product_attention(query, key, value, is_causal=setting.causal),
    }
    if with_stored:
        candidates["stored"] = lambda: stored(query, key, value, setting.causal)
    return Contest(
        f"output and row statistics: {setting}",
        _engine(query, key, value, setting.mask),
        candidates | _limit(setting),
        4.0 * setting.pairs * setting.dim,
    )


def columns(setting: Setting, *, with_stored: bool = True) -> Contest:
    """The second fold, given the rows' state: what each key receives, and a map."""
    query, key, value = setting.inputs()
    spec = Spec.of(sizes_of(query, key, value), mask=setting.mask)
    want = wanted("columns", cell=max(1, setting.length // GRID), output=False)
    engine = choose("auto", query, key, None, spec, want)
    # Outside what is timed: the question is what the second fold takes.
    state = engine.rows(query, key, None, spec, wanted("lse", output=False))
    candidates: Candidates = {
        "regard": lambda: engine.columns(query, key, spec, state.m, state.l, want),
        "sdpa": lambda: scaled_dot_product_attention(query, key, value, is_causal=setting.causal),
    }
    if with_stored:
        candidates["stored"] = lambda: stored_columns(query, key, setting.causal, want.cell)
    return Contest(
        f"columns and {GRID} × {GRID} map: {setting}",
        label(engine.name),
        candidates | _limit(setting),
        2.0 * setting.pairs * setting.dim,
    )


def backward(setting: Setting, *, with_stored: bool = True) -> Contest:
    """The backward pass alone: ours with the entropy's gradient, SDPA's without any."""
    inputs = tuple(tensor.requires_grad_() for tensor in setting.inputs())
    query, key, value = inputs
    seen = observe(query, key, value, mask=setting.mask, statistics=("entropy",))
    plain = scaled_dot_product_attention(query, key, value, is_causal=setting.causal)
    assert seen.output is not None and seen.entropy is not None
    of_output, of_entropy = torch.randn_like(seen.output), torch.randn_like(seen.entropy)

    def backward(*results: Tensor) -> tuple[Tensor, ...]:
        return torch.autograd.grad(
            results, inputs, (of_output, of_entropy)[: len(results)], retain_graph=True
        )

    ours = (seen.output, seen.entropy)
    candidates: Candidates = {"regard": lambda: backward(*ours), "sdpa": lambda: backward(plain)}
    if with_stored:
        w = softmax(query, key, setting.causal)[1]
        entropy = -(w * w.clamp(min=torch.finfo(w.dtype).tiny).log()).sum(-1)
        theirs = (w @ value, entropy.to(of_entropy.dtype))
        candidates["stored"] = lambda: backward(*theirs)
    return Contest(
        f"backward with entropy: {setting}",
        label(seen.engine),
        candidates | _limit(setting),
        10.0 * setting.pairs * setting.dim,
    )


def sparse(setting: Setting, name: str, mask: Mask, *, with_sdpa: bool = True) -> Contest:
    """A mask that keeps few pairs; "full" is Regard without one, and SDPA gets the mask as a matrix."""
    query, key, value = setting.inputs()
    seen = observe(query, key, value, mask=mask, statistics=("allowed",))
    assert seen.allowed is not None
    allowed_pairs = int(seen.allowed.sum())
    candidates: Candidates = {
        "regard": lambda: observe(query, key, value, mask=mask, statistics="rows"),
        "full": lambda: observe(query, key, value, statistics="rows"),
    }
    if with_sdpa:
        matrix = mask.dense(setting.length, setting.length, device=setting.device)
        candidates["sdpa"] = lambda: scaled_dot_product_attention(query, key, value, attn_mask=matrix)
    return Contest(
        f"{name}: n {setting.length}, dim {setting.dim}",
        label(seen.engine),
        candidates | _limit(setting),
        4.0 * allowed_pairs * setting.dim,
        share=allowed_pairs / (setting.heads * setting.length**2),
    )


def masks(length: int, device: str = "cpu") -> dict[str, Mask]:
    """The sparse masks of the table, by name."""
    ids = torch.arange(length, device=device) // 512
    return {
        "window of 256": near(255),
        "documents of 512": documents(ids),
        "strided and local": causal() & (near(63) | strided(128)),
        "strided 128 and local 128": causal() & (near(127) | strided(128)),
    }


def decoding(setting: Setting, *, with_stored: bool = True) -> Contest:
    """One query against many keys, output and row statistics: keys and values are read once, whatever else is done."""
    query, key, value = setting.inputs(queries=1)
    candidates: Candidates = {
        "regard": lambda: observe(query, key, value, statistics="rows"),
        "plain": lambda: observe(query, key, value, statistics=("lse",)),
        "sdpa": lambda: scaled_dot_product_attention(query, key, value),
    }
    if with_stored:
        candidates["stored"] = lambda: (
            torch.softmax(query @ key.transpose(-1, -2) * setting.dim**-0.5, -1) @ value
        )
    return Contest(
        f"decoding, 1 query: {setting.length} keys, dim {setting.dim}",
        _engine(query, key, value, None),
        candidates | reads((key, value)),
        2.0 * key.numel() * key.element_size(),
        "B",
    )


def softmax(query: Tensor, key: Tensor, causal: bool) -> tuple[Tensor, Tensor]:
    """All scores and all weights, stored, as one would write it in torch."""
    n = query.shape[2]
    scores = query @ key.transpose(-1, -2) * query.shape[3] ** -0.5
    if causal:
        later = torch.ones(n, n, dtype=torch.bool, device=query.device).triu(1)
        scores = scores.masked_fill(later, -torch.inf)
    return scores, torch.softmax(scores, -1)


def stored(query: Tensor, key: Tensor, value: Tensor, causal: bool) -> dict[str, Tensor]:
    """Softmax with stored weights, then the same output and row statistics."""
    n = query.shape[2]
    scores, w = softmax(query, key, causal)
    position = torch.arange(n, dtype=w.dtype, device=w.device)
    step = position[None, :] - position[:, None]
    entropy = torch.special.entr(w).sum(-1)
    mean = w @ position
    return {
        "output": w @ value,
        "lse": torch.logsumexp(scores, -1),
        "entropy": entropy,
        "effective_keys": entropy.exp(),
        "max_weight": w.amax(-1),
        "argmax": w.argmax(-1),
        "sum_squares": w.square().sum(-1),
        "distance": (w * step.abs()).sum(-1),
        "position": mean,
        "spread": (w @ position.square() - mean.square()).clamp(min=0).sqrt(),
        "first": w[..., 0],
        "self_mass": w.diagonal(dim1=-2, dim2=-1),
        "previous": w.diagonal(-1, dim1=-2, dim2=-1),
        "local": (w * (step.abs() <= 8)).sum(-1),
    }


def stored_columns(query: Tensor, key: Tensor, causal: bool, cell: int) -> dict[str, Tensor]:
    """Softmax with stored weights, then what each key receives and the map, `cell` dividing the length."""
    w = softmax(query, key, causal)[1]
    return {
        "received": w.sum(-2),
        "received_max": w.amax(-2),
        "mean": torch.nn.functional.avg_pool2d(w, cell),
        "peak": torch.nn.functional.max_pool2d(w, cell),
    }


def _limit(setting: Setting) -> Candidates:
    return {"matmul": matmul(setting.dtype, setting.device)}


def _engine(query: Tensor, key: Tensor, value: Tensor, mask: Mask | None) -> str:
    """Who answers a call for all row statistics."""
    spec = Spec.of(sizes_of(query, key, value), mask=mask)
    return label(choose("auto", query, key, value, spec, wanted("rows")).name)
