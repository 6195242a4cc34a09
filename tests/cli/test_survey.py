"""`regard survey` on real models, on every form of texts, and on what a user gets wrong."""

import os
import signal
import subprocess
import sys
import time

import pandas
import pytest

import regard as rg
from regard.cli.texts import Texts
from regard.errors import ArgumentError

LINES = ["def f(x): return x", "import os", "for a in b: c(a)", "y = [1, 2, 3]", "print(y)"]


@pytest.fixture
def corpus(tmp_path):
    (tmp_path / "corpus.txt").write_text("\n".join(LINES) + "\n")
    return "corpus.txt"


def test_it_reads_every_line_and_writes_all_that_is_asked_for(regard, corpus, tmp_path):
    command = ["survey", "language", "--texts", corpus, "--folder", "ledger", "--batch-size", "2"]
    command += ["--report", "deep/page.html", "--parquet", "heads.parquet", "--profile", "kept"]
    status, out, err = regard(*command)
    assert (status, err) == (0, "")
    assert "32 attention heads, 5 texts" in out and "±" in out
    table = pandas.read_parquet(tmp_path / "heads.parquet")
    profile = rg.load(tmp_path / "kept")
    pandas.testing.assert_frame_equal(table, profile.intervals())
    assert profile.texts == 5 and profile.records == 3
    page = (tmp_path / "deep" / "page.html").read_text()
    assert "corpus.txt" in page and "<script" not in page and page.count("<img") >= 3
    before = (tmp_path / "ledger" / "shard-000000.safetensors").stat().st_mtime_ns
    assert regard(*command)[1] == out
    assert (tmp_path / "ledger" / "shard-000000.safetensors").stat().st_mtime_ns == before
    status, _, err = regard(*command, "--no-resume")
    assert status == 2 and "has the ledger of a survey already" in err


def test_what_fails_and_what_is_cut_is_said(regard, tmp_path):
    pandas.DataFrame({"body": [LINES[0], None, "x" * 99], "n": [1, 2, 3]}).to_parquet(tmp_path / "t.parquet")
    status, out, _ = regard("survey", "language", "--texts", "t.parquet", "--max-tokens", "5")
    assert status == 0 and "2 texts were cut to 5 tokens" in out
    assert (
        "1 texts could not be read" in out
        and "text 1: ModelError: the text must have at least one token" in out
    )


def test_an_encoder_decoder_writes_its_replies(regard, folders, corpus, tmp_path):
    status, out, _ = regard("survey", str(folders["encoder-decoder"]), "--texts", corpus, "--profile", "kept")
    assert status == 0 and "24 attention heads" in out
    kinds = {kind for _, kind in rg.load(tmp_path / "kept").layers}
    assert kinds == {"self", "cross"}


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--texts", "nowhere"], "--texts must be a file or folder that can be read, got 'nowhere'"),
        (["--texts", "empty.txt"], "--texts must hold at least one text, and 'empty.txt' holds none"),
        (
            ["--texts", "corpus.txt", "--column", "a"],
            "--column must be left out where --texts is no Parquet file",
        ),
        (["--texts", "t.parquet", "--column", "bady"], "got 'bady'; did you mean 'body'?"),
        (["--texts", "fake.parquet"], "--texts must be a Parquet file that can be read, got 'fake.parquet'"),
        (["--texts", "corpus.txt", "--max-tokens", "0"], "--max-tokens must be at least 1, got 0"),
        (["--texts", "corpus.txt", "--folder", "corpus.txt"], "a ledger must be a folder"),
        (["--texts", "corpus.txt", "--report", "corpus.txt/page"], "must be a file that can be written"),
    ],
)
def test_mistakes_are_told(regard, corpus, tmp_path, arguments, message):
    (tmp_path / "empty.txt").write_text(" \n\n")
    (tmp_path / "fake.parquet").write_text("no parquet")
    pandas.DataFrame({"body": LINES, "more": LINES}).to_parquet(tmp_path / "t.parquet")
    status, _, err = regard("survey", "language", *arguments)
    assert status == 2 and message in err.replace("\n", " ")


def test_texts_of_every_form(tmp_path):
    (tmp_path / "lines.txt").write_text("a\nb c\n\n")
    (tmp_path / "paragraphs.txt").write_text("\n\na\nb\n \n\nc\n")
    (tmp_path / "folder" / "deep").mkdir(parents=True)
    (tmp_path / "folder" / "b.py").write_text("b\n\nB")
    (tmp_path / "folder" / "deep" / "c.md").write_bytes(b"\xff")
    (tmp_path / "folder" / ".hidden").write_text("no")
    pandas.DataFrame({"text": ["x", None], "other": ["y", "z"]}).to_parquet(tmp_path / "t.parquet")
    found = {
        name: Texts.of(tmp_path / name) for name in ("lines.txt", "paragraphs.txt", "folder", "t.parquet")
    }
    wanted = [["a", "b c"], ["a\nb", "c"], ["b\n\nB", "\udcff"], ["x", ""]]
    for texts, want in zip(found.values(), wanted, strict=True):
        assert list(texts) == list(texts) == want and texts.count == len(want)
    assert list(Texts.of(tmp_path / "t.parquet", "other")) == ["y", "z"]
    with pytest.raises(ArgumentError, match="must hold at least one text"):
        (tmp_path / "none").mkdir()
        Texts.of(tmp_path / "none")


@pytest.mark.skipif(sys.platform == "win32", reason="signals are those of POSIX")
def test_ctrl_c_ends_quietly_and_leaves_a_ledger_that_goes_on(regard, tmp_path):
    (tmp_path / "corpus.txt").write_text("\n".join(f"value_{i} = {i} + f({i})" for i in range(4000)) + "\n")
    command = [
        sys.executable,
        "-m",
        "regard",
        "survey",
        "language",
        "--texts",
        "corpus.txt",
        "--folder",
        "ledger",
    ]
    process = subprocess.Popen(
        command,
        cwd=tmp_path,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env=os.environ | {"HF_HUB_OFFLINE": "1"},
        # Whoever runs the tests in the background has interrupts ignored, which children inherit.
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
    )
    deadline = time.monotonic() + 120
    while not (tmp_path / "ledger" / "shard-000000.safetensors").exists() and time.monotonic() < deadline:
        time.sleep(0.05)
    process.send_signal(signal.SIGINT)
    try:
        out, err = process.communicate(timeout=60)
    finally:
        process.kill()
    assert process.returncode == 130 and err == b"", (out, err)
    done = rg.load(tmp_path / "ledger").texts
    assert 16 <= done < 4000
    (tmp_path / "corpus.txt").write_text(
        "\n".join((tmp_path / "corpus.txt").read_text().split("\n")[: done + 3])
    )
    status, out, _ = regard("survey", "language", "--texts", "corpus.txt", "--folder", "ledger")
    assert status == 0 and f"{done + 3} texts" in out


def test_a_corpus_is_surveyed_into_its_ledger(regard, corpus, tmp_path):
    status, out, err = regard(
        "survey", "language", "--corpus", corpus, "--folder", "parts", "--profile", "kept"
    )
    assert (status, err) == (0, "") and "32 attention heads, 5 texts" in out
    assert rg.load(tmp_path / "parts").heads.equals(rg.load(tmp_path / "kept").heads)
    status, again, _ = regard("survey", "language", "--texts", corpus)
    assert status == 0 and again == out.partition("The profile:")[0]
    for options, message in (
        (("--corpus", corpus), "folder must be given for a corpus"),
        (("--corpus", corpus, "--texts", corpus), "one of --texts and --corpus must be given"),
        ((), "one of --texts and --corpus must be given"),
    ):
        status, _, err = regard("survey", "language", *options)
        assert status == 2 and message in err
