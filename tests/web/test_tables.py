"""Tables that a viewer sends, and tables as files."""

import base64
import csv
import io

import numpy as np
import pandas
import pytest

from regard.errors import ArgumentError
from regard.web.tables import MOST, Column, frame, guarded, written

TEXTS = ["=1+1", "+1", "-1", "@x", " =2", "\t=3", "＝4", "\ufeff=6", "\x1c-7", "'=5", "'"]
TEXTS += ["word", "a=b", "", 'a,"b"\n', "é"]


def packed(values: np.ndarray) -> str:
    return base64.b64encode(values.tobytes()).decode()


def test_what_repeats_is_sent_once():
    weights = np.arange(6, dtype="<f4") / 7
    table = frame(
        [
            Column("query", "whole", [4, 5], repeat=3),
            Column("key", "whole", [0, 1, None]),
            Column("token", "text", ["a", None, "b"], repeat=2),
            Column("layer", "text", ["x"], repeat=6),
            Column("allowed", "flag", data=packed(np.array([1, 0], "u1"))),
            Column("weight", "number", data=packed(weights)),
            Column("score", "number", [1, 0.5, None]),
        ],
        6,
    )
    assert table["query"].tolist() == [4, 4, 4, 5, 5, 5]
    assert table["key"].tolist() == [0, 1, pandas.NA] * 2
    assert table["token"].dropna().tolist() == ["a", "a", "b", "b"] and table["token"].isna().sum() == 2
    assert table["layer"].tolist() == ["x"] * 6
    assert table["allowed"].tolist() == [True, False] * 3 and table["allowed"].dtype == bool
    assert table["weight"].dtype == np.float32 and np.array_equal(table["weight"], weights)
    assert (
        table["score"].tolist()[:2] == [1.0, 0.5]
        and table["score"].isna().tolist() == [False, False, True] * 2
    )
    again = pandas.read_parquet(io.BytesIO(written(table, "parquet")))
    pandas.testing.assert_frame_equal(again, table)


def test_an_empty_table_is_a_table():
    table = frame([Column("name", "text", []), Column("value", "number", [])], 0)
    assert list(table.columns) == ["name", "value"] and len(table) == 0
    assert len(pandas.read_parquet(io.BytesIO(written(table, "parquet")))) == 0


def test_letters_that_no_file_can_hold_are_replaced():
    table = frame([Column("text", "text", ["a\ud800b"])], 1)
    again = pandas.read_parquet(io.BytesIO(written(table, "parquet")))
    assert again["text"].tolist() == ["a\ufffdb"]


@pytest.mark.parametrize("text", TEXTS)
def test_every_text_can_be_had_back(text):
    safe = guarded(text)
    assert safe == text or safe == f"'{text}"
    assert safe.removeprefix("'") == text or text == safe
    # None that is written begins as a formula does.
    assert not safe.lstrip("\ufeff \t\n\r\x1c").startswith(("=", "+", "-", "@", "＝"))


def test_a_csv_holds_no_formula():
    content = written(pandas.DataFrame({"=name": TEXTS, "value": -1.5}), "csv").decode()
    rows = list(csv.reader(io.StringIO(content)))
    assert rows[0] == ["'=name", "value"]
    assert [row[0] for row in rows[1:]] == [guarded(text) for text in TEXTS]
    assert {row[1] for row in rows[1:]} == {"-1.5"}, "numbers stay numbers"
    kept = pandas.read_parquet(io.BytesIO(written(pandas.DataFrame({"t": TEXTS}), "parquet")))
    assert kept["t"].tolist() == TEXTS


@pytest.mark.parametrize(
    "columns, rows, words",
    [
        ([], 1, "columns"),
        ([Column("a", "whole", [1])] * 2, 1, "different names"),
        ([Column("a", "whole", [1])], MOST + 1, "rows"),
        ([Column("a", "whole", [1])], -1, "rows"),
        ([Column("a", "whole", [1, 2])], 3, "evenly"),
        ([Column("a", "whole", [1], repeat=0)], 3, "evenly"),
        ([Column("a", "whole", [])], 3, "evenly"),
        ([Column("a", "whole")], 1, "either"),
        ([Column("a", "number", [1.0], data="")], 1, "either"),
        ([Column("a", "whole", [1.5])], 1, "kind whole"),
        ([Column("a", "whole", [True])], 1, "kind whole"),
        ([Column("a", "whole", [1 << 70])], 1, "64 bits"),
        ([Column("a", "text", [1])], 1, "kind text"),
        ([Column("a", "flag", [1])], 1, "kind flag"),
        ([Column("a", "text", data="AAAA")], 1, "only numbers and flags"),
        ([Column("a", "number", data="AAAA")], 1, "base64"),
        ([Column("a", "number", data="!")], 1, "base64"),
    ],
)
def test_what_is_no_table_is_refused(columns, rows, words):
    with pytest.raises(ArgumentError, match=words):
        frame(columns, rows)
