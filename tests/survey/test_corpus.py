"""A corpus is the texts of its files, however they are cut; a survey of it is the survey of its texts."""

import gzip
import json
import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path
from types import SimpleNamespace

import datasets
import duckdb
import pandas
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import regard as rg
from helpers.surveyed import Reader, arguments, same
from regard.errors import ArgumentError, MissingPackageError, RecordError, WatchError
from regard.survey import Corpus, OnRay
from regard.survey.corpora import survey_corpus
from regard.survey.processes import Processes

WORDS = [("word " * (1 + number % 7)).strip() + f" {number}" for number in range(53)]


def texts_of(corpus):
    return [text.content for stretch in corpus.stretches() for text in corpus.read(stretch)]


def surveyed(corpus, folder, model=None, **more):
    return rg.survey(model or Reader(), corpus, tokenizer=arguments, folder=folder, **more)


@pytest.fixture
def corpus(tmp_path):
    """Files of all forms, each with some of the texts, the names of which are in the order of the texts."""
    folder = tmp_path / "corpus"
    (folder / "deep").mkdir(parents=True)
    (folder / "a.txt").write_text("\n\n".join(WORDS[:11]))
    (folder / "b.jsonl").write_text("".join(json.dumps({"text": word}) + "\n" for word in WORDS[11:24]))
    with gzip.open(folder / "c.txt.gz", "wt") as file:
        file.write("\n".join(WORDS[24:31]) + "\n")
    datasets.Dataset.from_dict({"text": WORDS[31:40], "n": range(9)}).save_to_disk(folder / "deep" / "d")
    frame = pandas.DataFrame({"n": range(13), "text": WORDS[40:]})
    frame.to_parquet(folder / "e.parquet", row_group_size=5)
    (folder / ".hidden").write_text("no text")
    return folder


@pytest.fixture(scope="module")
def whole():
    return rg.survey(Reader(), WORDS, tokenizer=arguments)


@pytest.mark.parametrize("stretch", [1, 7, 40, 1 << 20])
def test_all_forms_are_read_whole_and_in_order(corpus, stretch):
    read = texts_of(Corpus(corpus, stretch=stretch))
    assert read == WORDS[:31] + WORDS[31:40] + WORDS[40:]
    assert texts_of(Corpus(f"{corpus}/*.txt", stretch=stretch)) == WORDS[:11]
    assert texts_of(Corpus(corpus / "e.parquet", stretch=stretch)) == WORDS[40:]


@settings(max_examples=60, deadline=None)
@given(st.lists(st.text("ab\n \r", max_size=9), max_size=9), st.integers(1, 12), st.booleans())
def test_lines_are_the_same_however_they_are_cut(tmp_path_factory, parts, stretch, end):
    path = tmp_path_factory.mktemp("lines") / "texts.txt"
    content = "\n".join(parts) + "\n" * end
    path.write_bytes(content.encode() or b"\n")
    expected = [line.rstrip("\r") for line in content.split("\n") if line.strip()]
    assert texts_of(Corpus(path, stretch=stretch)) == expected
    starts = [text.position for item in Corpus(path).stretches() for text in Corpus(path).read(item)]
    assert [content[start:].split("\n")[0].rstrip("\r") for start in starts] == expected


@pytest.mark.parametrize("batch_size", [1, 3])
def test_a_survey_of_it_is_that_of_its_texts(corpus, tmp_path, whole, batch_size):
    seen = []
    profile = surveyed(
        Corpus(corpus, stretch=40), tmp_path / "l", batch_size=batch_size, progress=seen.append
    )
    assert seen[-1] == 53 and sorted(seen) == seen
    if batch_size == 1:
        same(profile, whole)
    assert profile.texts == 53 and profile.failures == ()
    same(rg.load(tmp_path / "l"), profile)


def test_texts_that_fail_are_rows_with_their_errors(tmp_path):
    lines = [
        '{"text": "one two"}',
        "{broken",
        '{"body": "x"}',
        '{"text": "too large"}',
        '{"text": 7}',
        '{"text": "x"}',
    ]
    (tmp_path / "t.jsonl").write_text("\n".join(lines))
    profile = surveyed(Corpus(tmp_path / "t.jsonl", stretch=30), tmp_path / "l", batch_size=2)
    assert profile.texts == 2
    assert [(failure.number, failure.type) for failure in profile.failures] == [
        (1, "ArgumentError"),
        (2, "ArgumentError"),
        (3, "ValueError"),
        (4, "ArgumentError"),
    ]
    rows = duckdb.sql(
        f"select * from '{tmp_path}/l/part-*.parquet' where row = 'text' order by source, position"
    ).df()
    assert list(rows["error_type"].fillna("")) == [
        "",
        *["ArgumentError"] * 2,
        "ValueError",
        "ArgumentError",
        "",
    ]
    assert rows["error"][3] == "a number is too large" and "must be an object of JSON" in rows["error"][1]
    starts = [sum(len(line) + 1 for line in lines[:number]) for number in range(6)]
    assert list(rows["position"]) == starts


def test_sums_of_parts_join_without_regard(corpus, tmp_path, whole):
    surveyed(Corpus(corpus, stretch=40), tmp_path / "l")
    query = f"""
        select layer, kind, head, statistic, sum(total) / sum(queries) as mean, sum(texts) as texts,
            sum(sum_of_means) / sum(texts) as mean_of_texts
        from '{tmp_path}/l/part-*.parquet' where row = 'head' group by all order by all
    """
    joined = duckdb.sql(query).df()
    heads = whole.heads.set_index(["layer", "kind", "head"])
    expected = [heads.loc[(row.layer, row.kind, row.head), row.statistic] for row in joined.itertuples()]
    assert len(joined) > 30 and list(joined["mean"]) == pytest.approx(expected)
    intervals = whole.intervals().set_index(["layer", "kind", "head", "statistic"])
    keys = list(zip(joined["layer"], joined["kind"], joined["head"], joined["statistic"], strict=True))
    assert list(joined["mean_of_texts"]) == pytest.approx(list(intervals.loc[keys, "mean"]))
    texts = pandas.concat(map(pandas.read_parquet, (tmp_path / "l").glob("part-*.parquet")))
    assert (texts["row"] == "text").sum() == 53


def test_what_is_there_is_not_done_again(corpus, tmp_path, whole):
    model, cut = Reader(), Corpus(corpus, stretch=40)
    surveyed(cut, tmp_path / "l", model)
    assert model.read == 53
    same(surveyed(cut, tmp_path / "l", model), whole)
    assert model.read == 53
    parts = sorted((tmp_path / "l").glob("part-*.parquet"))
    parts[3].unlink()
    same(surveyed(cut, tmp_path / "l", model), whole)
    assert 53 < model.read < 70 and sorted((tmp_path / "l").glob("part-*.parquet")) == parts
    # More files are gone on with; what is there stays.
    (corpus / "z.txt").write_text("one more")
    assert surveyed(cut, tmp_path / "l", model).texts == 54 and model.read < 71


def test_a_corpus_that_changed_is_an_error(corpus, tmp_path):
    cut = Corpus(corpus, stretch=40)
    surveyed(cut, tmp_path / "l")
    (corpus / "b.jsonl").write_text((corpus / "b.jsonl").read_text().replace("word", "verb", 1))
    with pytest.raises(
        RecordError, match=r"'b.jsonl' changed since a part of it was read: remove the part of"
    ):
        surveyed(cut, tmp_path / "l")
    surveyed(cut, tmp_path / "other")
    (corpus / "b.jsonl").unlink()
    with pytest.raises(
        RecordError, match=r"the part of 'b.jsonl' from 0 to \d+ is not in the corpus any more"
    ):
        surveyed(cut, tmp_path / "other")


SCRIPT = """
import sys, time
import regard as rg
from helpers.surveyed import Reader, arguments
from regard.survey import Corpus

def slow(texts):
    time.sleep(float(sys.argv[3]))
    return arguments(texts)

profile = rg.survey(Reader(), Corpus(sys.argv[1], stretch=40), tokenizer=slow, folder=sys.argv[2])
profile.save(sys.argv[4] + __import__("os").environ.get("RANK", ""))
"""


def started(tmp_path, *arguments, launched=()):
    (tmp_path / "script.py").write_text(SCRIPT)
    tests = Path(__file__).parents[1]
    environment = os.environ | {"ACCELERATE_USE_CPU": "true", "OMP_NUM_THREADS": "1"}
    environment["PYTHONPATH"] = f"{tests}{os.pathsep}{os.environ.get('PYTHONPATH', '')}"
    command = [sys.executable, *launched, str(tmp_path / "script.py"), *map(str, arguments)]
    return subprocess.Popen(command, env=environment, stderr=subprocess.PIPE, text=True)


def test_killed_three_times_it_is_the_undisturbed_one(corpus, tmp_path, whole):
    parts = len(list(Corpus(corpus, stretch=40).stretches()))
    for goal in (parts // 5, parts // 2, parts - 3):
        process = started(tmp_path, corpus, tmp_path / "l", 0.3, tmp_path / "profile")
        while len(list((tmp_path / "l").glob("part-*.parquet"))) < goal:
            assert process.poll() is None, process.stderr.read()[-2000:]
            time.sleep(0.02)
        process.send_signal(signal.SIGKILL)
        process.wait()
        process.stderr.close()
    before = len(list((tmp_path / "l").glob("part-*.parquet")))
    assert parts - 3 <= before < parts and not (tmp_path / "profile").exists()
    same(surveyed(Corpus(corpus, stretch=40), tmp_path / "l"), whole)
    rows = duckdb.sql(f"select source, position from '{tmp_path}/l/part-*.parquet' where row = 'text'").df()
    assert len(rows) == 53 and not rows.duplicated().any()


def test_two_processes_of_a_launch_go_on_with_it(corpus, tmp_path, whole):
    cut = Corpus(corpus, stretch=40)
    surveyed(cut, tmp_path / "l")
    for path in random.Random(0).sample(sorted((tmp_path / "l").glob("part-*.parquet")), 9):
        path.unlink()
    launch = [
        "-m",
        "accelerate.commands.launch",
        "--multi_gpu",
        "--num_processes",
        "2",
        "--num_machines",
        "1",
    ]
    launch += ["--mixed_precision", "no", "--dynamo_backend", "no", "--main_process_port", "0"]
    process = started(tmp_path, corpus, tmp_path / "l", 0, tmp_path / "profile", launched=launch)
    _, errors = process.communicate()
    assert process.returncode == 0, errors[-3000:]
    for rank in "01":
        same(rg.load(tmp_path / f"profile{rank}"), whole)


def test_another_survey_does_not_go_on_with_it(corpus, tmp_path):
    surveyed(Corpus(corpus, stretch=40), tmp_path / "l")
    for other, message in (
        (lambda: surveyed(Corpus(corpus, stretch=41), tmp_path / "l"), "and stretch was 40, got 41"),
        (lambda: surveyed(Corpus(corpus, stretch=40), tmp_path / "l", tokens=9), "and tokens was 512, got 9"),
        (lambda: surveyed(Corpus(corpus, stretch=40), tmp_path / "l", resume=False), "a corpus already"),
        (lambda: surveyed(Corpus(corpus, stretch=40), corpus), "is no ledger of a corpus: choose a folder"),
    ):
        with pytest.raises(RecordError, match=message):
            other()


def test_an_altered_part_is_refused(corpus, tmp_path):
    surveyed(Corpus(corpus, stretch=400), tmp_path / "l")
    part, other, *_ = sorted((tmp_path / "l").glob("part-*.parquet"))
    content = part.read_bytes()
    part.write_bytes(content[:3000] + bytes([content[3000] ^ 1]) + content[3001:])
    with pytest.raises(RecordError, match=f"{part.name}: (is no part of a ledger, or damaged|is altered)"):
        rg.load(tmp_path / "l")
    part.write_bytes(other.read_bytes())
    with pytest.raises(RecordError, match="must be part .*, and is part"):
        rg.load(tmp_path / "l")


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda folder: Corpus(""), "location must be a path or an address, got ''"),
        (lambda folder: Corpus(folder, column=3), "column must be a name, got 3"),
        (lambda folder: Corpus(folder, stretch=0), "stretch must be .*at least 1.*got 0"),
        (
            lambda folder: surveyed(Corpus(folder / "none"), folder / "l"),
            "must have at least one file, and .*none",
        ),
        (lambda folder: surveyed(Corpus(folder), None), "folder must be given for a corpus"),
        (
            lambda folder: rg.survey(Reader(), Corpus(folder), folder=folder / "l"),
            "tokenizer must be given for a",
        ),
        (
            lambda folder: surveyed(Corpus(folder, column="n"), folder / "l"),
            "row 0 must have a string in 'n', got 0",
        ),
        (
            lambda folder: surveyed(Corpus(folder, column="no"), folder / "l"),
            "has no column 'no', only n, text",
        ),
    ],
)
def test_what_is_wrong_is_said(tmp_path, make, message):
    (tmp_path / "c").mkdir()
    pandas.DataFrame({"n": [0], "text": ["x"]}).to_parquet(tmp_path / "c" / "t.parquet")
    with pytest.raises((ArgumentError, WatchError), match=message):
        make(tmp_path / "c")


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"corpus": "texts"}, "corpus must be a Corpus, got 'texts'"),
        ({"actors": 0}, "actors must be .*at least 1.*got 0"),
        ({"gpus": -1}, "gpus must be .*at least 0.*got -1"),
    ],
)
def test_what_is_wrong_with_actors_is_said(settings, message):
    with pytest.raises(ArgumentError, match=message):
        OnRay(**({"corpus": Corpus("texts")} | settings))


def test_actors_without_ray_are_an_error_that_says_what_to_install(corpus, tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "ray", None)
    with pytest.raises(MissingPackageError, match=r"regard\[ray\]"):
        surveyed(OnRay(Corpus(corpus)), tmp_path / "ledger")


def test_actors_within_a_launch_are_refused(corpus, tmp_path):
    reader = SimpleNamespace(tokenizer=arguments)
    with pytest.raises(ArgumentError, match="must be surveyed from one process, and this is one of a launch"):
        survey_corpus(
            reader,
            OnRay(Corpus(corpus)),
            {},
            folder=tmp_path,
            resume=True,
            batch_size=1,
            processes=Processes(index=1, count=2),
            progress=None,
        )
