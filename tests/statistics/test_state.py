"""The state is a commutative monoid, and reading it gives the statistics of the union of its keys."""

from dataclasses import fields

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from scipy.special import entr, logsumexp, softmax

from regard.statistics.state import State, identity, merge, sink_state

ROWS, WIDTH, TOP = (2, 3, 5), 3, 2  # batch, heads, queries


def lift(scores, values, keys):
    """The state of the keys at these positions by its definition; nothing is shared with an engine."""
    there = scores > -torch.inf
    m = scores.amax(-1) if scores.shape[-1] else torch.full(scores.shape[:-1], -torch.inf, dtype=scores.dtype)
    x = torch.where(there, scores - torch.where(m.isinf(), 0.0, m)[..., None], 0.0)
    p = torch.where(there, x.exp(), 0.0)
    phi = torch.stack([keys, keys**2], -1).to(scores.dtype)
    order = sorted(range(len(keys)), key=lambda i: int(keys[i]))
    by_key = scores[..., order]  # a stable sort by score then puts the earlier key first
    best, place = torch.nn.functional.pad(by_key, (0, TOP), value=-torch.inf).sort(
        dim=-1, descending=True, stable=True
    )
    names = torch.cat([keys[order], torch.full((TOP,), -1)])[place]
    return State(
        m=m,
        l=p.sum(-1),
        u=(p * x).sum(-1),
        r=p.square().sum(-1),
        o=p @ values,
        c=p @ phi,
        count=there.sum(-1),
        least=torch.nn.functional.pad(scores.where(there, torch.inf), (0, 1), value=torch.inf).amin(-1),
        top_scores=best[..., :TOP],
        top_keys=torch.where(best.isneginf(), -1, names)[..., :TOP],
    )


@st.composite
def scored_keys(draw, largest=60.0):
    """Scores (*ROWS, keys) with −inf, whole empty rows and ties; values of the keys; their shuffled positions."""
    torch.manual_seed(draw(st.integers(0, 2**16)))
    keys = draw(st.integers(0, 13))
    scores = torch.randn(*ROWS, keys, dtype=torch.float64) * draw(st.sampled_from([0.0, 1.0, largest]))
    scores = scores.round() if draw(st.booleans()) else scores
    scores = scores + draw(st.sampled_from([0.0, 1000.0, -1000.0]))
    scores[torch.rand(scores.shape) < draw(st.sampled_from([0.0, 0.5, 1.0]))] = -torch.inf
    return scores, torch.randn(keys, WIDTH, dtype=torch.float64), torch.randperm(keys)


@st.composite
def split_keys(draw, pieces):
    """The states of disjoint pieces of one set of keys, and the state of all."""
    scores, values, positions = draw(scored_keys())
    cuts = sorted(draw(st.lists(st.integers(0, len(values)), min_size=pieces - 1, max_size=pieces - 1)))
    ranges = [slice(a, b) for a, b in zip([0, *cuts], [*cuts, len(values)], strict=True)]
    parts = [lift(scores[..., part], values[part], positions[part]) for part in ranges]
    return parts, lift(scores, values, positions)


def assert_same(a: State, b: State, *, exact: bool = False) -> None:
    for field in fields(State):
        mine, other = getattr(a, field.name), getattr(b, field.name)
        if exact or not mine.is_floating_point():
            assert torch.equal(mine, other), field.name
        else:
            torch.testing.assert_close(
                mine, other, rtol=1e-11, atol=1e-11, msg=lambda m, f=field: f"{f.name}: {m}"
            )


@given(scored_keys())
def test_identity_holds_on_both_sides(keys):
    state = lift(*keys)
    assert_same(merge(state, identity(state)), state, exact=True)
    assert_same(merge(identity(state), state), state, exact=True)


def test_empty_and_empty_is_empty():
    nothing = identity(lift(torch.zeros(*ROWS, 1), torch.zeros(1, WIDTH), torch.arange(1)))
    both = merge(nothing, nothing)
    assert_same(both, nothing, exact=True)
    assert both.lse.isneginf().all() and not both.entropy.any()
    for field in fields(State):
        assert not getattr(both, field.name).isnan().any()


@given(split_keys(2))
def test_merging_is_commutative(split):
    (a, b), _ = split
    assert_same(merge(a, b), merge(b, a))


@given(split_keys(3))
def test_merging_is_associative(split):
    (a, b, c), _ = split
    assert_same(merge(merge(a, b), c), merge(a, merge(b, c)))


@given(split_keys(4))
def test_any_split_merged_is_the_whole(split):
    parts, whole = split
    merged = identity(whole)
    for part in parts:
        merged = merge(merged, part)
    assert_same(merged, whole)


@given(scored_keys())
def test_what_is_read_is_the_textbook_formula(keys):
    scores, values, positions = keys
    state = lift(scores, values, positions)
    rows = zip(
        scores.flatten(0, 2).numpy(), state.lse.flatten(), state.entropy.flatten(), state.l.flatten(),
        state.r.flatten(), state.o.flatten(0, 2), strict=True,
    )  # fmt: skip
    for row, lse, entropy, l, r, o in rows:
        if not (row > -torch.inf).any():
            assert lse == -torch.inf and entropy == 0 and l == 0 and r == 0 and not o.any()
            continue
        weights = softmax(row)
        assert float(lse) == pytest.approx(logsumexp(row), rel=1e-12)
        assert float(entropy) == pytest.approx(entr(weights).sum(), abs=1e-11)
        assert float(1 / l) == pytest.approx(weights.max())
        assert float(r / l**2) == pytest.approx((weights**2).sum())
        torch.testing.assert_close(o / l, torch.from_numpy(weights) @ values)


def test_entropy_keeps_its_digits_when_scores_are_large():
    scores = (torch.randn(*ROWS, 64) + 3000).float()
    state = lift(scores, torch.zeros(64, WIDTH), torch.arange(64))
    truth = torch.from_numpy(entr(softmax(scores.double().numpy(), axis=-1)).sum(-1))
    raw = state.lse - (torch.softmax(scores, -1) * scores).sum(-1)  # Σ p · score, not centered
    assert (state.entropy - truth).abs().max() < 1e-5 < (raw - truth).abs().max()


@given(scored_keys(), st.lists(st.sampled_from([-torch.inf, -30.0, 0.5, 1001.0]), min_size=3, max_size=3))
def test_a_sink_is_one_more_key_without_a_value(keys, logits):
    scores, values, positions = keys
    logit = torch.tensor(logits, dtype=torch.float64)
    state = lift(scores, values, positions)
    got = merge(state, sink_state(state, logit))
    column = logit.view(1, 3, 1, 1).expand(*ROWS, 1).clone()
    column[(scores == -torch.inf).all(-1)] = -torch.inf  # an empty row stays empty
    joint = lift(
        torch.cat([scores, column], -1),
        torch.cat([values, torch.zeros(1, WIDTH)]),
        torch.arange(len(values) + 1),
    )
    for name in ("m", "l", "u", "r", "o"):
        torch.testing.assert_close(getattr(got, name), getattr(joint, name), rtol=1e-11, atol=1e-11)
    for name in ("count", "top_scores", "top_keys"):  # it is nobody's key
        assert torch.equal(getattr(got, name), getattr(state, name))
    shrink = (state.m - got.m).nan_to_num(0.0).exp()
    torch.testing.assert_close(got.c, shrink[..., None] * state.c)


def test_what_was_not_asked_for_stays_none():
    a = State(m=torch.zeros(ROWS), l=torch.ones(ROWS))
    for state in (merge(a, a), identity(a), merge(a, sink_state(a, torch.zeros(3)))):
        assert {f.name for f in fields(State) if getattr(state, f.name) is not None} == {"m", "l"}


def test_a_broken_row_stays_alone():
    a = lift(torch.randn(*ROWS, 4), torch.zeros(4, WIDTH), torch.arange(4))
    a.m[0, 1, 2] = torch.nan
    broken = merge(a, lift(torch.randn(*ROWS, 4), torch.zeros(4, WIDTH), torch.arange(4) + 4)).lse.isnan()
    assert broken[0, 1, 2] and broken.sum() == 1
