"""The report as a file: whole, self-contained, escaped, small, and true to the record."""

import base64
import hashlib
import re
from dataclasses import replace

import numpy as np
import pytest
import torch

import regard
from page import samples
from page.reading import contents, parse
from regard.analysis import roles
from regard.errors import ArgumentError, RecordError
from regard.page import report
from regard.page.describe import _one_row
from regard.page.encode import F16_ERROR, LOG8_ERROR
from regard.record import Record
from regard.record.table import table
from regard.statistics.observation import Map
from regard.statistics.table import TABLE


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
    script = re.search(r"<script>(.*?)</script>", small[1], re.S)[1]
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    assert rules["script-src"] == f"'sha256-{digest}'"


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
    assert contents(html).description["texts"]["tokens"] == [samples.HOSTILE]
    html.encode("utf-8")


def test_the_title_is_the_model_unless_told(small):
    assert parse(small[1]).texts["<h1>"] == "a small decoder"
    assert parse(report(small[0], title="Mine")).texts["<h1>"] == "Mine"


def test_every_number_is_explained(small):
    found = contents(small[1]).description
    for name in ("entropy", "max_weight", "previous", "received"):
        assert found["statistics"][name]["meaning"].startswith(TABLE[name].meaning)
    for name in found["columns"]:
        assert found["statistics"][name]["meaning"].endswith(".")


def test_the_table_is_the_record_s():
    record = samples.decoder(samples.pieces(17), layers=2, heads=3)
    found, heads = contents(report(record)).description, table(record.calls)
    for column, name in enumerate(found["columns"]):
        shown = [head["values"][0][column] for head in found["heads"]]
        np.testing.assert_allclose(shown, heads[name], rtol=1e-4, atol=1e-8)
    assert {"entropy_fraction", "received_share", "previous"} <= set(found["columns"])
    assert not {"argmax", "sink"} & set(found["columns"])  # no mean of places, no sink where there is none


def test_each_row_of_a_batch_has_its_own_numbers():
    record = samples.decoder(samples.pieces(11), layers=1, heads=3, batch=3)
    found = contents(report(record, rows=2)).description
    assert (found["sequences"], found["batch"]) == (2, 3)
    column = found["columns"].index("entropy")
    shown = [head["values"] for head in found["heads"]]
    for row in range(2):
        entropy = record.calls[0].entropy[row].mean(-1)
        np.testing.assert_allclose([values[row][column] for values in shown], entropy, rtol=1e-4)
    assert shown[0][0][column] != shown[0][1][column]


def test_each_head_has_its_role():
    record = samples.watched(batch=2)
    found = contents(report(record, rows=2)).description
    for row in range(2):
        told = roles(Record([_one_row(record[0], row)]))
        for head, shown in enumerate(found["heads"]):
            name, *numbers = shown["roles"][row]
            assert name == told["role"][head]
            np.testing.assert_allclose(
                numbers, told.loc[head, ["score", "low", "high"]].astype(float), rtol=1e-4
            )


def test_without_statistics_no_head_has_a_role():
    found = contents(report(samples.decoder(samples.pieces(11), layers=1, heads=3))).description
    assert [head["roles"] for head in found["heads"]] == [[None]] * 3


@pytest.mark.parametrize(
    "options", [{"grid": 64}, {"grid": 8, "vectors": True}, {"grid": None, "vectors": True}]
)
def test_short_texts_are_shown_weight_by_weight(options):
    record = samples.decoder(samples.pieces(29), layers=2, heads=3, batch=2, **options)
    truth = samples.decoder(samples.pieces(29), layers=2, heads=3, batch=2, vectors=True)
    found = contents(report(record))
    for place, call in enumerate(found.description["calls"]):
        assert call["picture"]["cell"] == 1 and "peak" not in call["picture"]
        shown = found.array(call["picture"]["mean"])
        for row in range(2):
            for head in range(3):
                wanted = exact_weights(truth.calls[place], head, row)
                assert np.abs(shown[row, head] - wanted).max() <= F16_ERROR
                assert (shown[row, head] == 0)[np.triu_indices(29, 1)].all()


def test_long_texts_are_pooled():
    record = samples.decoder(samples.pieces(307), layers=1, heads=2, vectors=True)
    found = contents(report(record))
    picture = found.description["calls"][0]["picture"]
    assert picture["cell"] == 4
    weights = exact_weights(record.calls[0], 1)
    blocks = np.pad(weights, (0, 1)).reshape(77, 4, 77, 4)
    peak = found.array(picture["peak"])[0, 1]
    np.testing.assert_allclose(peak, blocks.max((1, 3)), rtol=1.001 * LOG8_ERROR, atol=1e-6)
    mean = found.array(picture["mean"])[0, 1]
    np.testing.assert_allclose(
        mean[:-1, :-1], blocks.mean((1, 3))[:-1, :-1], rtol=1.001 * LOG8_ERROR, atol=1e-6
    )


def test_series_along_the_text():
    record = samples.decoder(samples.pieces(23), layers=1, heads=3)
    found = contents(report(record))
    call, series = record.calls[0], found.description["calls"][0]["series"]
    np.testing.assert_allclose(found.array(series["entropy"]), call.entropy, rtol=F16_ERROR, atol=1e-7)
    np.testing.assert_allclose(found.array(series["received"]), call.received, rtol=F16_ERROR, atol=1e-7)
    np.testing.assert_allclose(found.array(series["bound"])[0, 0], np.log(np.arange(1, 24)), rtol=1e-3)
    assert (found.array(series["argmax"]) == call.argmax.numpy()).all()


def test_a_query_that_may_attend_nothing_is_marked():
    scores = torch.randn(1, 2, 7, 7)
    call = samples.call("layers.0", scores, mask=regard.causal() & regard.padding(5, start=2))
    found = contents(report(Record([call], None, None, {})))
    bound = found.array(found.description["calls"][0]["series"]["bound"])[0, 0]
    np.testing.assert_allclose(bound, [-1, -1, *np.log(np.arange(1, 6))], rtol=1e-3)


def test_encoder_decoder_and_cross_are_told_apart():
    found = contents(report(samples.translator(list("abcdefg"), list("tuvwx")))).description
    assert [section["title"] for section in found["sections"]] == ["Encoder", "Decoder", "Cross-attention"]
    assert [len(section["heads"]) for section in found["sections"]] == [15, 15, 15]
    texts = {call["section"]: (call["query_text"], call["key_text"]) for call in found["calls"]}
    assert texts == {0: ("source", "source"), 1: ("tokens", "tokens"), 2: ("tokens", "source")}
    assert [call["label"] for call in found["calls"] if call["section"] == 2] == ["0", "1", "2"]


def test_layers_are_named_by_the_number_that_differs():
    calls = [samples.call(f"h.1.block.{i}.attn", torch.randn(1, 1, 3, 3)) for i in (4, 7)]
    found = contents(report(Record(calls))).description
    assert [call["label"] for call in found["calls"]] == ["4", "7"]
    twice = [replace(calls[0]), calls[0]]
    assert [call["label"] for call in contents(report(Record(twice))).description["calls"]] == ["0", "1"]


def test_without_maps_and_tokens_it_says_so():
    record = samples.decoder(samples.pieces(7), layers=1, heads=2, grid=None)
    record.tokens = None
    html = report(record)
    assert contents(html).description["calls"][0]["picture"] is None
    assert "The record holds no map" in html


def test_a_record_of_few_statistics_has_a_report():
    call = samples.call("layers.0", torch.randn(1, 2, 5, 5), statistics=["entropy", "allowed"])
    found = contents(report(Record([call]))).description
    assert set(found["columns"]) == {"entropy", "entropy_fraction", "allowed"}
    for less in (
        {"allowed": None, "attends": None},
        {"allowed": None, "attends": None, "entropy": None, "map": None},
    ):
        found = contents(report(Record([replace(call, **less)]))).description
        assert found["columns"] == []  # which queries count is not known
        assert set(found["calls"][0]["series"]) == {"step"}


def test_a_learned_sink_is_in_the_table_and_raises_the_bound():
    call = samples.call("layers.0", torch.randn(1, 2, 5, 5), sink_logit=torch.tensor([0.3, -1.0]))
    found = contents(report(Record([call])))
    assert "sink" in found.description["columns"]
    bound = found.array(found.description["calls"][0]["series"]["bound"])
    np.testing.assert_allclose(bound, np.log(6), rtol=1e-3)


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


@pytest.mark.parametrize("tokens, most", [(128, 4), (512, 6.6), (8192, 6.6)])
def test_the_report_of_a_large_model_stays_small(tokens, most):
    assert len(report(fake(tokens, 12, 12))) < most * 1e6


def test_larger_models_get_coarser_maps():
    found = contents(report(fake(256, 24, 24))).description
    assert found["calls"][0]["picture"]["cell"] == 4
    assert found["calls"][0]["series"]["step"] == 1


def test_bad_arguments():
    with pytest.raises(RecordError, match="at least one attention call, and this record holds none"):
        report(Record())
    with pytest.raises(ArgumentError, match="rows must be at least 1, got 0"):
        report(samples.decoder(list("ab"), layers=1, heads=1), rows=0)
