"""The commands and their names. Knows nothing else."""

from __future__ import annotations

from regard.errors import require
from regard.files.versions import own_version

typer = require("typer", extra="look")
require("rich", extra="look")

from regard.cli import bench, check, explore, history, learn, look, survey, train, verify  # noqa: E402  (they import typer, which is an extra: say so first)

app = typer.Typer(
    help="Regard shows what attention does, in any PyTorch model, at any length.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)


def _version(value: bool) -> None:
    if value:
        print(f"regard {own_version()}")
        raise typer.Exit


def _main(
    version: bool = typer.Option(
        False, "--version", callback=_version, is_eager=True, help="Say the version, and end."
    ),
) -> None:
    pass


app.callback()(_main)
app.command("look")(look.look)
app.command("check")(check.check)
app.command("survey")(survey.survey)
app.command("explore")(explore.explore)
app.command("learn")(learn.learn)
app.command("train")(train.train)
app.command("history")(history.history)
app.command("bench")(bench.bench)
app.command("verify")(verify.verify)
