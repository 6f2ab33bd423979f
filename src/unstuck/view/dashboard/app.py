"""The dashboard's server: a page, its script, and JSON about theory, runs and laws. It reads DIR and writes nothing.

It listens on loopback by default; on another host every request needs the token that is printed at the start. Pages of
other sites cannot use it: the Host header must be ours, a request that a browser marks as another page's gets no answer
but the page itself, and pages load nothing from other sites.
"""

import hmac
import json
import re
import secrets
import threading
from collections.abc import Awaitable, Callable
from contextlib import AbstractContextManager, nullcontext
from functools import cache
from pathlib import Path
from typing import Any

from plotly.offline import get_plotlyjs
from starlette.applications import Starlette
from starlette.concurrency import run_in_threadpool
from starlette.middleware import Middleware
from starlette.middleware.base import BaseHTTPMiddleware
from starlette.middleware.trustedhost import TrustedHostMiddleware
from starlette.requests import Request
from starlette.responses import JSONResponse, PlainTextResponse, RedirectResponse, Response
from starlette.routing import Route

from unstuck.errors import BadInput
from unstuck.view.dashboard.runs import Reader
from unstuck.view.dashboard.theory import theory

STATIC = Path(__file__).parent / "static"
SHARED = Path(__file__).parents[1] / "scripts"  # with the report
LOOPBACK = ("127.0.0.1", "localhost", "::1")
COOKIE = "unstuck_token"
#: What a browser says of the page that asks (Sec-Fetch-Site): ours, or none, as for an address that is typed.
OWN_PAGES = ("same-origin", "none")
KEEP = 75  # seconds to keep an idle connection: longer than busy clients pause between requests
HEADERS = {
    "Content-Security-Policy": "default-src 'self'; style-src 'self' 'unsafe-inline'; img-src 'self' data: blob:; "
    "frame-ancestors 'none'; base-uri 'none'; form-action 'none'",
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cache-Control": "no-store",
}
Answer = Callable[[Request], Any]


def scripts() -> list[Path]:
    """The page's own modules, one a tab, and those that it shares with the report."""
    return sorted([*STATIC.glob("*.js"), *SHARED.glob("*.js")])


def new_token() -> str:
    return secrets.token_urlsafe(24)


def make_app(directory: Path, *, host: str = "127.0.0.1", token: str | None = None) -> Starlette:
    """The application for the runs in `directory`; without a token, anyone who can connect may read."""
    reader = Reader(directory)
    answers: dict[str, Answer] = {
        "/api/theory": lambda r: theory(
            _whole(r, "T", 512), _whole(r, "d", 64), _whole(r, "B", 1), _real(r, "p", 0.0), _kind(r)
        ),
        "/api/runs": lambda r: reader.table(since=_word(r, "since"), after=_word(r, "after")),
        "/api/live": lambda r: reader.live(),
        "/api/heads": lambda r: reader.heads(_word(r, "run"), _word(r, "measure")),
        "/api/curve": lambda r: reader.curve(_word(r, "run")),
        "/api/attention": lambda r: reader.attention(_word(r, "run")),
        "/api/law": lambda r: reader.law(_word(r, "formula"), r.query_params.getlist("where"), _sizes(r)),
    }
    # One at a time: SciPy and the flow silence warnings for the whole process while they compute.
    lock = threading.Lock()
    alone = ("/api/theory", "/api/law")
    routes = [Route(path, _json(answer, lock if path in alone else nullcontext())) for path, answer in answers.items()]
    routes += [
        Route("/", _file(STATIC / "app.html", "text/html")),
        Route("/app.css", _file(STATIC / "app.css", "text/css")),
        Route("/plotly.js", _plotly),
        *(Route(f"/{script.name}", _file(script, "text/javascript")) for script in scripts()),
    ]
    allowed = ["*"] if host in ("0.0.0.0", "::") else [*LOOPBACK, "[::1]", host]

    async def guard(request: Request, call: Callable[[Request], Awaitable[Response]]) -> Response:
        response = _refusal(request, token) or await call(request)
        response.headers.update(HEADERS)
        return response

    guards = [Middleware(TrustedHostMiddleware, allowed_hosts=allowed), Middleware(BaseHTTPMiddleware, dispatch=guard)]
    return Starlette(routes=routes, middleware=guards)


def _refusal(request: Request, token: str | None) -> Response | None:
    """None for an allowed request. A token in the address moves to a cookie."""
    if request.headers.get("sec-fetch-site", "none") not in OWN_PAGES and request.url.path != "/":
        return PlainTextResponse("This dashboard answers its own pages only.", 403)
    if token is None:
        return None
    given = request.query_params.get("token")
    if given is not None and hmac.compare_digest(given.encode(), token.encode()):
        response = RedirectResponse("/", status_code=303)
        response.set_cookie(COOKIE, token, httponly=True, samesite="lax")
        return response
    if hmac.compare_digest(request.cookies.get(COOKIE, "").encode(), token.encode()):
        return None
    return PlainTextResponse("This dashboard needs its token: open the address that `unstuck serve` printed.", 403)


def _json(answer: Answer, lock: AbstractContextManager[Any]) -> Callable[[Request], Awaitable[Response]]:
    def text(request: Request) -> str:
        with lock:
            return json.dumps(answer(request), allow_nan=False)

    async def respond(request: Request) -> Response:
        try:
            found = await run_in_threadpool(text, request)
        except BadInput as e:
            return JSONResponse({"error": str(e)}, 400)
        except Exception as e:  # a run's files may hold anything; the server continues
            return JSONResponse({"error": f"this cannot be shown ({type(e).__name__})"}, 500)
        return Response(found, media_type="application/json")

    return respond


def _file(path: Path, kind: str) -> Callable[[Request], Awaitable[Response]]:
    async def respond(request: Request) -> Response:
        return Response(path.read_text(encoding="utf-8"), media_type=kind)

    return respond


@cache
def _plotly_script() -> bytes:
    return get_plotlyjs().encode()


async def _plotly(request: Request) -> Response:
    return Response(_plotly_script(), media_type="text/javascript")


def _word(request: Request, name: str) -> str:
    return request.query_params.get(name, "")


def _whole(request: Request, name: str, default: int) -> int:
    text = request.query_params.get(name, str(default))
    if not re.fullmatch(r"[0-9]{1,9}", text):
        raise BadInput(name, text, "a whole number")
    return int(text)


def _real(request: Request, name: str, default: float) -> float:
    text = request.query_params.get(name, str(default))
    try:
        return float(text)
    except ValueError as e:
        raise BadInput(name, text, "a number") from e


def _kind(request: Request) -> Any:
    return request.query_params.get("flow", "exact")


def _sizes(request: Request) -> dict[str, float]:
    """The sizes to predict a plateau for: `d=64&T=256`, without the other parameters."""
    taken = {"formula", "where", "token"}
    return {k: _real(request, k, 0.0) for k in request.query_params if k not in taken}
