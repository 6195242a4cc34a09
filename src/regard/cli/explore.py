"""`regard explore`: opens records and models in a local web app. Knows no arithmetic."""

from __future__ import annotations

import importlib.util
import os
import sys
import time
import webbrowser
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer
from rich.console import Console
from rich.progress import BarColumn, Progress, SpinnerColumn, TextColumn

from regard import embedded
from regard.cli import shelf as shelved
from regard.errors import ArgumentError, ModelError, require
from regard.record.folder import RECORD
from regard.record.loading import is_history
from regard.tasks.common.looks import LOOKS
from regard.training.monitor import FILE
from regard.web.tiles import RecordTiles

if TYPE_CHECKING:
    from regard.explorer.jobs import Jobs
    from regard.explorer.line import RunLine
    from regard.explorer.opened import Model, Opened
    from regard.explorer.several import Several
    from regard.explorer.signing_in.provider import Provider

# Tasks that read a picture.
IMAGES = ("caption",)
# Seconds between two looks at a run.
EVERY = 0.05


def explore(
    names: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="[MODEL | RECORD | HISTORY | TASK]...",
            help="What to open: a record's folder, a model's folder, a Hugging Face name, the history of a training or "
            f"the folder that has one, a task ({', '.join(LOOKS)}). "
            "The embedded model and the tasks can always be run.",
            show_default=False,
        ),
    ] = None,
    port: Annotated[int, typer.Option(help="Where the server listens; 0 takes a free port.")] = 0,
    host: Annotated[
        str, typer.Option(help="The address to bind; another one needs a password.")
    ] = "127.0.0.1",
    password: Annotated[
        str,
        typer.Option(
            envvar="REGARD_PASSWORD",
            help="Lets others in, where the address is not this machine's own or --serve is said.",
        ),
    ] = "",
    several: Annotated[
        bool,
        typer.Option(
            "--serve",
            help="Let several people in, each with records, runs and progress of their own; needs a password.",
        ),
    ] = False,
    public_address: Annotated[
        str,
        typer.Option(
            help="With --serve: the address that visitors open, https://name, of a proxy that stands in front of it.",
            show_default=False,
        ),
    ] = "",
    browser: Annotated[bool, typer.Option(help="Open the browser.")] = True,
    device: Annotated[str, typer.Option(help="Where models run: cpu, cuda, mps …")] = "cpu",
    database: Annotated[
        str,
        typer.Option(
            envvar="REGARD_DATABASE",
            help="The URL of the database of progress, SQLite or PostgreSQL; by default a file of your own.",
            show_default=False,
        ),
    ] = "",
    sign_in: Annotated[
        str,
        typer.Option(
            metavar="ISSUER",
            help="The address of an OpenID provider, such as https://accounts.google.com, that signs learners in.",
            show_default=False,
        ),
    ] = "",
    client_id: Annotated[
        str, typer.Option(help="What the provider calls this server.", show_default=False)
    ] = "",
    client_secret_file: Annotated[
        Path | None,
        typer.Option(
            help="A file with what the provider gave with it, if it did; or REGARD_CLIENT_SECRET.",
            show_default=False,
        ),
    ] = None,
) -> None:
    """Open a local web app: every attention head, from the whole map down to single weights."""
    require("fastapi", extra="explore")
    require("uvicorn", extra="explore")
    from regard.explorer import serve
    from regard.explorer.app import create_app, create_shared_app
    from regard.explorer.jobs import Jobs
    from regard.explorer.learning import Learning
    from regard.explorer.line import RunLine
    from regard.explorer.opened import Opened
    from regard.explorer.security import Access
    from regard.explorer.signing_in.door import BACK
    from regard.explorer.signing_in.sign_in import SignIn
    from regard.explorer.worker import Worker

    console = Console(emoji=False)
    if not 0 <= port < 1 << 16:
        raise ArgumentError(f"--port must be from 0 to 65535, got {port}")
    access = Access(host, password, several, public_address, signs_in=bool(sign_in))
    provider = provider_of(sign_in, client_id, client_secret_file)
    # A record is known by its file; whatever else is named is left to the loader of models.
    folders = [name for name in names or () if is_record(name)]
    histories = {name: path for name in names or () if (path := history_file(name))}
    wanted = [name for name in names or () if name not in folders and name not in histories]
    opened = Opened(offered(wanted))
    shelved.shelve(opened.trainings, histories)
    for name in folders:
        opened.add(
            RecordTiles.open(name), Path(name).name, f"import regard as rg\n\nrecord = rg.load({name!r})"
        )
    # Before any model is run, so that an address that is taken is told at once.
    listening = serve.bind(access, port)
    line = RunLine(Worker([sys.executable, "-m", "regard.cli.worker", device]))
    jobs = Jobs(opened, line)
    try:
        # A history that is alone is what the page opens with.
        if wanted or not (folders or histories):
            _first_look(console, jobs, opened, wanted)
        signing_in = None
        if several:
            shared = visitors(console, opened, line, database)
            if provider is not None:
                signing_in = SignIn(provider, shared.learning, alone=False, sessions=shared.sessions)
            app = create_shared_app(opened, shared, access, signing_in=signing_in)
        else:
            learner = Learning(database, runs_code=access.local)
            if provider is not None:
                signing_in = SignIn(provider, learner, alone=access.local)
            app = create_app(opened, jobs, access, learner=learner, signing_in=signing_in)
        address = serve.address(access, listening)
        if histories and not opened.records():
            address += "#/history"
        console.print(f"The explorer: {address}", highlight=False, soft_wrap=True)
        if access.exposed:
            console.print(f"[bold]{access.exposed}[/bold]", highlight=False)
        if signing_in is not None:
            back = address.partition("?")[0].partition("#")[0].rstrip("/") + BACK
            console.print(f"Sign-in: {sign_in} must know the address {back}", highlight=False, soft_wrap=True)
        console.print("[dim]Ctrl-C ends it.[/dim]")

        def ready() -> None:
            if browser and not several and has_screen():
                webbrowser.open(address)

        serve.serve(app, listening, ready)
    finally:
        jobs.close()
        line.close()
        listening.close()


def provider_of(issuer: str, client_id: str, secret_file: Path | None) -> Provider | None:
    """Who signs visitors in, as the options say; None for nobody.

    Raises:
        ArgumentError: they do not fit together, or the file cannot be read.
        MissingPackageError: the extra `sign-in` is not installed.
    """
    if not issuer:
        if client_id or secret_file:
            raise ArgumentError(
                "--client-id and --client-secret-file must go with --sign-in, the provider's address"
            )
        return None
    require("authlib", extra="sign-in")
    require("httpx2", extra="sign-in")
    from regard.explorer.signing_in.client import Client
    from regard.explorer.signing_in.provider import Provider

    secret = os.environ.get("REGARD_CLIENT_SECRET", "")
    if secret_file is not None:
        try:
            secret = secret_file.read_text("utf-8").strip()
        except (OSError, UnicodeDecodeError) as error:
            raise ArgumentError(
                f"--client-secret-file must be a file that can be read, got {str(secret_file)!r}: {error}"
            ) from error
    return Provider(Client(issuer, client_id, secret))


def visitors(console: Console, opened: Opened, line: RunLine, database: str) -> Several:
    """What a server of several visitors has.

    Args:
        console: is told where solutions are not checked. opened: what everybody looks at. line: in which runs wait.
        database: of progress.
    """
    from regard.explorer.desks import ManyDesks
    from regard.explorer.learning import Learning
    from regard.explorer.several import Several
    from regard.explorer.visitors import Sessions
    from regard.learn import box

    strict, why = None, ""
    try:
        strict = box.find(box.secrets(database))
    except box.NoBoxError as error:
        why = f"Solutions of exercises are not checked on this server, as it has no box to run them in ({error})."
        console.print(f"[bold]{why}[/bold]", highlight=False)
    learning = Learning(database, runs_code=strict is not None, box=strict, unchecked=why, several=True)
    sessions = Sessions()
    return Several(ManyDesks(opened, line, here=sessions.holds), learning, sessions)


def is_record(name: str) -> bool:
    """Whether a name is the folder of a record, as against a model's folder or name, or a task."""
    return name not in LOOKS and (Path(name) / RECORD).is_file()


def history_file(name: str) -> Path | None:
    """The file of a history, where a name is one, or the folder of a trained model that has one; else None."""
    path = Path(name)
    if name in LOOKS or is_record(name):
        return None
    # The folder of a training has its model and its history side by side.
    if path.is_dir():
        path = path / FILE
    if path.is_file() and is_history(path):
        return path
    return None


def offered(names: Iterable[str]) -> list[Model]:
    """The models that can be run: those named, the embedded one, and the tasks, if their models are installed."""
    from regard.explorer.opened import Model

    models = [
        Model(f"m{number}", name, "transformers", source=name, example=embedded.TEXT)
        for number, name in enumerate((name for name in names if not is_own(name)), 1)
    ]
    models.append(Model("language", "Regard's embedded model", "embedded", example=embedded.TEXT))
    if importlib.util.find_spec("regard_tasks") is not None:
        models += [Model(task, task, "task", takes=_takes(task), source=task) for task in LOOKS]
    return models


def _takes(task: str) -> Literal["text", "image"]:
    if task in IMAGES:
        return "image"
    return "text"


def is_own(name: str) -> bool:
    """Whether a name is that of a task, `language` among them: a folder of such a name is reached as ./translate."""
    return name in (*LOOKS, "language")


def has_screen() -> bool:
    """Whether a browser could be seen: one for terminals would take the place of what is printed."""
    if sys.platform in ("win32", "darwin"):
        return True
    return bool(os.environ.get("DISPLAY") or os.environ.get("WAYLAND_DISPLAY"))


def _first_look(console: Console, jobs: Jobs, opened: Opened, names: Iterable[str]) -> None:
    """Run what was named on its example, so that there is something to see when the page opens.

    Raises:
        ModelError: it failed.
    """
    titles = {model.title: model for model in opened.models.values()}
    chosen = [opened.models.get(name) or titles[name] for name in names] or [opened.models["language"]]
    for model in chosen:
        parts = (SpinnerColumn(), TextColumn("{task.description}"), BarColumn())
        with Progress(*parts, console=console, transient=True) as bar:
            line = bar.add_task(f"{model.title}: starting", total=1.0)
            job = jobs.submit(model, model.example)
            while not job.over:
                bar.update(line, description=f"{model.title}: {job.message}", completed=job.progress or 0.0)
                time.sleep(EVERY)
                job = jobs[job.id]
        if job.state != "done":
            raise ModelError(job.message)
