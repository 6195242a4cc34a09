"""The report as a file: whole, self-contained, escaped, small, and true to the record."""

import base64
import re
from dataclasses import replace
from hashlib import sha256

import numpy as np
import pytest
import torch

import regard
from page import samples
from page.reading import contents, parse, unpacked
from regard.analysis import roles
from regard.errors import ArgumentError, MissingPackageError, RecordError
from regard.page import frame, report
from regard.page.encode import F16_ERROR, LOG8_ERROR
from regard.page.held import one_row
from regard.record import Record
from regard.record.table import table
from regard.statistics.observation import Map
from regard.statistics.table import TABLE
from regard.web.next_tokens import next_tokens
from regard.web.overview import overview


@pytest.fixture(scope="module")
def small():
    record = samples.decoder(samples.pieces(13), layers=2, heads=3)
    return record, report(record)


def exact_weights(call, head, batch=0):
    """From the scores, in float64."""
    scores = call.query[batch, head].double()
    if call.kind == "self" and call.spec.mask is not None:
        scores = scores.masked_fill(torch.ones_like(scores).triu(1).bool(), -torch.inf)
    return scores.softmax(-1).numpy()


def test_tags_are_balanced(small):
    assert parse(small[1]).faults == []


def test_an_unclosed_tag_is_found(small):
    assert parse(small[1].replace("</footer>", "")).faults != []


def test_nothing_is_loaded_from_anywhere(small):
    for tag, attributes in parse(small[1]).tags:
        for name in ("src", "href", "action", "data", "srcset", "poster"):
            assert (attributes.get(name) or "data:").startswith("data:"), (tag, attributes)
    style = parse(small[1]).texts["<style>"]
    assert "url(" not in style and "@import" not in style


def test_the_policy_allows_this_script_and_nothing_else(small):
    page = parse(small[1])
    (policy,) = [a["content"] for tag, a in page.tags if a.get("http-equiv") == "Content-Security-Policy"]
    rules = dict(rule.split(" ", 1) for rule in policy.split("; "))
    assert rules["default-src"] == "'none'" and "unsafe" not in policy
    loader = re.search(r"<script>(.*?)</script>", small[1], re.S)[1].encode()
    wanted = [sha256(content).digest() for content in (loader, unpacked(page.texts["program"]))]
    allowed = [base64.b64decode(source[8:-1]) for source in rules["script-src"].split()]
    assert allowed == wanted


def test_the_licenses_of_the_front_end_are_in_the_page(small):
    script = unpacked(parse(small[1]).texts["program"]).decode()
    comment, _, program = script.partition("*/")
    assert script.startswith("/*") and len(program) > 1e5
    assert "openseadragon" in comment and "svelte" in comment and "Redistribution" in comment


def test_hostile_text_stays_text():
    record = samples.decoder(samples.HOSTILE, layers=1, heads=2)
    record.info["text"] = record.info["</dl><script>"] = "</title><script>alert(1)</script>"
    record.calls[0] = replace(
        record.calls[0], layer="</script><script>alert(2)", groups={"<img src=x>": record.calls[0].first}
    )
    html = report(record, title='<img src=x onerror="alert(1)">\ud800')
    page = parse(html)
    assert page.faults == []
    assert [tag for tag, _ in page.tags].count("script") == 3
    assert "img" not in {tag for tag, _ in page.tags}
    assert page.texts["<title>"] == '<img src=x onerror="alert(1)">?'
    assert contents(html).description["tokens"] == [samples.HOSTILE]
    html.encode("utf-8")


def test_the_title_is_the_model_unless_told(small):
    assert parse(small[1]).texts["<h1>"] == "a small decoder"
    assert parse(report(small[0], title="Mine")).texts["<h1>"] == "Mine"


def means(description, name):
    """A statistic of all heads in turn."""
    return [value for call in description["calls"] for value in call["means"][name]]


def test_every_number_is_explained(small):
    found = contents(small[1]).description
    for name in ("entropy", "max_weight", "previous", "received"):
        assert found["statistics"][name]["meaning"].startswith(TABLE[name].meaning)
    shown = {name for call in found["calls"] for name in call["means"]}
    # No mean of places, and no sink where there is none.
    assert shown >= {"entropy_fraction", "received_share", "previous"} and not shown & {"argmax", "sink"}
    words = parse(small[1])
    for name in (*shown, *found["row_statistics"], *found["column_statistics"]):
        assert found["statistics"][name]["meaning"].endswith(".")
    assert {"argmax", "sink"}.isdisjoint(found["statistics"]) and words.faults == []


def test_the_table_is_the_record_s():
    record = samples.decoder(samples.pieces(17), layers=2, heads=3)
    found, heads = contents(report(record)).description, table(record.calls)
    for name in found["calls"][0]["means"]:
        np.testing.assert_array_equal(np.array(means(found, name), np.float64), heads[name])


def test_each_row_of_a_batch_has_its_own_numbers():
    record = samples.decoder(samples.pieces(11), layers=1, heads=3, batch=3)
    found = contents(report(record, rows=2))
    texts = found.index["texts"]
    assert [text["entry"]["id"] for text in texts] == ["text-0", "text-1"]
    assert texts[1]["entry"]["title"].startswith("1: def total(prices")
    for row, text in enumerate(texts):
        shown = text["description"]
        assert {call["batch"] for call in shown["calls"]} == {1} and len(shown["tokens"]) == 1
        np.testing.assert_allclose(means(shown, "entropy"), record.calls[0].entropy[row].mean(-1), rtol=1e-6)
        entropy = found.array(text["calls"][0]["series"]["entropy"])
        np.testing.assert_allclose(entropy, record.calls[0].entropy[row], rtol=F16_ERROR, atol=1e-7)
    assert means(texts[0]["description"], "entropy") != means(texts[1]["description"], "entropy")


def test_each_head_has_its_role():
    record = samples.watched(batch=2)
    for row, text in enumerate(contents(report(record, rows=2)).index["texts"]):
        told = roles(Record([one_row(record[0], row)]))
        for head, shown in enumerate(text["description"]["calls"][0]["roles"]):
            assert shown["role"] == told["role"][head]
            numbers = told.loc[head, ["score", "low", "high"]].astype(float)
            np.testing.assert_allclose([shown[name] for name in ("score", "low", "high")], numbers)


def test_without_statistics_no_head_has_a_role():
    found = contents(report(samples.decoder(samples.pieces(11), layers=1, heads=3))).description
    assert found["calls"][0]["roles"] is None


def test_next_tokens_are_those_of_the_model(small):
    logits = torch.randn(13, 37)
    found = contents(report(small[0], next_tokens=next_tokens(logits, lambda token: f"<{token}>", count=9)))
    assert found.index["texts"][0]["entry"]["next_tokens"]
    held = found.index["texts"][0]["next"]
    likeliest = logits.softmax(-1).topk(6, -1)
    assert (found.array(held["token"]) == likeliest.indices.numpy()).all()
    np.testing.assert_allclose(found.array(held["probability"]), likeliest.values, rtol=1e-5)
    assert held["texts"] == {str(token): f"<{token}>" for token in set(likeliest.indices.ravel().tolist())}
    assert not contents(small[1]).index["texts"][0]["entry"]["next_tokens"]


@pytest.mark.parametrize(
    "options", [{"grid": 64}, {"grid": 8, "vectors": True}, {"grid": None, "vectors": True}]
)
def test_short_texts_are_shown_weight_by_weight(options):
    record = samples.decoder(samples.pieces(29), layers=2, heads=3, batch=2, **options)
    truth = samples.decoder(samples.pieces(29), layers=2, heads=3, batch=2, vectors=True)
    found = contents(report(record))
    for row, text in enumerate(found.index["texts"]):
        assert all(call["vectors"] for call in text["description"]["calls"])
        for index, call in enumerate(text["calls"]):
            assert call["map"]["cell"] == 1 and "max" not in call["map"]
            shown = found.array(call["map"]["mean"])
            for head in range(3):
                wanted = exact_weights(truth.calls[index], head, row)
                assert np.abs(shown[head] - wanted).max() <= F16_ERROR
                assert (shown[head] == 0)[np.triu_indices(29, 1)].all()
            # What the mask allows is known of a call whose vectors were kept, once for all heads.
            if options.get("vectors"):
                assert (found.array(call["map"]["allowed"])[0] == np.tri(29, dtype=bool)).all()
            else:
                assert call["map"]["allowed"] is None


def test_long_texts_are_pooled():
    record = samples.decoder(samples.pieces(307), layers=1, heads=2, vectors=True)
    found = contents(report(record))
    picture = found.calls[0]["map"]
    assert picture["cell"] == found.description["calls"][0]["map_cell"] == 4
    assert not found.description["calls"][0]["vectors"]
    arrays, info = overview(record, 128)
    assert info["calls"]["0"] == {"cell": 4, "offset": 0}
    for name in ("mean", "max"):
        shown, logs = found.array(picture[name]), arrays[f"0.{name}"]
        np.testing.assert_allclose(shown, logs.double().exp().nan_to_num(), rtol=1.3 * LOG8_ERROR, atol=1e-6)
    # A cell is gray where the mask allows no pair in it.
    assert (found.array(picture["allowed"])[0] == ~arrays["0.mean"][0].isnan().numpy()).all()
    assert found.array(picture["count"])[0].tolist() == [4] * 76 + [3]
    weights = exact_weights(record.calls[0], 1)
    blocks = np.pad(weights, (0, 1)).reshape(77, 4, 77, 4)
    np.testing.assert_allclose(
        found.array(picture["max"])[1], blocks.max((1, 3)), rtol=1.001 * LOG8_ERROR, atol=1e-6
    )


@pytest.mark.parametrize("vectors", [True, False])
def test_queries_may_begin_within_a_cell(vectors):
    # Five queries at the end of 307 keys, so the first cells have three rows that are before them.
    scores = torch.randn(1, 2, 5, 307)
    call = samples.call("layers.0", scores, mask=regard.causal(), vectors=vectors)
    found = contents(report(Record([call])))
    picture = found.calls[0]["map"]
    assert (picture["cell"], picture["shift"], picture["lead"]) == (4, 2, 75)
    assert found.array(picture["count"])[0].tolist() == [2, 3]
    masked = scores[0].masked_fill(torch.ones(5, 307).triu(303).bool(), -torch.inf)
    blocks = np.pad(masked.softmax(-1).numpy(), ((0, 0), (2, 1), (0, 1))).reshape(2, 2, 4, 77, 4)
    shown = found.array(picture["max"])
    np.testing.assert_allclose(shown, blocks.max((2, 4)), rtol=1.001 * LOG8_ERROR, atol=1e-6)


def test_series_along_the_text():
    record = samples.decoder(samples.pieces(23), layers=1, heads=3)
    found = contents(report(record))
    call, series = record.calls[0], found.calls[0]["series"]
    assert set(series) >= {"entropy", "received", "max_weight", "lse", "distance", "received_max"}
    for name, part in series.items():
        assert part["cell"] == 1
        wanted = getattr(call, name)[0].expand(3, -1)
        np.testing.assert_allclose(found.array(part), wanted, rtol=F16_ERROR, atol=1e-7)
    listed = [*found.description["row_statistics"], *found.description["column_statistics"]]
    assert set(listed) == set(series)


def test_a_query_that_may_attend_nothing_has_no_number():
    scores = torch.randn(1, 2, 7, 7)
    call = samples.call("layers.0", scores, mask=regard.causal() & regard.padding(5, start=2), vectors=True)
    found = contents(report(Record([call])))
    entropy = found.array(found.calls[0]["series"]["entropy"])
    assert np.isnan(entropy).tolist() == [[True, True, False, False, False, False, False]] * 2
    picture = found.calls[0]["map"]
    assert found.array(picture["count"])[0].tolist() == [0, 0, 1, 1, 1, 1, 1]
    assert not found.array(picture["allowed"])[0][:2].any()


def test_encoder_decoder_and_cross_are_told_apart():
    found = contents(report(samples.translator(list("abcdefg"), list("tuvwx")))).description
    assert list(dict.fromkeys(call["section"] for call in found["calls"])) == [
        "Encoder",
        "Decoder",
        "Cross-attention",
    ]
    texts = {call["section"]: (call["query_text"], call["key_text"]) for call in found["calls"]}
    assert texts["Encoder"] == ("source", "source") and texts["Cross-attention"] == ("tokens", "source")


def test_without_maps_and_tokens_it_says_so():
    record = samples.decoder(samples.pieces(7), layers=1, heads=2, grid=None)
    record.tokens = None
    html = report(record)
    assert contents(html).calls[0]["map"] is None
    assert "The record holds no map" in html


def test_a_record_of_few_statistics_has_a_report():
    call = samples.call("layers.0", torch.randn(1, 2, 5, 5), statistics=["entropy", "allowed"])
    found = contents(report(Record([call])))
    assert set(found.description["calls"][0]["means"]) == {"entropy", "entropy_fraction", "allowed"}
    for less in (
        {"allowed": None, "attends": None},
        {"allowed": None, "attends": None, "entropy": None, "map": None},
    ):
        found = contents(report(Record([replace(call, **less)])))
        assert found.description["calls"][0]["means"] == {}  # which queries count is not known
        assert found.calls[0]["series"] == {}


def test_a_learned_sink_is_in_the_table_and_along_the_text():
    call = samples.call("layers.0", torch.randn(1, 2, 5, 5), sink_logit=torch.tensor([0.3, -1.0]))
    found = contents(report(Record([call])))
    np.testing.assert_allclose(found.array(found.calls[0]["series"]["sink"]), call.sink[0], rtol=F16_ERROR)
    assert "sink" in found.description["calls"][0]["means"]


def fake(tokens, layers, heads):
    """The largest kind of record: every statistic of every token, and full maps of noise, which deflate badly."""
    cell = 1 << max(0, (tokens - 1).bit_length() - 7)
    side = -(-tokens // cell)
    base = samples.call("layers.0", torch.randn(1, heads, 3, 3))
    row = torch.rand(1, heads, tokens)
    calls = []
    for layer in range(layers):
        noise = (torch.randn(1, heads, side, side) * 1.5).softmax(-1)
        picture = Map(
            total=noise * cell,
            peak=noise * torch.rand_like(noise),
            rows=torch.full((1, 1, side), cell),
            cell=cell,
            queries=tokens,
            keys=tokens,
            offset=0,
        )
        kept = {
            name: torch.rand_like(row)
            for name in (*base.row_names(), "received")
            if name not in ("argmax", "allowed")
        }
        places = {"argmax": (row * tokens).long(), "allowed": torch.full_like(row, tokens, dtype=torch.int64)}
        sizes = replace(base.sizes, queries=tokens, keys=tokens)
        calls.append(replace(base, **kept, **places, layer=f"layers.{layer}", map=picture, sizes=sizes))
    return Record(calls, [samples.pieces(tokens)])


@pytest.mark.parametrize("tokens, most", [(128, 5), (512, 5), (2048, 5), (8192, 5)])
def test_the_report_of_a_large_model_stays_small(tokens, most):
    html = report(fake(tokens, 12, 12))
    assert len(html) < most * 1e6
    # Small, and not for want of pictures.
    (cell,) = {call["map"]["cell"] for call in contents(html).calls}
    assert cell <= max(1, tokens // 64)


def test_larger_models_get_coarser_maps():
    found = contents(report(fake(256, 24, 24)))
    assert found.calls[0]["map"]["cell"] == 8
    assert {part["cell"] for part in found.calls[0]["series"].values()} == {1}


def test_points_of_many_tokens_are_means():
    record = fake(8192, 12, 12)
    found = contents(report(record))
    part = found.calls[3]["series"]["entropy"]
    assert part["cell"] == 4
    wanted = record.calls[3].entropy[0].reshape(12, 2048, 4).mean(-1)
    np.testing.assert_allclose(found.array(part), wanted, rtol=1.01 * F16_ERROR)


def test_bad_arguments():
    with pytest.raises(RecordError, match="at least one attention call, and this record holds none"):
        report(Record())
    with pytest.raises(ArgumentError, match="rows must be at least 1, got 0"):
        report(samples.decoder(list("ab"), layers=1, heads=1), rows=0)
    with pytest.raises(ArgumentError, match="next_tokens must be a NextTokens, got 3"):
        report(samples.decoder(list("ab"), layers=1, heads=1), next_tokens=3)


def test_a_front_end_that_was_not_built_is_said(monkeypatch, tmp_path):
    monkeypatch.setattr(frame.resources, "files", lambda _: tmp_path)
    with pytest.raises(
        MissingPackageError, match="must be built, and is not: in the source tree, `make web`"
    ):
        frame.program()
