"""`regard train`: learn a task, or score what was learned, and print the card. Knows no arithmetic."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer
from rich import box
from rich.console import Console
from rich.table import Table

from regard.errors import require
from regard.tasks.common import pretrained
from regard.tasks.common.catalogue import NAMES, tasks
from regard.tasks.common.model_card import lines

FOLDER = Path("regard-train")


def train(
    name: Annotated[str, typer.Argument(help=f"The task: {', '.join(NAMES)}.")],
    quick: Annotated[
        bool, typer.Option("--quick", help="Learn for two minutes only, and score fewer examples.")
    ] = False,
    evaluate: Annotated[
        bool,
        typer.Option(
            "--evaluate",
            help="Learn nothing: score the models of the folder again, or without one those that the package brings.",
        ),
    ] = False,
    only: Annotated[
        str | None, typer.Option(help="Only this model of the task; without it, each of them.")
    ] = None,
    seed: Annotated[
        int, typer.Option(min=0, help="Of the first weights, the order of examples and dropout.")
    ] = 0,
    folder: Annotated[
        Path | None, typer.Option(help="Where models and cards go, or are; without it, regard-train/TASK.")
    ] = None,
) -> None:
    """Train small models on a task whose attention can be checked, and score them on held-out data.

    A run that was stopped goes on when the same command is given again.
    """
    console = Console()
    chosen = tasks(name, only)
    # Its bars of single files would tear the bar of the training.
    require("transformers", extra="train").utils.logging.disable_progress_bar()
    for task in chosen:
        # Each model and seed is a run of its own.
        run = f"{task.model}{f'-{seed}' if seed else ''}"
        if evaluate and folder is None:
            # Without a folder, what is scored again are the models of the package.
            run_folder = pretrained.folder(name, run)
        else:
            run_folder = (folder or FOLDER / name) / run
        if evaluate:
            card = task.evaluate(run_folder, quick=quick)
        else:
            card = task.run(run_folder, quick=quick, seed=seed, progress=console.is_terminal)
        _print(console, card)
        what = "The model, its card and its history"
        if evaluate:
            what = "The model that was scored"
        console.print(f"{what}: {run_folder}", highlight=False, soft_wrap=True)


def _print(console: Console, card: dict[str, Any]) -> None:
    title = f"{card['task']}, {card['model']}: {card['held_out_examples']:,} held-out examples"
    table = Table(title=title, title_justify="left", header_style="bold", box=box.SIMPLE_HEAD, pad_edge=False)
    table.add_column("score")
    table.add_column("value", justify="right")
    table.add_column("95 % interval", justify="right")
    for name, value, interval in lines(card["scores"]):
        table.add_row(name, value, interval)
    console.print(table)
    if seconds := card["training"].get("seconds"):
        console.print(f"{card['parameters']:,} parameters, trained in {seconds:,.0f} s", highlight=False)
