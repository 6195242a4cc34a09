"""The commands and their names. Knows nothing else."""

from __future__ import annotations

from regard.errors import require

typer = require("typer", extra="look")
require("rich", extra="look")

from regard.cli import bench, life, look, train, verify  # noqa: E402  (they import typer, which is an extra: say so first)

app = typer.Typer(
    help="Regard shows what attention does, in any PyTorch model, at any length.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)
app.command("look")(look.look)
app.command("train")(train.train)
app.command("life")(life.life)
app.command("bench")(bench.bench)
app.command("verify")(verify.verify)
