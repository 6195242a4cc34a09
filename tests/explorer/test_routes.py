"""Every route gives the numbers of the Python API."""

import io
import json

import numpy as np
import pandas
import pytest
import torch

from regard.analysis.roles import of_call
from regard.web.arrays import unpack

HEAD = "/api/records/r1/calls/{}/heads/{}"


def arrays(answer):
    """The arrays of an answer, and what it says beside them."""
    assert answer.status_code == 200, answer.text
    assert answer.headers["content-type"] == "application/octet-stream"
    return unpack(answer.content)


def test_the_state_says_what_is_open(client):
    state = client.get("/api/state").json()
    (line,) = state["records"]
    assert line == {
        "id": "r1",
        "title": "A pair",
        "model": "Pair",
        "tokens": 37,
        "calls": 2,
        "kind": "record",
        "can_change": False,
        "next_tokens": False,
        "shared": False,
        "base": None,
        "changes": [],
    }
    assert [(model["id"], model["takes"]) for model in state["models"]] == [
        ("fast", "text"),
        ("eye", "image"),
    ]
    assert state["limits"]["text"] == 1000 and state["jobs"] == []


def test_the_description_has_the_tables_numbers(client, record):
    described = client.get("/api/records/r1").json()
    assert described["id"] == "r1" and described["tokens"] == record.tokens
    heads = record.heads
    for index, call in enumerate(described["calls"]):
        mine = heads[heads["call"] == index]
        sizes = record[index].sizes
        assert (call["heads"], call["kv_heads"], call["batch"]) == (sizes.heads, sizes.kv_heads, 2)
        assert (call["queries"], call["keys"]) == (37, sizes.keys) and call["vectors"]
        assert call["map_cell"] == record[index].map.cell
        for name, values in (call["means"] | {f"role.{k}": v for k, v in call["scores"].items()}).items():
            want = mine[name].to_numpy()
            assert [value is None for value in values] == list(~np.isfinite(want)), name
            assert np.allclose([v for v in values if v is not None], want[np.isfinite(want)], rtol=1e-12)
            assert name.removeprefix("role.") in described["statistics"], name
        roles = of_call(record[index])
        assert [one["role"] for one in call["roles"]] == list(roles["role"])
        assert np.allclose([one["score"] for one in call["roles"]], roles["score"].astype(float))
    own, cross = described["calls"]
    assert own["kind"] == "self" and own["mask"] == "causal()" and own["section"] == "Decoder"
    assert cross["kind"] == "cross" and cross["mask"] is None and cross["section"] == "Cross-attention"
    assert (cross["query_text"], cross["key_text"]) == ("tokens", "source")
    assert "group.even" in own["means"] and "group.even" in described["row_statistics"]
    for line in described["statistics"].values():
        assert line["meaning"].endswith(".") and line["title"] and line["formula"] and line["unit"]


def test_the_overview_pools_the_maps(client, record):
    shown, info = arrays(client.get("/api/records/r1/overview", params={"side": 5, "batch": 1}))
    for index, call in enumerate(record):
        cell = info["calls"][str(index)]["cell"]
        pooled = call.map.coarsen(cell)
        assert max(pooled.total.shape[2:]) <= 5
        for pool, want in (("max", pooled.peak[1]), ("mean", pooled.mean[1])):
            log = shown[f"{index}.{pool}"].astype(np.float64)
            assert log.shape == want.shape and shown[f"{index}.{pool}"].dtype == np.float16
            visible = ~np.isnan(log)
            assert np.allclose(log[visible], want.log().numpy()[visible], rtol=2.0**-11, atol=1e-5)
    blank = np.isnan(shown["0.max"])
    grid = np.arange(blank.shape[-1])
    assert (blank == (grid > grid[:, None])).all(), "what is above the diagonal is no pair"
    assert not np.isnan(shown["1.max"]).any()


@pytest.mark.parametrize(("call", "head", "batch"), [(0, 0, 0), (0, 5, 1), (1, 1, 1)])
@pytest.mark.parametrize("cell", [1, 2, 8, 64])
def test_a_tile_pools_the_weights(client, record, call, head, batch, cell):
    weights = record[call].weights(head, batch=batch).double()
    allowed = torch.ones_like(weights, dtype=torch.bool)
    if call == 0:
        allowed = allowed.tril()
    for pool in ("max", "mean"):
        address = HEAD.format(call, head) + f"/tiles/{cell}/0/0"
        (log,) = arrays(client.get(address, params={"pool": pool, "batch": batch}))[0].values()
        assert log.dtype == np.float16 and log.shape == tuple(-(-size // cell) for size in weights.shape)
        for i, j in np.ndindex(log.shape):
            at = slice(i * cell, (i + 1) * cell), slice(j * cell, (j + 1) * cell)
            if not allowed[at].any():
                assert np.isnan(log[i, j])
                continue
            want = weights[at].max() if pool == "max" else weights[at].mean()
            # Half a step of float16, and the rounding of the weights in float32.
            assert float(log[i, j]) == pytest.approx(float(want.log()), rel=2.0**-11, abs=1e-5)


def test_rows_columns_windows_and_pairs_are_exact(client, record):
    for call, head, batch in ((0, 4, 1), (1, 0, 0)):
        weights = record[call].weights(head, batch=batch).float().numpy()
        where, row = HEAD.format(call, head), {"batch": batch}
        for query in (0, 17, 36):
            shown = arrays(client.get(f"{where}/rows/{query}", params=row))[0]["weights"]
            assert shown.dtype == np.float32 and np.allclose(shown, weights[query], atol=1e-6)
        for key in (0, 22):
            shown = arrays(client.get(f"{where}/columns/{key}", params=row))[0]["weights"]
            assert np.allclose(shown, weights[:, key], atol=1e-6)
        corners = {"q0": 3, "q1": 14, "k0": 2, "k1": 19}
        shown = arrays(client.get(f"{where}/window", params=row | corners))[0]["weights"]
        assert np.allclose(shown, weights[3:14, 2:19], atol=1e-6)
        for query, key in ((9, 4), (4, 9)):
            pair = client.get(f"{where}/pairs/{query}/{key}", params=row).json()
            assert pair["weight"] == pytest.approx(weights[query, key], abs=1e-6)
            assert pair["allowed"] == (call == 1 or key <= query)
            text = record.source_tokens if call else record.tokens
            assert (pair["query_token"], pair["key_token"]) == (
                record.tokens[batch][query],
                text[batch][key],
            )
            if pair["allowed"]:
                one = record[call]
                group = one.sizes.group
                score = one.query[batch, head, query] @ one.key[batch, head // group, key] * one.spec.scale
                assert pair["score"] == pytest.approx(float(score), abs=1e-5)
            else:
                assert pair["score"] is None and pair["weight"] == 0


@pytest.mark.parametrize(("away", "first"), [(0, 0), (5, 0), (3, 4), (36, 0)])
def test_peaks_are_the_largest_of_all_weights(client, record, away, first):
    for call, head in ((0, 2), (1, 0)):
        weights = record[call].weights(head).double()
        query, key = torch.arange(37)[:, None], torch.arange(weights.shape[1])
        far = ((query + record[call].offset - key).abs() >= away) & (key >= first) & (weights > 0)
        want = weights[far].sort(descending=True).values[:9]
        peaks = client.get(
            HEAD.format(call, head) + "/peaks", params={"count": 9, "away": away, "first": first}
        ).json()
        # The record has lse in float32, which is rounded to 4e-6 at most where weights are computed from it.
        assert np.allclose([peak["weight"] for peak in peaks], want, rtol=4e-6, atol=0)
        for peak in peaks:
            assert far[peak["query"], peak["key"]]
            assert peak["weight"] == pytest.approx(float(weights[peak["query"], peak["key"]]), rel=4e-6)


@pytest.mark.parametrize("name", ["entropy", "lse", "max_weight", "group.even", "received", "received_max"])
@pytest.mark.parametrize("most", [4096, 11, 1])
def test_series_pool_whole_cells(client, record, name, most):
    call = record[0]
    answer = client.get(f"/api/records/r1/calls/0/series/{name}", params={"most": most, "batch": 1})
    shown, info = arrays(answer)
    if name.startswith("group."):
        values = call.groups["even"][1]
    elif name.startswith("received"):
        values = getattr(call, name)[1]
    else:
        values = call.rows(name)[1]
    parts = values.double().split(info["cell"], -1)
    assert len(parts) == shown["mean"].shape[1] <= most and info["cell"] & (info["cell"] - 1) == 0
    assert np.allclose(shown["mean"], torch.stack([part.mean(-1) for part in parts], -1), rtol=1e-5)
    assert np.allclose(shown["max"], torch.stack([part.amax(-1) for part in parts], -1), rtol=1e-6)


@pytest.mark.parametrize("format", ["csv", "parquet"])
def test_exports_hold_the_same_numbers(client, record, format):
    def table(**view):
        answer = client.get("/api/records/r1/export", params=view | {"format": format})
        assert answer.status_code == 200 and "attachment" in answer.headers["content-disposition"]
        read = pandas.read_csv if format == "csv" else pandas.read_parquet
        return read(io.BytesIO(answer.content))

    pandas.testing.assert_frame_equal(table(), record.heads, check_dtype=False)
    window = table(what="window", call=1, head=1, batch=1, q0=5, q1=8, k0=2, k1=20)
    weights = record[1].weights(1, slice(5, 8), slice(2, 20), batch=1)
    assert np.allclose(window["weight"], weights.flatten(), rtol=1e-6)
    assert list(window["query_token"][:2]) == ["q1.5", "q1.5"] and list(window["key_token"][:2]) == [
        "s1.2",
        "s1.3",
    ]
    assert list(window["query"][17:19]) == [5, 6] and list(window["key"][17:19]) == [19, 2]
    series = table(what="series", call=0, name="entropy")
    assert np.allclose(series[[f"head {head}" for head in range(6)]].T, record[0].entropy[0], rtol=1e-6)
    assert list(series["token"]) == record.tokens[0]


def test_a_snippet_gives_the_same_numbers(client, record, opened, tmp_path):
    record.save(tmp_path / "saved")
    opened["r1"].code = f"import regard as rg\n\nrecord = rg.load({str(tmp_path / 'saved')!r})"

    def run(**view):
        code = client.get("/api/records/r1/snippet", params=view).json()["code"]
        names = {}
        exec(compile(code, "snippet", "exec"), names)
        return names

    window = run(what="window", call=0, head=3, batch=1, q0=2, q1=9, k0=1, k1=5)["weights"]
    assert window.equal(record[0].weights(3, slice(2, 9), slice(1, 5), batch=1))
    assert run(what="series", call=0, name="entropy", batch=1)["values"].equal(record[0].entropy[1])
    assert run(what="series", call=0, name="group.even")["values"].equal(record[0].groups["even"][0])
    assert run(what="series", call=1, name="received")["values"].equal(record[1].received[0])
    pandas.testing.assert_frame_equal(run()["heads"], record.heads)


MISSING = [
    "/api/records/r2",
    "/api/records/r1/calls/2/series/entropy",
    HEAD.format(0, 6) + "/rows/0",
    HEAD.format(0, 0) + "/rows/37",
    HEAD.format(0, 0) + "/columns/37",
    HEAD.format(0, 0) + "/pairs/0/37",
    HEAD.format(0, 0) + "/tiles/1/1/0",
    HEAD.format(0, 0) + "/tiles/3/0/0",
    HEAD.format(0, 0) + "/rows/0?batch=2",
    "/api/jobs/j1",
    "/api/jobs/j1/events",
    "/api/nothing",
]


@pytest.mark.parametrize("path", MISSING)
def test_what_is_not_there_is_a_404_that_says_why(client, path):
    answer = client.get(path)
    assert answer.status_code == 404 and answer.json()["detail"]


@pytest.mark.parametrize(
    "path",
    [
        "/api/records/r1/overview?side=0",
        "/api/records/r1/overview?side=99999",
        HEAD.format(-1, 0) + "/rows/0",
        HEAD.format(0, 0) + "/rows/" + "9" * 40,
        HEAD.format(0, 0) + "/rows/x",
        HEAD.format(0, 0) + "/tiles/1/0/0?pool=median",
        HEAD.format(0, 0) + "/peaks?count=0",
        "/api/records/r1/calls/0/series/entropi",
        "/api/records/r1/export?what=window&call=9",
        "/api/records/r1/export?format=exe",
    ],
)
def test_a_wrong_request_is_told_what_must_hold(client, path):
    answer = client.get(path)
    assert 400 <= answer.status_code < 500 and len(answer.json()["detail"]) > 10


def test_a_run_is_followed_to_its_record(client, record, tmp_path):
    record.save(tmp_path / "saved")
    started = client.post("/api/runs", json={"model": "fast", "text": f"copy {tmp_path / 'saved'}"})
    assert started.status_code == 202
    job = started.json()["job"]
    answer = client.get(f"/api/jobs/{job}/events")
    assert answer.headers["content-type"].startswith("text/event-stream")
    lines = [line for line in answer.text.splitlines() if line.startswith("data: ")]
    last = json.loads(lines[-1].removeprefix("data: "))
    assert last == client.get(f"/api/jobs/{job}").json() and last["state"] == "done"
    assert client.get(f"/api/records/{last['record']}").status_code == 200
    assert client.delete(f"/api/records/{last['record']}").status_code == 204
    assert client.get(f"/api/records/{last['record']}").status_code == 404


def test_a_run_can_be_canceled(client):
    job = client.post("/api/runs", json={"model": "fast", "text": "slow"}).json()["job"]
    assert client.delete(f"/api/jobs/{job}").json()["state"] == "canceled"
    refused = client.post("/api/runs", json={"model": "fast", "image": "aGk="})
    assert refused.status_code == 400 and "must be given a text" in refused.json()["detail"]
    assert client.post("/api/runs", json={"model": "eye", "image": "!"}).status_code == 400


def test_the_playground_answers_and_its_snippet_gives_the_same(client):
    state = {"kind": "window", "length": 13, "window": 3, "num_heads": 2, "embed_dim": 10, "seed": 5}
    state["made"] = "clusters"
    shown, info = arrays(client.post("/api/playground", json=state))
    assert shown["weights"].shape == (2, 13, 13) and shown["weights"].dtype == np.float32
    assert len(info["roles"]) == 2 and len(info["tokens"]) == 13
    assert {name[0] for name in info["tokens"]} <= set("ABCD")
    names = {}
    exec(client.post("/api/playground/snippet", json=state).json()["code"], names)
    assert np.array_equal(names["weights"].numpy(), shown["weights"])
    assert np.array_equal(names["entropy"].numpy(), shown["entropy"])


def test_without_a_built_page_the_root_says_how(app, client, tmp_path, monkeypatch):
    answer = client.get("/")
    assert answer.status_code in (200, 503)
    if answer.status_code == 503:
        assert "make web" in answer.text
