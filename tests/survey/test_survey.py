"""A survey is the profile of its texts, whatever fails, stops or shares it."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from torch import nn

import regard as rg
from helpers.calls import difference
from regard import embedded
from regard.errors import ArgumentError, RecordError, WatchError
from regard.record import Profile
from regard.statistics.table import group, local
from regard.survey.survey import STATISTICS


class Reader(nn.Module):
    """Attention that cannot read everything."""

    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.attention = rg.nn.MultiHeadAttention(12, 3)
        self.dropout = nn.Dropout(0.5)
        self.read = 0

    def forward(self, x, stop=None):
        if bool((x > 1e3).any()):
            raise ValueError("a number is too large")
        if stop is not None and self.read == stop:
            raise KeyboardInterrupt
        self.read += 1
        return self.attention(self.dropout(x))


def texts(count=11):
    generator = torch.Generator().manual_seed(3)
    return [{"x": torch.randn(2, 3 + number, 12, generator=generator)} for number in range(count)]


def same(a, b):
    assert difference(vars(a), vars(b)) is None and list(a.layers) == list(b.layers)


@pytest.fixture
def reader():
    return Reader()


@pytest.fixture(scope="module")
def whole():
    return rg.survey(Reader(), texts())


def test_it_is_the_profile_of_what_a_watch_sees(reader, whole):
    records = []
    reader.eval()
    for text in texts():
        with torch.no_grad(), rg.watch(reader, statistics=STATISTICS, map=64, fused=True) as record:
            reader(**text)
        records.append(record)
    same(whole, Profile.of(records))
    assert (whole.records, whole.texts, whole.failures) == (11, 22, ())
    intervals = whole.intervals()
    # A role needs texts that are long enough to tell it.
    plain = intervals[~intervals["statistic"].str.startswith("role.")]
    assert set(plain["texts"]) == {22}
    assert {"entropy_fraction", "received_share"} <= set(intervals["statistic"])


def test_nothing_of_the_model_is_changed(reader):
    reader.train()
    reader.attention.eval()
    torch.manual_seed(5)
    before = torch.get_rng_state()
    rg.survey(reader, texts(2))
    assert reader.training and reader.dropout.training and not reader.attention.training
    assert torch.equal(torch.get_rng_state(), before)
    assert all(parameter.grad is None for parameter in reader.parameters())


def test_with_a_ledger_it_is_the_same_to_the_bit(reader, whole, tmp_path):
    same(rg.survey(reader, texts(), folder=tmp_path / "ledger", shard=3), whole)
    assert sorted(path.name for path in (tmp_path / "ledger").iterdir()) == [
        "ledger.json",
        *(f"shard-{number:06}.safetensors" for number in range(4)),
    ]
    same(rg.load(tmp_path / "ledger"), whole)


def test_what_is_there_is_not_done_again(reader, whole, tmp_path):
    rg.survey(reader, texts(7), folder=tmp_path / "ledger", shard=3)
    assert reader.read == 7
    same(rg.survey(reader, iter(texts()), folder=tmp_path / "ledger", shard=3), whole)
    assert reader.read == 11
    (tmp_path / "ledger" / "shard-000001.safetensors").unlink()
    same(rg.survey(reader, texts(), folder=tmp_path / "ledger", shard=3), whole)
    assert reader.read == 14


@pytest.mark.parametrize("stop", [0, 1, 4, 6, 10])
def test_an_interrupt_leaves_a_ledger_that_goes_on(reader, whole, tmp_path, stop):
    stopping = [text | {"stop": stop} for text in texts()]
    going = [text | {"stop": -1} for text in texts()]
    with pytest.raises(KeyboardInterrupt):
        rg.survey(reader, stopping, folder=tmp_path / "ledger", shard=4)
    assert reader.read == stop
    # The digests are of all arguments: those that stop are other texts than those that go on.
    if stop:
        with pytest.raises(RecordError, match="the same texts in the same order, and batch 0 is another one"):
            rg.survey(reader, going, folder=tmp_path / "ledger", shard=4)
    reader.read = 100
    same(rg.survey(reader, stopping, folder=tmp_path / "ledger", shard=4), whole)
    assert reader.read == 100 + 11 - stop


def test_a_text_that_fails_is_listed_and_the_others_are_read(reader, whole):
    broken = texts()
    broken[3]["x"][1, 0, 0] = 1e6
    seen = []
    profile = rg.survey(reader, broken, progress=seen.append)
    assert profile.failures == ((7, "ValueError", "a number is too large"),)
    assert profile.texts == 21 and seen == list(range(2, 23, 2))
    good = [*texts()[:3], {"x": texts()[3]["x"][:1]}, *texts()[4:]]
    same(Profile(**(vars(profile) | {"failures": ()})), rg.survey(reader, good))


def test_where_nothing_can_be_read_the_first_error_is_said(reader, tmp_path):
    with pytest.raises(WatchError, match="none of 2 texts could be read; text 0: TypeError: .*'y'"):
        rg.survey(reader, [{"y": torch.zeros(2, 3, 12)}], folder=tmp_path / "ledger")
    with pytest.raises(
        WatchError, match="none of 1 texts could be read; text 0: WatchError: .*no attention call"
    ):
        rg.survey(nn.Linear(3, 3), [{"input": torch.zeros(1, 3)}])


@pytest.mark.parametrize(
    ("batches", "message"),
    [
        ([], "batches must hold at least one text, got none"),
        ("text", "batches must be an iterable of keyword arguments of the model, in dicts, got 'text'"),
        ({"x": 1}, "batches must be an iterable of keyword arguments of the model, in dicts, got dict"),
        (
            ["text"],
            r"batches\[0\] must be keyword arguments of the model in a dict, got 'text': give the tokenizer",
        ),
        ([3], r"batches\[0\] must be keyword arguments of the model in a dict, got 3"),
    ],
)
def test_what_is_no_batch_is_an_error(reader, batches, message):
    with pytest.raises(ArgumentError, match=message):
        rg.survey(reader, batches)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"shard": 4}, "and shard was 3, got 4"),
        ({"map": None}, "and map was 64, got None"),
        ({"statistics": ["entropy", local(2)]}, "and statistics was"),
        ({"layers": "attention"}, "and layers was None, got 'attention'"),
        ({"resume": False}, "has the ledger of a survey already"),
    ],
)
def test_another_survey_cannot_go_on_with_a_ledger(reader, tmp_path, settings, message):
    rg.survey(reader, texts(2), folder=tmp_path / "ledger", shard=3)
    with pytest.raises(RecordError, match=message):
        rg.survey(reader, texts(2), folder=tmp_path / "ledger", **({"shard": 3} | settings))


def test_another_model_and_fewer_texts_cannot_either(reader, tmp_path):
    rg.survey(reader, texts(5), folder=tmp_path / "ledger", shard=2)
    with pytest.raises(RecordError, match="has more batches than were given"):
        rg.survey(reader, texts(3), folder=tmp_path / "ledger", shard=2)
    with torch.no_grad():
        next(reader.parameters()).add_(1.0)
    with pytest.raises(RecordError, match="and weights was"):
        rg.survey(reader, texts(5), folder=tmp_path / "ledger", shard=2)


def test_a_folder_that_is_no_ledger_is_left_alone(reader, tmp_path):
    (tmp_path / "notes").write_text("mine")
    with pytest.raises(RecordError, match="is no ledger of a survey: choose a folder that is empty or new"):
        rg.survey(reader, texts(1), folder=tmp_path)
    with pytest.raises(RecordError, match="a ledger must be a folder"):
        rg.survey(reader, texts(1), folder=tmp_path / "notes")
    assert [path.name for path in tmp_path.iterdir()] == ["notes"] and reader.read == 0


def test_an_altered_ledger_is_refused(reader, tmp_path):
    rg.survey(reader, texts(3), folder=tmp_path / "ledger", shard=2)
    ledger, shard = tmp_path / "ledger" / "ledger.json", tmp_path / "ledger" / "shard-000000.safetensors"
    content = shard.read_bytes()
    shard.write_bytes(content[:-50] + bytes([content[-50] ^ 1]) + content[-49:])
    for again in (
        lambda: rg.load(tmp_path / "ledger"),
        lambda: rg.survey(reader, texts(3), folder=tmp_path / "ledger", shard=2),
    ):
        with pytest.raises(RecordError, match="shard-000000.safetensors: is altered"):
            again()
    shard.write_bytes((tmp_path / "ledger" / "shard-000001.safetensors").read_bytes())
    with pytest.raises(RecordError, match="must be shard 0, and is shard 1"):
        rg.load(tmp_path / "ledger")
    ledger.write_text(ledger.read_text().replace('"shard": 2', '"shard": 3'))
    with pytest.raises(RecordError, match="altered"):
        rg.load(tmp_path / "ledger")


def test_statistics_may_differ_from_text_to_text(reader):
    def asked(arguments):
        return [
            "entropy",
            "allowed",
            group("last", [arguments["x"].shape[1] - 1], size=arguments["x"].shape[1]),
        ]

    profile = rg.survey(reader, texts(4), statistics=asked, map=None)
    values = []
    for text in texts(4):
        with torch.no_grad(), rg.watch(reader.eval(), map=None) as record:
            reader(**text)
        values.append(record[0].received[:, :, -1] / text["x"].shape[1])
    intervals = profile.intervals()
    last = intervals[intervals["statistic"] == "group.last"]
    torch.testing.assert_close(
        torch.tensor(last["mean"].to_numpy()), torch.cat(values).double().mean(0), atol=1e-6, rtol=0
    )


@pytest.fixture(scope="module")
def language():
    from regard.cli import models

    return models.load(embedded.folder())


SENTENCES = [
    "def f(x): return x",
    "import os\n\nprint(os.name)",
    "for a in b:\n    c(a)",
    "x" * 3,
    "y = [1, 2]",
]


@pytest.mark.parametrize("batch_size", [1, 2, 5])
def test_texts_are_read_with_a_tokenizer(language, batch_size):
    profile = rg.survey(
        language.model, [*SENTENCES, ""], tokenizer=language.tokenizer, tokens=7, batch_size=batch_size
    )
    lengths = [len(language.tokenizer(text)["input_ids"]) for text in SENTENCES]
    assert profile.texts == 5 and profile.truncated == sum(length > 7 for length in lengths)
    assert [(failure.number, failure.type) for failure in profile.failures] == [(5, "ModelError")]
    assert set(profile.heads["queries"]) == {sum(min(7, length) for length in lengths)}
    one = rg.survey(language.model, SENTENCES, tokenizer=language.tokenizer, tokens=7)
    torch.testing.assert_close(
        torch.tensor(profile.heads["entropy"].to_numpy()),
        torch.tensor(one.heads["entropy"].to_numpy()),
        atol=1e-4,
        rtol=1e-4,
    )


def test_a_function_may_stand_for_the_tokenizer(reader):
    profile = rg.survey(
        reader, ["ab", "abc"], tokenizer=lambda texts: {"x": torch.ones(1, len(texts[0]), 12)}
    )
    assert set(profile.heads["queries"]) == {5}


SCRIPT = """
import sys, torch, regard as rg
from pathlib import Path
from survey.test_survey import Reader, texts
torch.set_num_threads(1)
profile = rg.survey(Reader(), texts(), folder=sys.argv[1], shard=2)
profile.save(sys.argv[1] + "-of-" + sys.argv[2] + "-" + __import__("os").environ.get("RANK", "0"))
"""


def test_two_processes_of_a_launch_are_one_to_the_bit(tmp_path):
    (tmp_path / "script.py").write_text(SCRIPT)
    tests = Path(__file__).parents[1]
    environment = os.environ | {"ACCELERATE_USE_CPU": "true", "OMP_NUM_THREADS": "1"}
    environment["PYTHONPATH"] = f"{tests}{os.pathsep}{os.environ.get('PYTHONPATH', '')}"
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
    for count, how in (("one", []), ("two", launch)):
        done = subprocess.run(
            [sys.executable, *how, str(tmp_path / "script.py"), str(tmp_path / count), count],
            env=environment,
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, done.stderr[-3000:]
    one = (tmp_path / "one-of-one-0").read_bytes()
    assert (tmp_path / "two-of-two-0").read_bytes() == (tmp_path / "two-of-two-1").read_bytes() == one
    shards = sorted(path.name for path in (tmp_path / "two").iterdir())
    assert shards == sorted(path.name for path in (tmp_path / "one").iterdir()) and len(shards) == 7


def test_several_processes_need_a_folder(reader, monkeypatch):
    from regard.survey import processes

    monkeypatch.setattr(processes.Processes, "here", lambda *, cpu: processes.Processes(0, 2, lambda: None))
    with pytest.raises(ArgumentError, match="folder must be given where 2 processes share a survey"):
        rg.survey(reader, texts(1))
