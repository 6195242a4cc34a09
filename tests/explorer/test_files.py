"""Files that a page asks for: PDF and Parquet, over HTTP and in process, and what is refused."""

import base64
import io
import json

import numpy as np
import pandas
import pypdfium2
import pytest

from regard.explorer.app import create_api
from regard.explorer.in_process import InProcess, Question

TEXT = {"kind": "text", "x": 10, "y": 40, "text": "entropy of layer 3", "color": "#1b1c20"}
RECT = {"kind": "rect", "x": 10, "y": 50, "width": 20, "height": 10, "fill": "#ff0000"}
IMAGE = {"kind": "image", "x": 0, "y": 0, "width": 5, "height": 5, "data": "data:image/png;base64,AAAA"}
SHEET = {"width": 200, "height": 100, "background": "#ffffff", "title": "A title", "shapes": [TEXT, RECT]}
WEIGHTS = np.linspace(0, 1, 6, dtype="<f4")
TABLE = {
    "rows": 6,
    "columns": [
        {"name": "query", "kind": "whole", "values": [0, 1], "repeat": 3},
        {"name": "token", "kind": "text", "values": ["=1", "b", None]},
        {"name": "weight", "kind": "number", "data": base64.b64encode(WEIGHTS.tobytes()).decode()},
    ],
}


def check_pdf(content: bytes) -> None:
    document = pypdfium2.PdfDocument(content)
    page = document[0]
    text_page = page.get_textpage()
    assert "entropy of layer 3" in text_page.get_text_range()
    assert document.get_metadata_value("Title") == "A title"
    assert page.get_size() == (150.0, 75.0), "points, of 200 × 100 pixels"
    text_page.close()
    page.close()
    document.close()


def check_parquet(content: bytes) -> None:
    table = pandas.read_parquet(io.BytesIO(content))
    assert table["query"].tolist() == [0, 0, 0, 1, 1, 1]
    assert table["token"].fillna("").tolist() == ["=1", "b", ""] * 2
    assert np.array_equal(table["weight"], WEIGHTS)


def test_a_drawing_comes_back_as_a_pdf(client):
    answer = client.post("/api/pdf", json=SHEET)
    assert answer.status_code == 200 and answer.headers["content-type"] == "application/pdf"
    check_pdf(answer.content)
    assert client.post("/api/pdf", json=SHEET).content == answer.content, "no time and no chance are in it"


def test_a_table_comes_back_as_parquet(client):
    answer = client.post("/api/parquet", json=TABLE)
    assert answer.status_code == 200
    check_parquet(answer.content)


def test_both_are_answered_in_process(opened, jobs):
    answers = InProcess(create_api(opened, jobs))
    drawing = answers.reply(Question("api/pdf", "POST", SHEET))
    assert drawing.status == 200 and not drawing.is_json
    check_pdf(drawing.content)
    table = answers.reply(Question("api/parquet", "POST", TABLE))
    assert table.status == 200 and not table.is_json
    check_parquet(table.content)


def test_only_who_is_let_in_has_files_written(stranger):
    for path, body in (("/api/pdf", SHEET), ("/api/parquet", TABLE)):
        assert stranger.post(path, json=body).status_code in (401, 403)


@pytest.mark.parametrize(
    "path, body, words",
    [
        ("/api/pdf", {}, "width"),
        ("/api/pdf", SHEET | {"width": 1e9}, "pixels"),
        ("/api/pdf", SHEET | {"background": "red;"}, "#rrggbb"),
        ("/api/pdf", SHEET | {"shapes": [{"kind": "script"}]}, "kind"),
        ("/api/pdf", SHEET | {"shapes": [RECT | {"x": "far"}]}, "number"),
        ("/api/pdf", SHEET | {"shapes": [RECT | {"x": 1e300}]}, "number of pixels"),
        ("/api/pdf", SHEET | {"shapes": [RECT | {"opacity": 1.5}]}, "from 0 to 1"),
        ("/api/pdf", SHEET | {"shapes": [TEXT | {"size": 1e5}]}, "at most 2000 pixels"),
        ("/api/pdf", SHEET | {"shapes": [TEXT | {"size": -1}]}, "above 0"),
        ("/api/pdf", SHEET | {"shapes": [IMAGE | {"width": 1e-320}]}, "a width and a height"),
        ("/api/parquet", {"rows": 1, "columns": []}, "columns"),
        ("/api/parquet", TABLE | {"rows": 7}, "evenly"),
        ("/api/parquet", TABLE | {"rows": 1 << 60}, "rows"),
        ("/api/snippet", {"views": []}, "at least one"),
        ("/api/snippet", {"views": [{"record": "r9", "what": "window"}]}, "r9"),
        ("/api/snippet", {"views": [{"record": "r1", "what": "window"}] * 65}, "at most 64"),
        ("/api/snippet", {"views": [{"record": "r1", "what": "window", "head": 6}]}, "head must be"),
    ],
)
def test_what_cannot_be_written_is_said(client, path, body, words):
    answer = client.post(path, json=body)
    assert 400 <= answer.status_code < 500 and words in answer.json()["detail"]


@pytest.mark.parametrize(
    "query, words",
    [
        ("what=window&call=9", "call must be"),
        ("what=lines&head=6", "head must be"),
        ("what=picture&batch=2", "batch must be"),
        ("what=series&name=fame", "no row statistic 'fame'"),
    ],
)
def test_lines_that_would_fail_are_not_written(client, query, words):
    answer = client.get(f"/api/records/r1/snippet?{query}")
    assert answer.status_code == 400 and words in answer.json()["detail"]


def test_half_a_letter_stops_no_file(client):
    """A text that was cut may end with one, and no file can hold it."""
    half = "cut \ud83d"
    body = json.dumps(SHEET | {"title": half, "shapes": [TEXT | {"text": half}]})
    answer = client.post("/api/pdf", content=body, headers={"content-type": "application/json"})
    assert answer.status_code == 200
    document = pypdfium2.PdfDocument(answer.content)
    assert document.get_metadata_value("Title") == "cut \ufffd"
    document.close()
    column = {"name": half, "kind": "text", "values": [half]}
    body = json.dumps({"rows": 1, "columns": [column]})
    answer = client.post("/api/parquet", content=body, headers={"content-type": "application/json"})
    assert answer.status_code == 200
    assert pandas.read_parquet(io.BytesIO(answer.content)).to_dict("list") == {"cut \ufffd": ["cut \ufffd"]}


def test_numbers_that_json_does_not_have_are_refused(client):
    body = json.dumps(SHEET | {"shapes": [RECT | {"x": float("nan")}]})
    answer = client.post("/api/pdf", content=body, headers={"content-type": "application/json"})
    assert 400 <= answer.status_code < 500


def test_too_large_a_drawing_is_not_read(client):
    answer = client.post("/api/pdf", json=SHEET | {"title": "x" * 5000})
    assert answer.status_code == 413


def test_a_record_without_code_says_so_in_its_snippet(client, opened):
    opened["r1"].code = ""
    code = client.get("/api/records/r1/snippet").json()["code"]
    assert "record = ..." in code and "A pair" in code and "record.heads" in code
    refused = client.get("/api/records/r1/snippet", params={"what": "changes"})
    assert refused.status_code == 400 and "changed heads" in refused.json()["detail"]
