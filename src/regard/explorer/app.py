"""The app: routes, errors that are told, the page."""

from __future__ import annotations

from importlib import resources
from pathlib import Path
from typing import Any

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse, PlainTextResponse
from starlette.middleware.trustedhost import TrustedHostMiddleware
from starlette.responses import FileResponse, Response
from starlette.staticfiles import StaticFiles

from regard.errors import RegardError
from regard.explorer.desks import Desk, Desks, NoDeskError, OneDesk
from regard.explorer.entering import Door
from regard.explorer.jobs import Jobs
from regard.explorer.lanes import TooBusyError
from regard.explorer.learning import Learning
from regard.explorer.opened import NotOpenError, Opened
from regard.explorer.routes import (
    changes,
    check,
    classes,
    files,
    flow,
    heads,
    histories,
    learning,
    playground,
    quizzes,
    records,
    runs,
    sign_in,
    views,
    visit,
)
from regard.explorer.security import Access, Guard, PublicAddress, SecureHeaders
from regard.explorer.several import Several
from regard.explorer.signing_in.door import Door as SignInDoor
from regard.explorer.signing_in.sign_in import SignIn
from regard.explorer.tries import Tries
from regard.files.versions import own_version
from regard.web.tiles import CanceledError

BUILD = "The page is not built: in the source tree, `make web` does it.\n"


def bundle() -> Path:
    """Where the built front end lies, if it was built."""
    return Path(str(resources.files("regard.web"))) / "bundle"


def create_api(opened: Opened, jobs: Jobs | Desks, learner: Learning | None = None) -> FastAPI:
    """The routes and how they tell errors, for whoever carries requests to them; everybody is let in.

    Args:
        opened: records and models.
        jobs: runs of the models, and with them one desk for everybody; or the desks of several visitors.
        learner: whose progress is shown; None: that of this user.
    """
    desks: Desks = OneDesk(Desk(opened, jobs)) if isinstance(jobs, Jobs) else jobs
    app = FastAPI(
        title="Regard's explorer",
        version=own_version(),
        # Their pages load scripts from elsewhere.
        docs_url=None,
        redoc_url=None,
        openapi_url="/api/openapi.json",
        # Counted while it comes in, whatever its header says.
        max_body_size=opened.limits.upload,
    )
    app.state.desks, app.state.learning = desks, learner or Learning()
    # A server of several visitors sets it.
    app.state.several = None
    app.state.tries = Tries()
    # Nobody signs visitors in here, unless somebody is named.
    app.state.sign_in = None
    for part in (
        records,
        heads,
        changes,
        views,
        files,
        check,
        flow,
        histories,
        runs,
        playground,
        learning,
        quizzes,
        classes,
        sign_in,
        visit,
    ):
        app.include_router(part.router, prefix="/api")
    _answer_errors(app)
    return app


def create_app(
    opened: Opened,
    jobs: Jobs,
    access: Access,
    page: Path | None = None,
    learner: Learning | None = None,
    signing_in: SignIn | None = None,
) -> FastAPI:
    """The app of one server.

    Args:
        opened: records and models.
        jobs: runs of the models.
        access: who is let in.
        page: the folder of the built front end; None: the package's own.
        learner: whose progress is shown; None: that of this user, whose code is run only where the address is this
            machine's own.
        signing_in: who signs visitors in, on the same `Learning`; None: nobody does.
    """
    app = create_api(opened, jobs, learner or Learning(runs_code=access.local))
    return _let_in(app, page, Guard, access, signing_in)


def create_shared_app(
    opened: Opened,
    several: Several,
    access: Access,
    page: Path | None = None,
    signing_in: SignIn | None = None,
) -> FastAPI:
    """The app of a server of several visitors.

    Args:
        opened: what is offered to all of them to look at.
        several: their sessions, desks and progress.
        access: who is let in.
        page: as for `create_app`. signing_in: as there, on the learning and the sessions of `several`.
    """
    app = create_api(opened, several.desks, several.learning)
    app.state.several, app.state.access = several, access
    provider = "" if signing_in is None else signing_in.provider.client.host
    return _let_in(app, page, Door, access, signing_in, sessions=several.sessions, provider=provider)


def _let_in(
    app: FastAPI, page: Path | None, guard: Any, access: Access, signing_in: SignIn | None, **options: Any
) -> FastAPI:
    """The app with its page, behind whoever lets requests in."""
    if signing_in is not None:
        app.state.sign_in = signing_in
        app.include_router(sign_in.opening)
    _serve_page(app, page or bundle())
    # The last one is asked first.
    app.add_middleware(guard, access=access, **options)
    if signing_in is not None:
        app.add_middleware(SignInDoor, sign_in=signing_in)
    if access.public:
        app.add_middleware(PublicAddress, public=access.public)
    app.add_middleware(TrustedHostMiddleware, allowed_hosts=list(access.hosts), www_redirect=False)
    app.add_middleware(SecureHeaders)
    return app


def _answer_errors(app: FastAPI) -> None:
    """What is wrong with a request is said in one sentence: what must hold, and what was got."""

    def detail(status: int, why: object) -> Response:
        return JSONResponse({"detail": " ".join(str(why).split())[:1000]}, status)

    @app.exception_handler(NotOpenError)
    def _not_open(_request: Request, error: NotOpenError) -> Response:
        return detail(404, error)

    @app.exception_handler(NoDeskError)
    def _nobody(_request: Request, error: NoDeskError) -> Response:
        return detail(401, error)

    @app.exception_handler(RegardError)
    def _wrong(_request: Request, error: RegardError) -> Response:
        return detail(400, error)

    @app.exception_handler(TooBusyError)
    def _busy(_request: Request, error: TooBusyError) -> Response:
        return detail(429, error)

    @app.exception_handler(CanceledError)
    def _gone(_request: Request, error: CanceledError) -> Response:
        # As servers write it into their logs: nobody reads this answer.
        return detail(499, error)

    @app.exception_handler(RequestValidationError)
    def _invalid(_request: Request, error: RequestValidationError) -> Response:
        # The first few: a request with hundreds of faults needs no list of them.
        parts = (f"{'.'.join(map(str, one['loc'][1:]))}: {one['msg']}" for one in error.errors()[:5])
        return detail(422, "; ".join(parts))


def _serve_page(app: FastAPI, folder: Path) -> None:
    """The front end, or how to build it."""
    index = folder / "index.html"

    @app.get("/", include_in_schema=False)
    def root() -> Response:
        if index.is_file():
            return FileResponse(index)
        return PlainTextResponse(BUILD, 503)

    if folder.is_dir():
        app.mount("/", StaticFiles(directory=folder))
