"""A run that was killed goes on as if it had not been; a checkpoint that is not whole is never used in silence."""

import json
import os
import shutil
import signal
import subprocess
import sys
import time
import warnings
from pathlib import Path

import pytest
import torch

from regard import files
from regard.errors import TrainingError
from regard.files import sealing
from regard.training import History, checkpoints, train
from training import killed, tiny

TESTS = Path(__file__).parents[1]


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    """The run that nobody disturbed: its folder, its model, what came of it."""
    folder, model = tmp_path_factory.mktemp("whole"), tiny.gpt()
    return folder, model, killed.run(str(folder), model)


@pytest.fixture(scope="module")
def ended(tmp_path_factory):
    """A folder with the checkpoints 5 and 10 of a run."""
    folder = tmp_path_factory.mktemp("ended")
    go_on(folder)
    return folder


@pytest.fixture
def stopped(ended, tmp_path):
    """A copy of it, to be damaged."""
    return Path(shutil.copytree(ended, tmp_path / "run"))


def go_on(folder, **settings):
    return train(
        tiny.gpt(), tiny.recipe(max_steps=10), tiny.texts(23), folder=folder, progress=False, **settings
    )


def same_history(one, other):
    assert (one.steps, one.pictured, one.layers) == (other.steps, other.pictured, other.layers)
    assert torch.equal(one.values, other.values)
    assert all(torch.equal(a, b) for a, b in zip(one.maps, other.maps, strict=True))


def test_a_killed_run_resumes_bit_for_bit(whole, tmp_path):
    environment = os.environ | {"PYTHONPATH": os.pathsep.join([str(TESTS), *sys.path])}
    process = subprocess.Popen([sys.executable, killed.__file__, str(tmp_path)], env=environment)
    try:
        deadline = time.monotonic() + 240
        while not (tmp_path / f"checkpoint-{2 * killed.EVERY}" / checkpoints.SEAL).exists():
            assert process.poll() is None and time.monotonic() < deadline
            time.sleep(0.01)
    finally:
        process.send_signal(signal.SIGKILL)
        process.wait()
    assert process.returncode == -signal.SIGKILL
    assert not (tmp_path / "checkpoint-29").exists()
    model = tiny.gpt()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # it may have been killed while it wrote the next checkpoint
        run = killed.run(str(tmp_path), model)
    _, undisturbed, expected = whole
    assert run.resumed >= 2 * killed.EVERY
    assert run.seconds > 2 * killed.EVERY * killed.LATER  # those before it was killed are among them
    assert tiny.same(tiny.weights(model), tiny.weights(undisturbed))
    assert (run.losses, run.evaluations, run.rates, run.norms) == (
        expected.losses,
        expected.evaluations,
        expected.rates,
        expected.norms,
    )
    same_history(run.history, expected.history)
    same_history(History.load(tmp_path / "history.safetensors"), expected.history)


@pytest.mark.parametrize("step", [25, 29])
def test_every_checkpoint_leads_to_the_same_end(whole, tmp_path, step):
    """The last one too: then there is nothing left to do."""
    folder, undisturbed, expected = whole
    shutil.copytree(folder / f"checkpoint-{step}", tmp_path / f"checkpoint-{step}")
    shutil.copy(folder / "recipe.json", tmp_path)
    model = tiny.gpt()
    run = killed.run(str(tmp_path), model)
    assert run.resumed == step and tiny.same(tiny.weights(model), tiny.weights(undisturbed))
    assert run.losses == expected.losses and run.evaluations == expected.evaluations
    same_history(run.history, expected.history)


def test_a_monitor_that_comes_later_begins_there(stopped):
    shutil.rmtree(stopped / "checkpoint-10")
    assert go_on(stopped, monitor=tiny.monitor()).history.steps == (5, 6, 7, 8, 10)


def test_checkpoints_are_safetensors_and_as_many_as_said(stopped):
    assert list(checkpoints.steps(stopped)) == [10, 5]
    assert (stopped / "checkpoint-10" / "model.safetensors").exists()


def cut(path):
    path.write_bytes(path.read_bytes()[:-100])


def altered(path):
    content = bytearray(path.read_bytes())
    content[-1] ^= 1
    path.write_bytes(content)


@pytest.mark.parametrize("name", ["model.safetensors", "optimizer.pt", "trainer_state.json", "rng_state.pth"])
@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (cut, "is cut short or altered: must have .* bytes, got"),
        (altered, "is altered: must have SHA-256 .*, got"),
        (Path.unlink, "is missing"),
    ],
)
def test_a_damaged_file_is_named_and_the_checkpoint_before_is_used(stopped, name, damage, message):
    damage(stopped / "checkpoint-10" / name)
    with pytest.raises(TrainingError, match=f"checkpoint-10/{name}: {message}"):
        go_on(stopped, resume=stopped / "checkpoint-10")
    with pytest.warns(
        UserWarning, match=f"checkpoint-10/{name}: {message}.* goes on from checkpoint-5 instead"
    ) as said:
        assert checkpoints.latest(stopped) == stopped / "checkpoint-5"
    assert len(said) == 1


def test_a_run_goes_on_from_the_checkpoint_before(stopped):
    expected = tiny.weights(tiny.gpt().from_pretrained(stopped / "checkpoint-10"))
    cut(stopped / "checkpoint-10" / "model.safetensors")
    model = tiny.gpt()
    with pytest.warns(UserWarning, match="The run goes on from checkpoint-5 instead") as said:
        run = train(model, tiny.recipe(max_steps=10), tiny.texts(23), folder=stopped, progress=False)
    assert run.resumed == 5 and tiny.same(tiny.weights(model), expected)
    assert [str(each.filename) for each in said if "goes on" in str(each.message)] == [__file__]
    assert sealing.broken(stopped / "checkpoint-10") is None


def test_an_unfinished_checkpoint_is_passed_over(stopped):
    (stopped / "checkpoint-10" / checkpoints.SEAL).unlink()
    with pytest.warns(
        UserWarning, match=r"checkpoint-10/seal.json: is missing, so the folder was never completed"
    ):
        assert checkpoints.latest(stopped) == stopped / "checkpoint-5"
    shutil.rmtree(stopped / "checkpoint-5")
    with pytest.warns(UserWarning, match=r"never completed\. The run begins anew"):
        assert checkpoints.latest(stopped) is None


def test_a_run_does_not_begin_anew_over_damaged_checkpoints(stopped):
    for step in (5, 10):
        cut(stopped / f"checkpoint-{step}" / "model.safetensors")
    message = (
        "resumes from a whole checkpoint, but there is none: .*checkpoint-10/model.safetensors: is cut short"
    )
    with pytest.raises(TrainingError, match=message):
        go_on(stopped)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("{", "is damaged"),
        ("[]", "is no seal of Regard"),
        ('{"format": "regard-seal", "version": 1, "files": {}}', "is altered: must begin with"),
        ('{"format": "regard-seal", "version": 9, "files": {}}', "has format version 9, this Regard reads 1"),
        ('{"format": "regard-recipe", "version": 1}', "is no seal of Regard"),
    ],
)
def test_a_damaged_seal_is_named(stopped, text, message):
    (stopped / "checkpoint-10" / checkpoints.SEAL).write_text(text)
    assert f"checkpoint-10/seal.json: {message}" in sealing.broken(stopped / "checkpoint-10")


@pytest.mark.parametrize(
    "listed", ["3", '{"a": 1}', '{"a": {"bytes": 1}}', '{"a": {"bytes": "1", "sha256": ""}}']
)
def test_a_seal_that_lists_nonsense_is_named(stopped, listed):
    content = sealing.document(sealing.FOLDER, {"files": json.loads(listed)})
    (stopped / "checkpoint-10" / checkpoints.SEAL).write_bytes(content)
    assert "must be" in sealing.broken(stopped / "checkpoint-10")


def test_a_run_does_not_begin_anew_over_damaged_seals(stopped):
    for step in (5, 10):
        path = stopped / f"checkpoint-{step}" / checkpoints.SEAL
        path.write_bytes(path.read_bytes().replace(b'"bytes": 1', b'"bytes": 2', 1))
    with pytest.raises(TrainingError, match="there is none: .*seal.json: is cut short or altered"):
        go_on(stopped)


def test_what_a_killed_run_left_is_removed_and_what_another_runs_is_not(stopped):
    unfinished = stopped / "checkpoint-10"
    (unfinished / checkpoints.SEAL).unlink()
    (unfinished / ".tmp5Xa2").write_text("half of the weights")
    with (
        files.one_at_a_time(stopped),
        pytest.warns(UserWarning, match="goes on from checkpoint-5"),
        pytest.raises(
            TrainingError, match="one process must train into a folder at a time, and another one does"
        ),
    ):
        go_on(stopped)
    assert (unfinished / ".tmp5Xa2").exists()
    with pytest.warns(UserWarning, match="goes on from checkpoint-5"):
        go_on(stopped)
    assert not (unfinished / ".tmp5Xa2").exists() and sealing.broken(unfinished) is None


def test_another_recipe_is_another_run(stopped):
    with pytest.raises(
        TrainingError, match="recipe.json: the run must go on with learning_rate=0.001, as it began, got 0.01"
    ):
        train(
            tiny.gpt(),
            tiny.recipe(max_steps=10, learning_rate=0.01),
            tiny.texts(23),
            folder=stopped,
            progress=False,
        )
    with pytest.raises(TrainingError, match="holds the checkpoints of a run: take another folder"):
        go_on(stopped, resume="never")
