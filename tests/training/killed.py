"""A training that takes long enough to be killed. Run as a script with the folder of the run."""

import sys
import time

import torch

from regard.training import Run, train
from training import tiny

EVERY = 5
LATER = 0.2  # seconds that each batch takes


def collate(examples: list[dict[str, torch.Tensor]]) -> dict[str, torch.Tensor]:
    """A batch in which some tokens are hidden at random."""
    batch = {name: torch.stack([each[name] for each in examples]) for name in examples[0]}
    hidden = torch.rand(batch["input_ids"].shape) < 0.15
    return batch | {"input_ids": batch["input_ids"].masked_fill(hidden, 0)}


def slowly(examples: list[dict[str, torch.Tensor]]) -> dict[str, torch.Tensor]:
    """The same batch, later."""
    time.sleep(LATER)
    return collate(examples)


def run(folder: str, model: torch.nn.Module, collate: object = collate) -> Run:
    """Train it: dropout, hidden tokens, evaluations and looks are all on."""
    recipe = tiny.recipe(max_steps=29, save_steps=EVERY, eval_steps=3, gradient_accumulation_steps=2)
    return train(
        model,
        recipe,
        tiny.texts(23),
        folder=folder,
        evaluation=tiny.texts(7, 1),
        collate=collate,
        monitor=tiny.monitor(),
        progress=False,
    )


if __name__ == "__main__":
    run(sys.argv[1], tiny.gpt(), slowly)
