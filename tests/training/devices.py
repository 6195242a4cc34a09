"""A training that `accelerate launch` starts once for each device. Run as a script with the folder of the run."""

import atexit
import json
import os
import sys
from pathlib import Path

from torch import distributed

from regard.training import Run, train
from training import tiny


def run(folder: Path) -> Run:
    """Without dropout, whose random numbers differ from process to process."""
    recipe = tiny.recipe(max_steps=13, batch_size=8, save_steps=7, eval_steps=4)
    return train(
        tiny.gpt(0.0),
        recipe,
        tiny.texts(23),
        folder=folder,
        evaluation=tiny.texts(16, 1),
        monitor=tiny.monitor(),
        progress=False,
    )


def note_the_end(folder: Path) -> None:
    """Whether a group of processes is left when the interpreter ends."""
    left = distributed.is_initialized()
    (folder / f"left-{os.environ['RANK']}.json").write_text(json.dumps(left))


if __name__ == "__main__":
    atexit.register(note_the_end, Path(sys.argv[1]))  # runs after what `train` registers
    done = run(Path(sys.argv[1]))
    curves = {"losses": done.losses, "evaluations": done.evaluations, "norms": done.norms}
    (done.folder / f"curves-{os.environ['RANK']}.json").write_text(json.dumps(curves))
