"""Linear, low-rank and recurrent attention under a watch: exactly their own weights, the same bits, merged steps."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

import regard as rg
from nn.mechanisms import implied, watched
from regard.errors import WatchError
from regard.nn import (
    Additive,
    Concat,
    Cosine,
    Elu,
    Features,
    General,
    LandmarkAttention,
    LinearAttention,
    LinearState,
    PositiveRandom,
    ProjectedAttention,
    RecurrentDecoder,
    RecurrentEncoder,
    Score,
    Tempered,
    linear_attention,
)
from regard.record import Call

BATCH, TOKENS, KEYS, WIDTH, HEADS, DIM = 2, 13, 17, 12, 3, 4
MAPS: dict[str, Callable[[], Features]] = {"elu": Elu, "random": lambda: PositiveRandom(DIM, 11)}


def assert_shows(call: Call, weights: Tensor, offset: int = 0) -> None:
    """A call holds the statistics of these weights `(batch, heads, queries, keys)`."""
    exact = weights.double()
    rows, columns = exact.shape[2:]
    q, k = torch.arange(offset, offset + rows)[:, None], torch.arange(columns)
    valid = exact.sum(-1) > 0
    want = {
        "entropy": -torch.special.xlogy(exact, exact).sum(-1),
        "max_weight": exact.amax(-1),
        "min_weight": torch.where(valid, exact.where(exact != 0, torch.inf).amin(-1), 0.0),
        "received": exact.sum(2),
        "received_max": exact.amax(2),
        "position": (exact * k).sum(-1),
        "distance": (exact * (q - k).abs()).sum(-1),
    }
    for name, tensor in want.items():
        got = getattr(call, name)
        torch.testing.assert_close(
            got.double(), tensor, atol=2e-5, rtol=2e-5, msg=lambda m, n=name: f"{n}: {m}"
        )
    assert call.map is not None and torch.equal(valid, call.valid())
    torch.testing.assert_close(call.map.total.sum((2, 3)).double(), exact.sum((2, 3)), atol=1e-4, rtol=1e-4)
    for head in range(exact.shape[1]):
        torch.testing.assert_close(call.weights(head, batch=1).double(), exact[1, head], atol=2e-5, rtol=2e-5)


# --- linear -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("name", MAPS)
def test_linear_attention_is_seen(name: str, causal: bool, dtype: torch.dtype) -> None:
    layer = nn.Sequential(LinearAttention(WIDTH, HEADS, features=MAPS[name](), causal=causal)).to(dtype)
    x = torch.randn(BATCH, 301, WIDTH, dtype=dtype)
    (call,) = watched(layer, lambda: layer(x))
    assert (call.layer, call.kind, call.sizes.queries) == ("0", "self", 301)
    query, key, _ = layer[0].project(x)
    keep = torch.ones(301, 301, dtype=torch.bool).tril() if causal else None
    assert_shows(call, implied(query.double(), key.double(), layer[0].features.double(), keep).detach())


@pytest.mark.parametrize("causal", [False, True])
def test_padding_counts_nowhere(causal: bool) -> None:
    layer, x = LinearAttention(WIDTH, HEADS, causal=causal), torch.randn(BATCH, TOKENS, WIDTH)
    mask = rg.padding(torch.tensor([TOKENS, 7]))
    (call,) = watched(layer, lambda: layer(x, mask=mask))
    query, key, _ = layer.project(x)
    keep = (mask & rg.causal() if causal else mask).dense(TOKENS, TOKENS)
    assert_shows(call, implied(query.double(), key.double(), Elu(), keep).detach())
    assert not call.valid()[1, :, 7:].any()


def test_linear_cross_attention_is_told_by_its_source() -> None:
    layer = LinearAttention(WIDTH, HEADS)
    x, source = torch.randn(BATCH, TOKENS, WIDTH), torch.randn(BATCH, KEYS, WIDTH)
    (call,) = watched(layer, lambda: layer(x, source))
    assert call.kind == "cross" and (call.sizes.queries, call.sizes.keys) == (TOKENS, KEYS)
    query, key, _ = layer.project(x, source)
    assert_shows(call, implied(query.double(), key.double(), Elu()).detach())


@pytest.mark.parametrize("name", MAPS)
def test_decoding_steps_merge_into_the_call_of_the_whole_text(name: str) -> None:
    layer = LinearAttention(WIDTH, HEADS, features=MAPS[name](), causal=True)
    x = torch.randn(BATCH, TOKENS, WIDTH)

    def steps() -> Tensor:
        state = LinearState()
        with torch.no_grad():
            return torch.cat([layer(part, state=state) for part in x.split([7, 1, 1, 3, 1], 1)], 1)

    record = watched(layer, steps)
    (call,) = record
    assert call.steps == 5 and call.sizes.queries == call.sizes.keys == TOKENS
    (whole,) = watched(layer, lambda: layer(x))
    for statistic in ("entropy", "received", "position", "lse"):
        if statistic != "lse" or name == "elu":  # with another common factor, another lse
            torch.testing.assert_close(
                getattr(call, statistic), getattr(whole, statistic), atol=2e-5, rtol=2e-5
            )
    torch.testing.assert_close(call.weights(1), whole.weights(1), atol=2e-5, rtol=2e-5)


def test_two_watches_see_the_same_steps() -> None:
    layer, x, state = LinearAttention(WIDTH, HEADS, causal=True), torch.randn(1, 5, WIDTH), LinearState()
    with rg.watch(layer) as one, rg.watch(layer) as other:
        for token in x.split(1, 1):
            layer(token, state=state)
    assert [call.steps for call in (*one, *other)] == [5, 5]
    assert torch.equal(one[0].entropy, other[0].entropy)


def test_a_state_that_was_filled_unseen_is_refused() -> None:
    layer, state = nn.Sequential(LinearAttention(WIDTH, HEADS, causal=True)), LinearState()
    layer[0](torch.randn(1, 3, WIDTH), state=state)
    layer.forward = lambda x: layer[0](x, state=state)  # type: ignore[method-assign]
    message = r"^0 \(LinearAttention\): its LinearState holds sums .* watch from the first token"
    with pytest.raises(WatchError, match=message), rg.watch(layer):
        layer(torch.randn(1, 1, WIDTH))


def test_the_function_is_seen_in_any_module() -> None:
    class Own(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            query, key, value = x.unflatten(2, (3, HEADS, -1)).permute(2, 0, 3, 1, 4)
            return linear_attention(query, key, value, causal=True)

    module, x = Own(), torch.randn(BATCH, TOKENS, 36)
    (call,) = watched(module, lambda: module(x))
    assert (call.layer, call.kind) == ("Own", "self")


# --- low rank -----------------------------------------------------------------------------------------------


def test_slots_are_seen_as_the_keys_of_a_cross_call() -> None:
    layer, x = ProjectedAttention(WIDTH, HEADS, max_keys=KEYS, rank=5), torch.randn(BATCH, TOKENS, WIDTH)
    (call,) = watched(layer, lambda: layer(x))
    assert call.kind == "cross" and (call.sizes.queries, call.sizes.keys) == (TOKENS, 5)
    query, key, _ = layer.project(x)
    slots = layer.project_key[:, :TOKENS] @ key
    assert_shows(call, torch.softmax(query @ slots.mT / DIM**0.5, -1).detach())


@pytest.mark.parametrize("tokens", [TOKENS, 5])
def test_landmarks_are_seen_as_the_keys_of_a_cross_call(tokens: int) -> None:
    layer, x = LandmarkAttention(WIDTH, HEADS, 5), torch.randn(BATCH, tokens, WIDTH)
    (call,) = watched(layer, lambda: layer(x))
    if tokens == 5:  # exact attention
        assert call.kind == "self"
        return
    assert call.kind == "cross" and (call.sizes.queries, call.sizes.keys) == (TOKENS, 5)
    query, key, _ = layer.project(x)
    far = torch.stack([part.mean(2) for part in key.split([3, 3, 2, 3, 2], 2)], 2)
    assert_shows(call, torch.softmax(query @ far.mT / DIM**0.5, -1).detach())


# --- recurrent ----------------------------------------------------------------------------------------------

SCORES: dict[str, Callable[[], Score]] = {
    "general": lambda: General(7, 10),
    "cosine": lambda: Tempered(Cosine(), 0.2),
    "additive": lambda: Additive(7, 10, 6),
    "concat": lambda: Tempered(Concat(7, 10, 6), 0.3, learned=True),
}


@pytest.mark.parametrize("order", ["bahdanau", "luong"])
@pytest.mark.parametrize("name", SCORES)
def test_a_decoder_is_one_cross_call_whether_taught_or_step_by_step(name: str, order: str) -> None:
    width = 7 if name == "cosine" else 10
    model = nn.ModuleDict({"decoder": RecurrentDecoder(4, 7, width, score=SCORES[name](), order=order)})
    decoder = model["decoder"]
    model.forward = lambda *given, **more: decoder(*given, **more)  # type: ignore[method-assign]
    x, source, lengths = torch.randn(BATCH, 5, 4), torch.randn(BATCH, KEYS, width), torch.tensor([KEYS, 9])
    (call,) = watched(model, lambda: model(x, source, lengths=lengths)[0])
    assert (call.layer, call.kind) == ("decoder", "cross")
    assert (call.sizes.heads, call.sizes.queries, call.sizes.keys) == (1, 5, KEYS)

    def states() -> Tensor:
        """The state that asked at each step."""
        asked, state = [], None
        for token in x.split(1, 1):
            before = torch.zeros(BATCH, 7) if state is None else state.hidden
            _, state = decoder(token, source, state, lengths=lengths)
            asked.append(before if order == "bahdanau" else state.hidden)
        return torch.stack(asked, 1)

    with torch.no_grad():
        scores = decoder.score(states()[:, None], source[:, None])
        scores = scores.masked_fill(~(torch.arange(KEYS) < lengths[:, None, None, None]), -torch.inf)
        assert_shows(call, scores.softmax(-1))

    def steps() -> Tensor:
        state, outputs = None, []
        with torch.no_grad():
            for token in x.split(1, 1):
                out, state = model(token, source, state, lengths=lengths)
                outputs.append(out)
        return torch.cat(outputs, 1)

    (merged,) = watched(model, steps)
    assert merged.steps == 5
    for statistic in ("entropy", "received", "lse", "distance"):
        torch.testing.assert_close(getattr(merged, statistic), getattr(call, statistic), atol=1e-5, rtol=1e-5)
    torch.testing.assert_close(merged.weights(0, batch=1), call.weights(0, batch=1))


class Translator(nn.Module):
    """A whole model of the kind that attention was invented for."""

    def __init__(self) -> None:
        super().__init__()
        self.encoder = RecurrentEncoder(4, 5)
        self.decoder = RecurrentDecoder(4, 10, 10, score=Additive(10, 10, 6))

    def forward(self, source: Tensor, target: Tensor) -> Tensor:
        read, start = self.encoder(source)
        return self.decoder(target, read, start)[0]


def test_a_translator_trains_under_a_watch_with_the_same_gradients() -> None:
    torch.manual_seed(2)
    model, source, target = Translator(), torch.randn(BATCH, KEYS, 4), torch.randn(BATCH, 5, 4)
    leaves = list(model.parameters())
    want = torch.autograd.grad(model(source, target).square().sum(), leaves)
    with rg.watch(model) as record:
        got = torch.autograd.grad(model(source, target).square().sum(), leaves)
    assert all(map(torch.equal, want, got)) and [call.layer for call in record] == ["decoder"]


# --- what holds for all -------------------------------------------------------------------------------------

LAYERS: dict[str, Callable[[], nn.Module]] = {
    "linear": lambda: LinearAttention(WIDTH, HEADS, causal=True),
    "random": lambda: LinearAttention(WIDTH, HEADS, features=PositiveRandom(DIM, 11)),
    "slots": lambda: ProjectedAttention(WIDTH, HEADS, max_keys=KEYS, rank=5),
    "landmarks": lambda: LandmarkAttention(WIDTH, HEADS, 5),
}


@pytest.mark.parametrize("name", LAYERS)
def test_a_stack_is_watched_layer_by_layer_fused_or_not(name: str) -> None:
    model, x = nn.Sequential(LAYERS[name](), LAYERS[name]()), torch.randn(BATCH, TOKENS, WIDTH)
    want = model(x)
    with rg.watch(model, fused=True) as record, rg.watch(model, layers="1") as second:
        assert torch.equal(model(x), want)
    assert [call.layer for call in record] == ["0", "1"] and [call.layer for call in second] == ["1"]
    assert len(record.heads) == 2 * HEADS


@pytest.mark.parametrize("name", LAYERS)
def test_checkpoints_are_seen_once_and_autocast_keeps_its_bits(name: str) -> None:
    class Checkpointed(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer = LAYERS[name]()

        def forward(self, x: Tensor) -> Tensor:
            return checkpoint(self.layer, x, use_reentrant=False)

    model, x = Checkpointed(), torch.randn(BATCH, TOKENS, WIDTH, requires_grad=True)
    grads = []
    for watch in (False, True):
        with torch.autocast("cpu", torch.bfloat16):
            if watch:
                with rg.watch(model) as record:
                    out = model(x)
                    grads.append(torch.autograd.grad(out.float().square().sum(), list(model.parameters())))
            else:
                grads.append(torch.autograd.grad(model(x).float().square().sum(), list(model.parameters())))
    assert all(map(torch.equal, *grads))
    assert [call.layer for call in record] == ["layer"] and record[0].steps == 1


@pytest.mark.parametrize("name", LAYERS)
def test_records_are_saved_with_their_vectors(name: str, tmp_path: Path) -> None:
    layer, x = LAYERS[name](), torch.randn(BATCH, TOKENS, WIDTH)
    record = watched(layer, lambda: layer(x))
    record.save(tmp_path / "record")
    loaded = rg.load(tmp_path / "record")
    assert torch.equal(loaded[0].weights(2, batch=1), record[0].weights(2, batch=1))
    assert torch.equal(loaded[0].entropy, record[0].entropy)
