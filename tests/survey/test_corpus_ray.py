"""A corpus that actors of Ray read, some of which are killed, is the corpus that one process reads: `make ray`.

Not among the tests that always run, which do without Ray: it is large, and on a busy machine slow to start.
"""

import json
import os
import signal
import threading
import time
from pathlib import Path

import pyarrow.parquet
import pytest
from benchmarks.cluster import cluster as cluster_of
from benchmarks.cluster import workers

import regard as rg
from helpers.surveyed import Reader, arguments, same
from regard.survey import Corpus, OnRay

pytest.importorskip("ray", reason="Ray is not installed: make ray")

WORDS = [f"words of a text {number}" for number in range(80)]


def slowly(texts):
    time.sleep(0.2)
    return arguments(texts)


@pytest.fixture(scope="module")
def cluster():
    """A Ray on this machine, as the process of its head."""
    with cluster_of(Path(__file__).parents[1]) as head:
        yield head


@pytest.mark.timeout(900)
def test_actors_that_are_killed_lose_nothing_and_do_nothing_twice(cluster, tmp_path):
    lines = [json.dumps({"text": word}) for word in WORDS]
    lines.insert(33, "{broken")
    (tmp_path / "t.jsonl").write_text("\n".join(lines))
    corpus = Corpus(tmp_path / "t.jsonl", stretch=150)
    whole = rg.survey(Reader(), corpus, tokenizer=arguments, folder=tmp_path / "one")
    count, killed = len(list(corpus.stretches())), []

    def kill():
        for goal in (2, count // 3, count // 2):
            while len(list((tmp_path / "ray").glob("part-*"))) < goal or not workers(cluster):
                time.sleep(0.02)
            killed.append(workers(cluster)[0].pid)
            os.kill(killed[-1], signal.SIGKILL)

    killer = threading.Thread(target=kill, daemon=True)
    killer.start()
    seen = []
    settings = {"tokenizer": slowly, "folder": tmp_path / "ray", "progress": seen.append}
    same(rg.survey(Reader(), OnRay(corpus, actors=2), **settings), whole)
    killer.join(60)
    assert len(set(killed)) == 3 and seen[-1] == 81
    tables = [pyarrow.parquet.read_table(path).to_pylist() for path in (tmp_path / "ray").glob("part-*")]
    positions = [row["position"] for rows in tables for row in rows if row["row"] == "text"]
    assert len(positions) == len(set(positions)) == 81 and len(tables) == count
    # What Ray did one process goes on with, and reads nothing.
    model = Reader()
    same(rg.survey(model, corpus, tokenizer=arguments, folder=tmp_path / "ray"), whole)
    assert model.read == 0
