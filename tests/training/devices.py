"""A training that `accelerate launch` starts once for each device. Run as a script with the folder of the run."""

import json
import os
import sys
from pathlib import Path

from regard.training import Run, train
from training import tiny


def run(folder: Path) -> Run:
    """Without dropout, whose random numbers differ from process to process."""
    recipe = tiny.recipe(steps=13, batch=8, save_every=7, evaluate_every=4)
    return train(
        tiny.gpt(0.0), recipe, tiny.texts(23), folder=folder, evaluation=tiny.texts(16, 1), probe=tiny.probe(),
        progress=False,
    )  # fmt: skip


if __name__ == "__main__":
    done = run(Path(sys.argv[1]))
    curves = {"losses": done.losses, "evaluations": done.evaluations, "norms": done.norms}
    (done.folder / f"curves-{os.environ['RANK']}.json").write_text(json.dumps(curves))
