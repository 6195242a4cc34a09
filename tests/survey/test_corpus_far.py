"""A corpus and its ledger at addresses that fsspec reaches: an S3 server, and fsspec's memory."""

import os
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request

import fsspec
import localbucket
import pytest

import regard as rg
from helpers.surveyed import Reader, arguments, same
from regard.errors import ArgumentError, RecordError
from regard.files.stores import file_system
from regard.survey import Corpus

WORDS = [f"words of a text {number}" for number in range(30)]


@pytest.fixture(scope="module")
def whole():
    return rg.survey(Reader(), WORDS, tokenizer=arguments)


@pytest.fixture
def bucket(tmp_path, monkeypatch):
    """The folder of a bucket that an S3 server on this machine serves."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    (tmp_path / "served" / "bucket").mkdir(parents=True)
    command = [sys.executable, localbucket.__file__, str(tmp_path / "served"), "--port", str(port)]
    server = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    variables = {"AWS_ENDPOINT_URL": f"http://127.0.0.1:{port}", "AWS_EC2_METADATA_DISABLED": "true"}
    variables |= {"AWS_ACCESS_KEY_ID": "a", "AWS_SECRET_ACCESS_KEY": "b", "AWS_DEFAULT_REGION": "us-east-1"}
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    file_system.cache_clear()
    try:
        for _ in range(600):
            assert server.poll() is None
            try:
                urllib.request.urlopen(variables["AWS_ENDPOINT_URL"]).close()
                break
            except urllib.error.URLError:
                time.sleep(0.1)
        yield tmp_path / "served" / "bucket"
    finally:
        server.kill()
        server.wait()
        file_system.cache_clear()


def test_a_bucket_is_surveyed_into_a_bucket(bucket, whole, tmp_path):
    (bucket / "texts" / "deep").mkdir(parents=True)
    (bucket / "texts" / "a.txt").write_text("\n".join(WORDS[:17]))
    (bucket / "texts" / "deep" / "b.txt").write_text("\n".join(WORDS[17:]))
    model, corpus = Reader(), Corpus("s3://bucket/texts", stretch=100)
    same(rg.survey(model, corpus, tokenizer=arguments, folder="s3://bucket/ledgers/one"), whole)
    same(rg.load("s3://bucket/ledgers/one"), whole)
    names = sorted(os.listdir(bucket / "ledgers" / "one"))
    assert names[0] == "corpus.json" and len(names) == 1 + len(list(corpus.stretches())) > 6
    # A part that is not there is done again, and nothing else is.
    (bucket / "ledgers" / "one" / names[2]).unlink()
    same(rg.survey(model, corpus, tokenizer=arguments, folder="s3://bucket/ledgers/one"), whole)
    assert 30 < model.read < 40
    # The ledger of the same texts on a disk has the same files.
    near = Corpus(bucket / "texts", stretch=100)
    rg.survey(model, near, tokenizer=arguments, folder=tmp_path / "near")
    for name in names:
        assert (tmp_path / "near" / name).read_bytes() == (bucket / "ledgers" / "one" / name).read_bytes()
    assert len(list(Corpus("s3://bucket/texts/*.txt").stretches())) == 1


def test_what_is_not_in_a_bucket_is_said(bucket):
    with pytest.raises(
        ArgumentError, match="at least one file, and 's3://bucket/none' has none|cannot be read"
    ):
        rg.survey(Reader(), Corpus("s3://bucket/none"), tokenizer=arguments, folder="s3://bucket/l")
    with pytest.raises(RecordError, match="s3://bucket/l: is no ledger of a corpus"):
        rg.load("s3://bucket/l")


def test_any_protocol_of_fsspec_will_do(whole):
    memory = fsspec.filesystem("memory")
    memory.pipe_file("/texts/a.txt", "\n".join(WORDS).encode())
    profile = rg.survey(
        Reader(), Corpus("memory://texts", stretch=200), tokenizer=arguments, folder="memory://ledger"
    )
    same(profile, whole)
    same(rg.load("memory://ledger"), whole)
