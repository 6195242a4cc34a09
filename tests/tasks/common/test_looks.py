"""`look` finds a task's module and refuses what is not of the task; what all tasks share does what it says."""

import subprocess
import sys
from pathlib import Path

import pytest
import torch

from regard.errors import ArgumentError
from regard.tasks.caption import data as caption
from regard.tasks.common.catalogue import NAMES, tasks
from regard.tasks.common.looks import LOOKS, look
from regard.tasks.common.result import Written, table, write
from regard.tasks.common.tokenizer import END


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (
            ("language",),
            "the task must be one of translate, bottleneck, answer, summarize, caption, got 'language'",
        ),
        (("cook", Path("file.txt")), "the task must be one of translate, .*, got 'cook'"),
        (
            ("answer", "text", "fr"),
            r"into \(--to\) must be left out, as answer has no other language, got 'fr'",
        ),
        (("summarize", None, "fr"), "as summarize has no other language, got 'fr'"),
        (("caption", "file.png", ""), "as caption has no other language, got ''"),
        (("translate", Path("file.txt")), "translate must be given its text, got the path 'file.txt'"),
        (("bottleneck", Path("file.txt"), "de"), "bottleneck must be given its text"),
        (("answer", Path("file.txt")), "answer must be given its text"),
        (("summarize", Path("file.txt")), "summarize must be given its text"),
    ],
)
def test_what_is_not_of_the_task_is_refused(arguments, message):
    task, given, into = (*arguments, None, None)[:3]
    with pytest.raises(ArgumentError, match=message):
        look(task, given, into=into)


def test_every_task_but_one_is_looked_at():
    assert set(NAMES) - set(LOOKS) == {"language"} and set(LOOKS) <= set(NAMES)


def test_the_tasks_are_named_without_loading_models():
    code = "import sys, regard.tasks.common.looks; sys.exit('transformers' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code]).returncode == 0


def test_a_table_names_the_largest_weights_and_marks_what_is_known():
    weights = torch.tensor([[0.1, 0.7, 0.2], [0.5, 0.25, 0.25], [0.0, 0.004, 0.996], [0.3, 0.3, 0.4]])
    truth = torch.tensor([[0, 1, 1], [0, 1, 0], [0, 0, 0], [1, 0, 1]]).bool()
    lines, known = table(["a", "b", "c", "d"], weights, ["x", "y", "z"], truth)
    assert lines == (
        ("a", "y", "0.70", "✓"),
        ("b", "x", "0.50", "✗"),
        ("c", "z", "1.00", ""),
        ("d", "z", "0.40", "✓"),
    )
    assert known == [True, False, True]
    lines, known = table(["a", "b", "c", "d"], weights, ["x", "y", "z"], None)
    assert [line[:3] for line in lines] == [
        ("a", "y", "0.70"),
        ("b", "x", "0.50"),
        ("c", "z", "1.00"),
        ("d", "z", "0.40"),
    ]
    assert {line[3] for line in lines} == {""} and known == []


@pytest.mark.parametrize(
    ("sure", "doubts"), [([0.9, 0.5, 0.7], ""), ([0.9, 0.49, 0.2, 0.3], "'c' a probability of 0.20")]
)
def test_the_least_sure_token_is_doubted(sure, doubts):
    written = Written([1, 2, 3, 4][: len(sure)], torch.tensor(sure), ["a", "b", "c", "d"][: len(sure)], None)
    assert doubts in "".join(written.doubts(0.5)) and len(written.doubts(0.5)) == bool(doubts)
    assert len(written.doubts(0.95)) == 1 and written.doubts(0.0) == ()


def test_what_is_written_is_the_likeliest_each_time(fresh):
    """Token by token with the model's own logits, to which the probabilities and the record belong."""
    _, words = fresh("caption")
    (task,) = tasks("caption")
    model = task.new(len(words), 7).eval()
    image = caption.scenes(1, held=True)[0].image[None]
    written = write(model, {"pixel_values": image}, 11, words)
    begun = [words.encode([written.record.tokens[0][0]])[0]]
    with torch.no_grad():
        for number, sure in zip(written.ids, written.probabilities.tolist(), strict=True):
            chances = (
                model(pixel_values=image, decoder_input_ids=torch.tensor([begun])).logits[0, -1].softmax(-1)
            )
            assert number == int(chances.argmax()) and sure == pytest.approx(float(chances.max()), rel=1e-4)
            begun.append(number)
    assert len(written.ids) == 11 or written.ids[-1] == END
    assert written.record.tokens == [[words.all[number] for number in begun[:-1]]]
    assert written.words == [words.all[number].removeprefix("##") for number in written.ids]
    assert {call.sizes.queries for call in written.record if call.kind == "cross"} == {len(written.ids)}


def test_a_mark_that_could_not_be_another_is_not_shown():
    """Where every key is right, or none is, a mark would say nothing."""
    weights, truth = torch.tensor([[0.7, 0.3]] * 3), torch.tensor([[1, 1], [0, 0], [0, 1]]).bool()
    lines, known = table(["a", "b", "c"], weights, ["x", "y"], truth)
    assert [mark for *_, mark in lines] == ["", "", "✗"] and known == [False]
