"""Each exercise fails unsolved, each solution passes, and each known mistake is named by its own name."""

import numpy as np
import pytest

from regard import learn
from regard.learn import running
from regard.learn.diagnosis import diagnose, same
from regard.learn.running import Run

EXERCISES = learn.exercises()
IDS = [exercise.name for exercise in EXERCISES]
WRONG = [
    pytest.param(exercise, variant, id=f"{exercise.name}: {variant.name}")
    for exercise in EXERCISES
    for variant in exercise.variants
]


@pytest.mark.parametrize("exercise", EXERCISES, ids=IDS)
def test_the_unsolved_file_fails_and_the_solution_passes(exercise, tmp_path):
    path = tmp_path / exercise.file
    path.write_text(exercise.unsolved)
    verdict = learn.check_file(path, exercise.name)
    assert not verdict.passed and verdict.messages[0].variant == "not written"
    path.write_text(exercise.solved)
    verdict = learn.check_file(path, exercise.name)
    assert verdict.passed, str(verdict)
    assert [message.kind for message in verdict.messages] == ["praise"]


@pytest.mark.parametrize(("exercise", "variant"), WRONG)
def test_each_mistake_is_named(exercise, variant):
    verdict = diagnose(exercise, Run(running.here(variant.function, exercise.cases)))
    first = verdict.messages[0]
    assert not verdict.passed
    assert (first.kind, first.variant) == ("must_mend", variant.name)
    # The example shows the mistake: what came out is not what is expected.
    assert first.example.expected != first.example.got and first.example.inputs


@pytest.mark.parametrize("exercise", EXERCISES, ids=IDS)
def test_mistakes_can_be_told_apart(exercise):
    results = {v.name: running.here(v.function, exercise.cases) for v in exercise.variants}
    results["solution"] = running.here(exercise.solution, exercise.cases)
    names, twins = list(results), []
    assert len(set(names)) == len(exercise.variants) + 1
    for number, name in enumerate(names):
        for other in names[number + 1 :]:
            pairs = zip(results[name], results[other], strict=True)
            if all(same(a, b) and a.changed == b.changed for a, b in pairs):
                twins.append((name, other))
    assert twins == []


@pytest.mark.parametrize("exercise", EXERCISES, ids=IDS)
def test_an_exercise_is_whole(exercise):
    assert len(exercise.statement) > 60 and len(exercise.hints) >= 2 and exercise.praise.endswith(".")
    assert all(variant.text.endswith(".") and len(variant.text) > 30 for variant in exercise.variants)
    # The smallest input can be read.
    assert sum(np.size(value) for value in exercise.cases[0].arguments.values()) <= 40
    assert "raise NotImplementedError" in exercise.unsolved and "NotImplementedError" not in exercise.solved


def test_there_are_many():
    assert len(WRONG) >= 60
