"""Roles: of constructed heads, against sums over dense weights, alike in records, profiles and histories."""

import math

import numpy as np
import pytest
import torch
from benchmarks.constructed_heads import NAMES, draw_text, head, pattern
from hypothesis import given, settings
from hypothesis import strategies as st

import regard as rg
from regard.analysis import roles
from regard.analysis.roles import MIXED, labels
from regard.errors import ArgumentError, RecordError
from regard.record import History, Profile
from regard.statistics.roles import ROLES, scores
from regard.statistics.token_groups import brackets, is_separator, token_groups

BY_QUERY = (
    "previous token",
    "self",
    "first token",
    "local",
    "induction",
    "duplicate token",
    "bracket",
    "separator",
)
STATISTICS = (
    "allowed",
    "lse",
    "effective_keys",
    "first",
    "self_mass",
    "previous",
    "local",
    "received",
    "by_offset",
)


class Scored(torch.nn.Module):
    """One head for each score matrix `(heads, queries, keys)`."""

    def __init__(self, causal):
        super().__init__()
        self.mask = rg.causal() if causal else None

    def forward(self, scores):
        vectors = torch.zeros(1, *scores.shape[:2], 1)
        return rg.attend(vectors, vectors, vectors, mask=self.mask, bias=scores[None].float())


def seen(scores, causal, text=None):
    groups = () if text is None else token_groups(text.ids, text.tokens, causal=causal)
    model = Scored(causal)
    with rg.watch(model, statistics=[*STATISTICS, *groups], map=None) as record:
        model(scores)
    return record


@pytest.mark.parametrize("causal", [True, False])
@pytest.mark.parametrize(("length", "seed"), [(67, 0), (67, 1), (257, 2)])
def test_constructed_heads_have_their_roles(length, seed, causal):
    generator = torch.Generator().manual_seed(seed)
    text = draw_text(length, generator)
    names = [*NAMES, "mixed", "mixed"]
    made = torch.stack([head(name, text, causal, generator) for name in names]).clamp(min=-60)
    found = roles(seen(made, causal, text))
    assert found["role"].tolist() == names
    assert (found["low"] <= found["score"]).all() and (found["score"] <= found["high"]).all()


@pytest.mark.parametrize("causal", [True, False])
@pytest.mark.parametrize("length", [23, 131])
def test_scores_are_those_of_dense_weights(length, causal):
    generator = torch.Generator().manual_seed(length)
    text = draw_text(length, generator)
    made = torch.randn(3, length, length, generator=generator) * 2
    call = seen(made, causal, text)[0]
    found = scores(call, call.uniform, call.offset)
    allowed = torch.ones(length, length, dtype=torch.bool)
    if causal:
        allowed = allowed.tril()
    weights = made.double().masked_fill(~allowed, -math.inf).softmax(-1)
    even = allowed / allowed.sum(-1, keepdim=True).double()
    for name in BY_QUERY:
        keys = pattern(name, text, causal, generator)
        if name == "local":
            keys = (torch.arange(length)[:, None] - torch.arange(length)).abs() <= 8
        part = most = able = 0.0
        for q in range(length):
            fits = keys[q] & allowed[q]
            if fits.any():
                part += float(weights[0, q, fits].sum() - even[q, fits].sum())
                most += 1 - float(even[q, fits].sum())
                able += even[q, fits].sum() < 1 - 1e-12
        expected = math.nan
        if able and most >= 0.05 * able and (able >= 3 or 2 * able >= length):
            expected = min(1.0, max(0.0, part / most))
        assert float(found[name][0, 0]) == pytest.approx(expected, abs=1e-5, nan_ok=True), name
    # The best diagonal, by looking at each.
    best = 0.0
    for d in range(1 - length, length):
        line = weights[0].diagonal(-d).sum() / length
        chance, possible = even.diagonal(-d).sum() / length, 1 - abs(d) / length
        if possible >= 0.5 and possible > chance:
            best = max(best, float((line - chance) / (possible - chance)))
    assert float(found["diagonal"][0, 0]) == pytest.approx(best, abs=1e-5)


@given(st.integers(2, 61), st.booleans())
@settings(max_examples=20)
def test_uniform_weights_have_no_other_role(length, causal):
    generator = torch.Generator().manual_seed(length)
    text = draw_text(length, generator)
    row = roles(seen(torch.zeros(1, length, length), causal, text)).iloc[0]
    assert row["role"] == "uniform"
    others = [name for name in ROLES if name not in ("uniform", "global")]
    assert np.nan_to_num(row[others].astype(float)).max() < 1e-5


def test_records_profiles_and_histories_say_the_same(tmp_path):
    generator = torch.Generator().manual_seed(3)
    text = draw_text(101, generator)
    made = torch.stack([head(name, text, True, generator) for name in NAMES]).clamp(min=-60)
    record = seen(made, True, text)
    found = roles(record)
    record.save(tmp_path / "record")
    of_loaded = roles(rg.load(tmp_path / "record"))
    of_profile = roles(Profile.of([record]))
    of_history = roles(History.of(7, record))
    assert of_history["step"].tolist() == [7] * len(NAMES)
    for other in (of_loaded, of_profile, of_history):
        assert other["role"].tolist() == found["role"].tolist()
        for name in ("score", *ROLES):
            assert np.allclose(other[name], found[name], atol=1e-6, equal_nan=True), name


def test_intervals_become_narrower_with_more_text():
    widths = []
    for length in (64, 512):
        generator = torch.Generator().manual_seed(5)
        text = draw_text(length, generator)
        found = roles(
            seen(head("previous token", text, True, generator)[None].clamp(min=-60), True, text)
        ).iloc[0]
        widths.append(found["high"] - found["low"])
    assert 0 < widths[1] < widths[0] < 0.5


def test_the_offset_of_a_diagonal_is_told():
    keys = torch.arange(71)
    found = roles(seen(40.0 * (keys[None] == keys[:, None] - 9).float()[None], True)).iloc[0]
    assert (found["role"], found["offset"]) == ("diagonal", 9)
    ahead = roles(seen(40.0 * (keys[None] == keys[:, None] + 5).float()[None], False)).iloc[0]
    assert (ahead["role"], ahead["offset"]) == ("diagonal", -5)


def test_in_a_short_text_nothing_is_local():
    keys = torch.arange(9)
    near = 40.0 * ((keys[None] - keys[:, None]).abs() <= 8).float()
    found = roles(seen(near[None], False)).iloc[0]
    assert math.isnan(found["local"]) and found["role"] == "uniform"


def test_cross_attention_has_no_place_of_its_own():
    model = rg.nn.MultiHeadAttention(8, 2)
    with rg.watch(model) as record:
        model(torch.randn(1, 11, 8), torch.randn(1, 17, 8))
    found = roles(record)
    assert found["kind"].tolist() == ["cross", "cross"]
    for name in ("previous token", "self", "local"):
        assert found[name].isna().all()
    assert found["uniform"].notna().all()


def test_padding_and_batches_count_as_texts():
    torch.manual_seed(0)
    model = rg.nn.MultiHeadAttention(8, 2)
    x = torch.randn(3, 29, 8)
    lengths = [29, 17, 23]
    with rg.watch(model, padding=torch.arange(29) < torch.tensor(lengths)[:, None]) as record:
        model(x, mask=rg.padding(lengths))
    whole = roles(record)
    alone = []
    for row, length in enumerate(lengths):
        with rg.watch(model) as one:
            model(x[row : row + 1, :length])
        alone.append(roles(one))
    for name in ("uniform", "first token", "previous token", "self", "local"):
        mean = np.mean([part[name] for part in alone], 0)
        assert np.allclose(whole[name], mean, atol=1e-4), name


def test_the_special_role_stands_for_what_follows_from_it():
    def named(**given):
        values = {name: np.array([given.get(name.replace(" ", "_"), 0.0)]) for name in ROLES}
        (role,), _, (score,) = labels(values)
        return role, float(score)

    assert named(previous_token=0.8, diagonal=0.9, local=0.95) == ("previous token", 0.8)
    # Clearly stronger than what follows from the special role.
    assert named(previous_token=0.55, local=0.95) == ("local", 0.95)
    assert named(induction=0.6, uniform=0.9, **{"global": 0.95}) == ("induction", 0.6)
    assert named(local=0.49) == (MIXED, 0.49)
    assert named() == (MIXED, 0.0)


def test_brackets_and_separators():
    assert brackets(["(", "a", "[", ")", "]", "b)"]) == [1, -1, 0, -1, 0, 1]
    assert brackets(["f(", "x", ")", "()"]) == [0, -1, 0, -1]
    assert [is_separator(token) for token in (".", "\n", "Ċ", "Ġ,", "[SEP]", "</s>", "<|endoftext|>")] == [
        True
    ] * 7
    assert [is_separator(token) for token in ("a", " ", "ĠĠ", "##s", "it's", "", "x.")] == [False] * 7


def test_what_cannot_be_told_is_an_error():
    model = Scored(True)
    with rg.watch(model, statistics=["lse"], map=None) as record:
        model(torch.zeros(1, 5, 5))
    with pytest.raises(RecordError, match="none was kept"):
        roles(record)
    with pytest.raises(ArgumentError, match="ids must be whole numbers"):
        token_groups(torch.zeros(3))
    with pytest.raises(ArgumentError, match="tokens must fit ids of shape"):
        token_groups(torch.arange(3), ["a", "b"])


def test_chance_is_that_of_the_mask_that_an_intervention_adds():
    torch.manual_seed(1)
    model, x = torch.nn.ModuleList([rg.nn.MultiHeadAttention(12, 3)]), torch.randn(1, 31, 12)
    records = []
    for mask in (None, rg.near(3)):
        with rg.watch(model) as record:
            model[0](x, mask=mask)
        records.append(record[0].uniform)
    plain, near = records
    with rg.intervene(model, [(0, 1)], mask=rg.near(3)), rg.watch(model) as record:
        model[0](x)
    with rg.intervene(model, [(0, 1)], top=2), rg.watch(model) as of_largest:
        model[0](x)
    for name, chance in record[0].uniform.items():
        for index, expected in enumerate((plain, near, plain)):
            assert torch.allclose(chance[:, index], expected[name][:, 0], atol=1e-6), name
        # The largest weights are the head's own choice, and no chance.
        assert torch.allclose(of_largest[0].uniform[name][:, 1:2], plain[name], atol=1e-6), name


def test_roles_that_were_not_judged_are_named_with_what_they_need(tmp_path):
    text = draw_text(67, torch.Generator().manual_seed(0))
    model, scores = Scored(True), torch.randn(2, 67, 67)
    with rg.watch(model) as record:
        model(scores)
    unjudged = roles(record).attrs["not_judged"]
    assert unjudged.keys() == {"diagonal", "global", "induction", "duplicate token", "bracket", "separator"}
    assert 'needs the statistic "by_offset"' in unjudged["global"] and "token_groups" in unjudged["induction"]
    for other in (Profile.of([record]), History.of(3, record)):
        assert roles(other).attrs["not_judged"] == unjudged
    # What each asks for is enough.
    every = [*rg.statistics.TABLE, *token_groups(text.ids, [text.tokens])]
    with rg.watch(model, statistics=every) as record:
        model(scores)
    assert roles(record).attrs["not_judged"] == {}
    roles(record).to_parquet(tmp_path / "roles.parquet")
    # Kept, and nothing to tell: no token comes twice.
    with rg.watch(model, statistics=[*rg.statistics.TABLE, *token_groups(torch.arange(67))]) as record:
        model(scores)
    unjudged = roles(record).attrs["not_judged"]
    assert unjudged["induction"].startswith("no text tells it") and "token_groups" in unjudged["bracket"]
    layer = rg.nn.MultiHeadAttention(8, 2)
    with rg.watch(layer) as record:
        layer(torch.randn(1, 11, 8), torch.randn(1, 17, 8))
    assert "of one text" in roles(record).attrs["not_judged"]["previous token"]


@pytest.mark.parametrize("align", ["start", "end"])
@pytest.mark.parametrize(("queries", "keys"), [(5, 11), (11, 5), (7, 7)])
def test_a_diagonal_of_fewer_queries_than_keys_is_scored_by_those_that_have_its_key(queries, keys, align):
    query, key = torch.randn(1, 1, queries, 3).double(), torch.randn(1, 1, keys, 3).double()
    plain = rg.observe(query, key, align=align, statistics=["by_offset", "allowed"])
    even = rg.observe(0 * query, key, align=align, statistics=["by_offset"])
    weights = (query @ key.mT / 3**0.5).softmax(-1)[0, 0]
    offset = keys - queries if align == "end" else 0
    found = scores(plain, {"by_offset": even.by_offset}, offset)["diagonal"]
    best = 0.0
    for d in range(-keys, queries + keys):
        having = [q for q in range(queries) if 0 <= q + offset - d < keys]
        if len(having) >= queries / 2:
            share = sum(float(weights[q, q + offset - d]) - 1 / keys for q in having)
            best = max(best, share / (len(having) * (1 - 1 / keys)))
    assert float(found) == pytest.approx(best, abs=1e-12) and best < 1
