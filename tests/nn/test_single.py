"""One row, one head, one token, one key: what a row gives in a batch it gives alone, in every mechanism of `regard.nn`.

The table names every public thing of the package, so that a new one fails here until it has a line.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import regard as rg

WIDTH = 8
Run = Callable[..., Tensor]  # from tokens (batch, tokens, width) and mask arguments to (batch, …)


@dataclass(frozen=True)
class Line:
    """How to make a mechanism with so many heads, and what it takes: a mask, a source."""

    make: Callable[[int], Any]
    mask: bool = False
    source: bool = False
    module: bool = True


def layer(build: Callable[[int], nn.Module], **more: Any) -> Line:
    """A layer that is called as it is."""
    return Line(build, **more)


def attention(**scoring: Any) -> Line:
    def make(heads: int) -> nn.Module:
        made = {name: part(heads) if callable(part) else part for name, part in scoring.items()}
        return rg.nn.MultiHeadAttention(WIDTH, heads, **made)

    return Line(make, mask=True)


def crossing(**scoring: Any) -> Line:
    def make(heads: int) -> nn.Module:
        made = {name: part(heads) if callable(part) else part for name, part in scoring.items()}
        return rg.nn.MultiHeadAttention(WIDTH, heads, **made)

    return Line(make, mask=True, source=True)


def function(call: Callable[..., Tensor], **more: Any) -> Line:
    """A function of query, key and value."""

    def make(heads: int) -> Run:
        def run(x: Tensor, **keywords: Any) -> Tensor:
            part = x.unflatten(2, (heads, WIDTH // heads)).transpose(1, 2)
            return call(part, part.cos(), part.sin(), **keywords)

        return run

    return Line(make, module=False, **more)


def stepwise(build: Callable[[int], nn.Module], memory: Callable[[nn.Module], dict[str, Any]]) -> Line:
    """A layer that reads one token after the other."""

    def make(heads: int) -> Run:
        module = build(heads).double().eval()

        def run(x: Tensor) -> Tensor:
            keywords = memory(module)
            return torch.cat([module(x[:, i : i + 1], **keywords) for i in range(x.shape[1])], 1)

        return run

    return Line(make, module=False)


def converted(build: Callable[[int], nn.Module]) -> Line:
    """A layer of torch's, converted and back again."""

    def make(heads: int) -> Run:
        made = rg.nn.from_torch(build(heads).double().eval())
        back = rg.nn.to_torch(made)

        def run(x: Tensor) -> Tensor:
            theirs = back(x, x, x, need_weights=True, average_attn_weights=False)
            torch.testing.assert_close(made(x), theirs[0])
            return theirs[1]

        return run

    return Line(make, module=False)


def recurrent(decoder: Callable[[], nn.Module]) -> Line:
    def make(heads: int) -> Run:
        encoder, module = rg.nn.RecurrentEncoder(WIDTH, 6).double().eval(), decoder().double().eval()
        decode = {"state": None}

        def run(x: Tensor, lengths: Tensor | None = None) -> Tensor:
            source, _ = encoder(x, lengths)
            outputs, state = module(x, source, decode["state"], lengths=lengths)
            return torch.cat([outputs, state.hidden[:, None].expand(-1, x.shape[1], -1)], -1)

        return run

    return Line(make, module=False)


def first_of(module: nn.Module) -> Run:
    module = module.double().eval()
    return lambda x: module(x)[0]


def errors(approximate: Any) -> Line:
    def call(query: Tensor, key: Tensor, value: Tensor) -> Tensor:
        return rg.nn.errors_by_rank(query, key, value, [1, 2], approximate).transpose(0, 1)

    return function(call)


def mixed(call: Callable[..., Tensor], count: int) -> Line:
    def run(query: Tensor, key: Tensor, value: Tensor) -> Tensor:
        project = torch.linspace(-1, 1, 3 * key.shape[2], dtype=key.dtype).view(3, -1)
        return call(*(query, key, value)[:count], project, project.cos())

    return function(run)


SELF = torch.nn.MultiheadAttention
LINES: dict[str, dict[str, Line]] = {
    "MultiHeadAttention": {
        "self": attention(),
        "causal": attention(mask=rg.causal(), sink=True, num_kv_heads=1),
        "cross": crossing(),
        "norms": attention(qk_norm="rms", softcap=3.0, scale=0.3),
    },
    "Additive": {"self": attention(score=lambda h: rg.nn.Additive(WIDTH // h, WIDTH // h, 5)), "cross": crossing(
        score=lambda h: rg.nn.Additive(WIDTH // h, WIDTH // h, 5))},
    "Concat": {"self": attention(score=lambda h: rg.nn.Concat(WIDTH // h, WIDTH // h, 5))},
    "Cosine": {"self": attention(score=lambda h: rg.nn.Cosine())},
    "Dot": {"self": attention(score=lambda h: rg.nn.Dot())},
    "General": {"self": attention(score=lambda h: rg.nn.General(WIDTH // h, num_heads=h))},
    "ScaledDot": {"self": attention(score=lambda h: rg.nn.ScaledDot())},
    "Tempered": {"self": attention(score=lambda h: rg.nn.Tempered(rg.nn.Cosine(), 0.5, learned=True))},
    "Alibi": {"self": attention(positions=rg.nn.Alibi)},
    "Relative": {"self": attention(positions=rg.nn.Relative), "table": attention(
        positions=lambda h: rg.nn.Relative(h, 2, num_buckets=None))},
    "Rotary": {"self": attention(positions=lambda h: rg.nn.Rotary(WIDTH // h))},
    "Learned": {"table": layer(lambda h: rg.nn.Learned(11, WIDTH))},
    "Sinusoidal": {"table": layer(lambda h: rg.nn.Sinusoidal(WIDTH))},
    "FeedForward": {"block": layer(lambda h: rg.nn.FeedForward(WIDTH, activation="swiglu"))},
    "Encoder": {"post": layer(lambda h: rg.nn.Encoder(2, WIDTH, h, norm_first=False), mask=True)},
    "EncoderLayer": {"pre": layer(lambda h: rg.nn.EncoderLayer(WIDTH, h, norm_type="rms"), mask=True)},
    "Decoder": {
        "alone": layer(lambda h: rg.nn.Decoder(2, WIDTH, h, cross_attention=False), mask=True),
        "cross": layer(lambda h: rg.nn.Decoder(2, WIDTH, h), mask=True, source=True),
    },
    "DecoderLayer": {"cross": layer(lambda h: rg.nn.DecoderLayer(WIDTH, h), mask=True, source=True)},
    "Cache": {"steps": stepwise(
        lambda h: rg.nn.Decoder(2, WIDTH, h, cross_attention=False), lambda m: {"cache": rg.nn.Cache(m)})},
    "LinearAttention": {
        "self": layer(lambda h: rg.nn.LinearAttention(WIDTH, h), mask=True),
        "causal": layer(lambda h: rg.nn.LinearAttention(WIDTH, h, causal=True), mask=True),
        "cross": layer(lambda h: rg.nn.LinearAttention(WIDTH, h), mask=True, source=True),
    },
    "Elu": {"features": layer(
        lambda h: rg.nn.LinearAttention(WIDTH, h, features=rg.nn.Elu(), causal=True), mask=True)},
    "PositiveRandom": {"features": layer(
        lambda h: rg.nn.LinearAttention(WIDTH, h, features=rg.nn.PositiveRandom(WIDTH // h, 7)), mask=True)},
    "LinearState": {"steps": stepwise(
        lambda h: rg.nn.LinearAttention(WIDTH, h, causal=True), lambda m: {"state": rg.nn.LinearState()})},
    "linear_attention": {"function": function(rg.nn.linear_attention, mask=True)},
    "linear_weights": {"function": function(lambda q, k, v, **more: rg.nn.linear_weights(q, k, **more), mask=True)},
    "LandmarkAttention": {"layer": layer(lambda h: rg.nn.LandmarkAttention(WIDTH, h, 2))},
    "landmark_attention": {"function": function(lambda q, k, v: rg.nn.landmark_attention(q, k, v, 2))},
    "landmark_weights": {"function": function(lambda q, k, v: rg.nn.landmark_weights(q, k, 2, iterations=None))},
    "ProjectedAttention": {"layer": layer(lambda h: rg.nn.ProjectedAttention(WIDTH, h, 11, 3))},
    "projected_attention": {"function": mixed(rg.nn.projected_attention, 3)},
    "projected_weights": {"function": mixed(rg.nn.projected_weights, 2)},
    "RecurrentDecoder": {
        "luong": recurrent(lambda: rg.nn.RecurrentDecoder(WIDTH, 6, 12, score=rg.nn.General(6, 12))),
        "bahdanau": recurrent(
            lambda: rg.nn.RecurrentDecoder(WIDTH, 6, 12, score=rg.nn.Additive(6, 12, 5), order="bahdanau", cell="lstm")
        ),
    },
    "RecurrentEncoder": {"first of two": Line(
        lambda h: first_of(rg.nn.RecurrentEncoder(WIDTH, 5, num_layers=2, cell="lstm")), module=False)},
    "errors_by_rank": {"slots": errors(rg.nn.by_slots())},
    "by_slots": {"rank": errors(rg.nn.by_slots())},
    "by_features": {"rank": errors(rg.nn.by_features())},
    "by_landmarks": {"rank": errors(rg.nn.by_landmarks())},
    "from_torch": {"attention": converted(lambda h: SELF(WIDTH, h, batch_first=True))},
    "to_torch": {"without bias": converted(lambda h: SELF(WIDTH, h, batch_first=True, bias=False))},
}  # fmt: skip
WITHOUT_ROWS = {
    "Config": "sizes of a model", "PUBLISHED": "published sizes", "parameters_of": "counts", "parts_of": "counts",
    "initialize": "draws weights", "state_from_torch": "renames weights", "state_to_torch": "renames weights",
    "Score": "base of the scores", "Features": "base of the features", "HeadPositions": "base of the positions",
    "DecoderState": "part of what a recurrent decoder returns, which is compared",
}  # fmt: skip
VARIANTS = [
    pytest.param(line, id=f"{name}-{label}") for name, part in LINES.items() for label, line in part.items()
]


def test_everything_public_has_a_line():
    assert set(rg.nn.__all__) == set(LINES) | set(WITHOUT_ROWS)
    assert not set(LINES) & set(WITHOUT_ROWS)


def made(line: Line, heads: int) -> Any:
    torch.manual_seed(3)
    mechanism = line.make(heads)
    return mechanism.double() if isinstance(mechanism, nn.Module) else mechanism


def masks(line: Line, rows: list[int]) -> dict[str, Any]:
    """The mask arguments for texts of these lengths: rows of a tensor, as they are in any batch."""
    if not line.source:
        return {"mask": rg.padding(torch.tensor(rows))}
    return {"mask": rg.prefix(torch.tensor(rows))}


def asked(x: Tensor, keys: int) -> Tensor:
    """A source of so many tokens, which differs from row to row as x does."""
    return x.sum(1, keepdim=True).cos() * torch.arange(1, keys + 1)[:, None].sin()


def call(mechanism: Any, line: Line, x: Tensor, lengths: list[int] | None, keys: int) -> Tensor:
    keywords = {} if lengths is None else masks(line, lengths)
    inputs = (x, asked(x, keys)) if line.source else (x,)
    if isinstance(mechanism, rg.nn.Decoder | rg.nn.DecoderLayer) and line.source and lengths is not None:
        keywords = {"memory_mask": keywords["mask"]}
    if isinstance(mechanism, rg.nn.LinearAttention) and line.source and lengths is not None:
        keywords = {"mask": rg.prefix(torch.tensor(lengths))}
    return mechanism(*inputs, **keywords)


@pytest.mark.parametrize("tokens", [1, 2, 5])
@pytest.mark.parametrize("heads", [1, 2])
@pytest.mark.parametrize("line", VARIANTS)
def test_a_row_alone_is_that_row_of_a_batch(line, heads, tokens):
    mechanism = made(line, heads)
    x = torch.randn(3, tokens, WIDTH, dtype=torch.float64)
    for training in (False, True):
        if isinstance(mechanism, nn.Module):
            mechanism.train(training)
        for keys in (1, 4) if line.source else (tokens,):
            lengths = [keys, max(1, keys - 1), 0]
            for rows in (None, lengths) if line.mask else (None,):
                together = call(mechanism, line, x, rows, keys)
                assert together.isfinite().all()
                for i in range(3):
                    alone = call(
                        mechanism, line, x[i : i + 1], None if rows is None else rows[i : i + 1], keys
                    )
                    torch.testing.assert_close(alone, together[i : i + 1])


@pytest.mark.parametrize("line", [v for v in VARIANTS if v.values[0].mask])
def test_masks_of_one_row_are_alike_however_they_are_said(line):
    mechanism = made(line, 2)
    x = torch.randn(1, 3, WIDTH, dtype=torch.float64)
    want = call(mechanism, line, x, [2], 3)
    for lengths in (2, [2], (2,), torch.tensor([2], dtype=torch.int32)):
        mask = rg.prefix(lengths) if line.source else rg.padding(lengths)
        decoder = isinstance(mechanism, rg.nn.Decoder | rg.nn.DecoderLayer) and line.source
        keywords = {"memory_mask" if decoder else "mask": mask}
        inputs = (x, asked(x, 3)) if line.source else (x,)
        torch.testing.assert_close(mechanism(*inputs, **keywords), want)


@pytest.mark.parametrize("tokens", [1, 3])
@pytest.mark.parametrize("line", [v for v in VARIANTS if v.values[0].module])
def test_a_watch_of_one_row_changes_nothing(line, tokens):
    mechanism = made(line, 1).eval()
    x = torch.randn(1, tokens, WIDTH, dtype=torch.float64)
    for lengths in ([tokens], None) if line.mask else (None,):
        want = call(mechanism, line, x, lengths, tokens)
        try:
            with rg.watch(mechanism) as record:
                got = call(mechanism, line, x, lengths, tokens)
        except rg.errors.WatchError as error:
            assert "no attention" in str(error), error  # positions and feed-forward blocks have none
            continue
        assert torch.equal(got, want)
        for seen in record.calls:
            given = seen.valid().to(seen.sink.dtype) - seen.sink
            torch.testing.assert_close(seen.received.sum(-1), given.sum(-1))


@pytest.mark.parametrize("line", [v for v in VARIANTS if v.values[0].module])
def test_no_token_and_no_row_are_errors_or_nothing(line):
    mechanism = made(line, 2)
    for batch, tokens in ((1, 0), (0, 3), (0, 0)):
        x = torch.randn(batch, tokens, WIDTH, dtype=torch.float64)
        try:
            output = call(mechanism, line, x, None, 3)
        except rg.RegardError:
            continue
        assert output.shape[:2] == (batch, tokens)
