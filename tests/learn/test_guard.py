"""What goes wrong beside the numbers: errors, time, memory, types, noise; each is said, and nothing is a traceback."""

import math
import time

import numpy as np
import pytest

import regard as rg
from regard import learn
from regard.learn import running
from regard.learn.diagnosis import diagnose
from regard.learn.exercises.attention import attention

ATTENTION = learn.exercise("attention")


def first(verdict):
    """The one message that must be mended."""
    assert not verdict.passed and "Traceback" not in str(verdict)
    return next(message for message in verdict.messages if message.kind == "must_mend")


def of_file(tmp_path, text, **limits):
    path = tmp_path / "attention.py"
    path.write_text(text)
    return diagnose(ATTENTION, running.file(path, "attention", ATTENTION.cases, **limits))


HEAD = "import numpy as np\n\ndef attention(query, key, value):\n"


@pytest.mark.parametrize(
    ("body", "variant", "words"),
    [
        ("    return query @ key @ value\n", "", "stops on this input: ValueError: matmul"),
        ("    return query[0]\n", "", "shape (2,), where (2, 2)"),
        ("    return undefined\n", "", "(line 4: return undefined)"),
        ("    raise SystemExit\n", "", "SystemExit"),
        ("    return attention(query, key, value)\n", "", "RecursionError"),
        ("    input('query?')\n", "", "EOFError"),
        ("    import os; os._exit(0)\n", "ended", "ended its whole process"),
        ("    return query @\n", "unreadable", "SyntaxError"),
        ("    np.zeros(1 << 40)\n", "memory", "1 GiB of memory"),
        ("    pass\n", "", "returns None"),
        ("    return query, value\n", "", "a tuple of 2"),
        ("    return [[1.0], [2.0, 3.0]]\n", "", "no array of numbers, of type list"),
        ("    return 'output'\n", "", "shape (), where (2, 2)"),
        ("    return query.astype(complex)\n", "", "dtype complex128"),
        ("    return np.zeros((3, 5))\n", "", "shape (3, 5), where (2, 2)"),
        ("    return np.full((len(query), value.shape[1]), np.nan)\n", "", "NaN or infinity"),
        ("    raise NotImplementedError\n", "not written", "not written yet"),
    ],
)
def test_what_goes_wrong_in_a_file_is_said(tmp_path, body, variant, words):
    message = first(of_file(tmp_path, HEAD + body))
    assert message.variant == variant and words in message.text, message.text


def test_a_loop_without_an_end_is_stopped(tmp_path):
    message = first(of_file(tmp_path, HEAD + "    while True: pass\n", seconds=1))
    assert message.variant == "time" and "never ends" in message.text and "query" in message.example.inputs


def test_sleep_is_stopped_by_the_clock(tmp_path):
    text = "import time\n" + HEAD + "    time.sleep(3600)\n"
    assert first(of_file(tmp_path, text, patience=3.0)).variant == "time"
    message = first(
        diagnose(ATTENTION, running.function(lambda q, k, v: time.sleep(3600), ATTENTION.cases, patience=1))
    )
    assert message.variant == "time"


def test_a_function_of_a_notebook_is_guarded():
    def endless(query, key, value):
        while True:
            math.sqrt(2)

    def greedy(query, key, value):
        return [bytearray(1 << 28) for _ in range(64)]

    run = running.function(endless, ATTENTION.cases, seconds=1)
    assert run.guarded and first(diagnose(ATTENTION, run)).variant == "time"
    assert first(rg.learn.check(greedy, "attention")).variant == "memory"
    message = first(rg.learn.check(lambda q, k, v: q.no_such_thing, "attention"))
    assert (
        "AttributeError" in message.text and "test_guard.py" not in message.text and "(line " in message.text
    )


def test_a_function_that_is_missing_is_said(tmp_path):
    message = first(of_file(tmp_path, "def atention(query, key, value): pass\n"))
    assert message.text == "The file must define the function attention; it defines atention."
    assert "no function" in first(of_file(tmp_path, "")).text


def test_an_error_of_the_file_itself_is_said(tmp_path):
    message = first(of_file(tmp_path, "import numpy as np\nnp.no_such_thing\n"))
    assert (
        message.text.startswith("The file cannot be run: AttributeError")
        and "(line 2: np.no_such_thing)" in message.text
    )


def test_a_file_may_import_torch_and_may_not_load_for_ever(tmp_path, monkeypatch):
    solved = "import torch\n" + ATTENTION.solved.replace(
        "return weights", "return torch.tensor(weights).numpy()"
    )
    verdict = of_file(tmp_path, solved, patience=200.0)
    assert verdict.passed, str(verdict)
    message = first(of_file(tmp_path, "import time\ntime.sleep(3600)\n", patience=3.0))
    assert message.text == "The file cannot be run: TimeoutError: it did not come to an end."


def test_without_a_fork_it_runs_here_and_says_so(monkeypatch):
    monkeypatch.setattr("sys.platform", "darwin")
    verdict = rg.learn.check(attention, "attention")
    assert verdict.passed and "this very process" in verdict.messages[-1].text
    assert first(rg.learn.check(lambda q, k, v: q[99], "attention")).text.startswith("<lambda>") is False


def noisy(query, key, value):
    print("the shape is", query.shape)
    return attention(query, key, value)


@pytest.mark.parametrize(
    ("function", "kind", "words"),
    [
        (noisy, "note", "the shape is (2, 2)"),
        (lambda q, k, v: attention(q, k, v).tolist(), "could_be_better", "returns a list"),
        (
            lambda q, k, v: attention(q, k, v).astype(np.float32),
            "could_be_better",
            "float32",
        ),
    ],
)
def test_what_is_right_may_have_remarks(function, kind, words):
    verdict = rg.learn.check(function, "attention")
    assert verdict.passed and [message.kind for message in verdict.messages] == ["praise", kind]
    assert words in verdict.messages[1].text


def test_an_input_that_is_changed_is_said_beside_another_mistake():
    def both(query, key, value):
        query += 1
        return value * 7

    verdict = rg.learn.check(both, "attention")
    assert [message.kind for message in verdict.messages] == ["must_mend", "must_mend"]
    assert "changes query in place" in verdict.messages[1].text


def test_inputs_are_what_they_were_after_a_check():
    before = [{name: np.copy(value) for name, value in case.arguments.items()} for case in ATTENTION.cases]

    def spoils(query, key, value):
        query[:] = key[:] = value[:] = 0

    rg.learn.check(spoils, "attention")
    running.here(spoils, ATTENTION.cases)
    for case, copies in zip(ATTENTION.cases, before, strict=True):
        assert all(np.array_equal(case.arguments[name], copy) for name, copy in copies.items())


def test_arguments_are_checked(tmp_path):
    with pytest.raises(rg.RegardError, match="the exercise must be one of cosine, .*; got 'atention'"):
        rg.learn.check(attention, "atention")
    with pytest.raises(rg.RegardError, match="must be a function, such as attention, got ndarray"):
        rg.learn.check(np.ones(3), "attention")
    with pytest.raises(rg.RegardError, match="the solution must be a file"):
        learn.check_file(tmp_path / "none.py", "attention")


def test_a_verdict_shows_itself():
    verdict = rg.learn.check(lambda q, k, v: q @ k.T, "attention")
    text, page = str(verdict), verdict._repr_html_()
    assert text.startswith("attention: not passed yet\n✗ ")
    for part in ("input", "expected", "got"):
        assert part in text and part in page
    assert page.startswith('<div class="regard">') and "<script" not in page

    def hostile(query, key, value):
        raise ValueError("<script>alert(1)</script>")

    assert "<script>" not in rg.learn.check(hostile, "attention")._repr_html_()
