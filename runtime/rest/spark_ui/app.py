"""The origin of Spark's own pages: opens a view by a code, and passes GETs on to the TaskManager (R58, D-118).

Nothing here takes what signs in to the dashboard, and nothing but a GET or a HEAD reaches a JVM.
"""

from __future__ import annotations

import asyncio
import json
import math
import re
from collections.abc import Collection, Iterator
from http import HTTPStatus
from itertools import islice
from pathlib import Path

from starlette.types import ASGIApp, Receive, Scope, Send

from runtime.common.errors import (
    BackpressureError,
    FlinklikeError,
    ForbiddenError,
    InvalidInputError,
    NotFoundError,
    UnavailableError,
)
from runtime.gateways.task_executor import PAGE_BYTES_MAX, PAGE_TARGET_LENGTH_MAX, SparkPageRequest
from runtime.rest.access.authorized_routes import check_role
from runtime.rest.access.cross_origin import CrossOriginMiddleware
from runtime.rest.access.principal_limits import PrincipalLimits
from runtime.rest.access.roles import SPARK_PAGES
from runtime.rest.access.sign_in import SignIn, set_bearer
from runtime.rest.access.sign_in_middleware import SignInDesk, StrangerError
from runtime.rest.answers import answer_error, encoded
from runtime.rest.connections.body_limits import GRACE_SECONDS
from runtime.rest.connections.shutdown import ShutdownMiddleware
from runtime.rest.context import RestContext
from runtime.rest.dashboard.plain_page import PlainPage, escape, plain_headers
from runtime.rest.spark_ui.desk import SparkUi
from runtime.rest.spark_ui.page_answers import page_answer, unpacked
from runtime.rest.spark_ui.views import Opening
from runtime.security.principals import ANYBODY, Principal

SCRIPT = Path(__file__).with_name("enter.js").read_text(encoding="utf-8")
COOKIE = "flinklike-spark-ui"
_VIEW = re.compile(r"/([0-9a-f]{32})(/.*)?", re.DOTALL)
_TARGET = re.compile(rb"(?:/|(?:/[A-Za-z0-9_-][A-Za-z0-9_.-]*)+/?)(?:\?[!-~]*)?")
_CODE_BYTES_MAX = 1000
_COOKIES_MAX = 5
_COOKIE_LENGTH_MAX = 100
_WORKER = {(b"service-worker", b"script"), (b"sec-fetch-dest", b"serviceworker"), (b"sec-fetch-dest", b"sharedworker")}
"""A script that outlives its page would see the pages of others."""
_CLOSED = (
    "These pages of Spark are not open: they were opened in another browser or long ago, or the JobManager has changed "
    "since. Open them from the dashboard."
)
_NO_CODE = "This is no code: open Spark's pages from the dashboard."
_STANDS_BY = "This JobManager does not lead: open Spark's pages from the dashboard, which finds the one that does."

Headers = list[tuple[bytes, bytes]]


def spark_ui_app(
    context: RestContext, ui: SparkUi, sign_in: SignIn | None, hosts: Collection[str], allowed_hosts: Collection[str]
) -> ASGIApp:
    """The whole endpoint. `sign_in` None: no authentication."""
    outer: ASGIApp = ShutdownMiddleware(_SparkUiApp(context, ui, sign_in))
    own = {*hosts, *ui.settings.hosts}
    allowed = (*allowed_hosts, *ui.settings.places)
    return CrossOriginMiddleware(outer, own, allowed, context.audit, checks_host=sign_in is None)


class _SparkUiApp:
    def __init__(self, context: RestContext, ui: SparkUi, sign_in: SignIn | None) -> None:
        self._context = context
        self._ui = ui
        self._desk = None if sign_in is None else SignInDesk(sign_in, context.audit)
        self._limits = PrincipalLimits(context.limits, context.clock)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            return
        view = _VIEW.fullmatch(scope["path"])
        is_read = scope["method"] in {"GET", "HEAD"}
        if any((name, value.lower()) in _WORKER for name, value in scope["headers"]):
            await _answer_page(scope, send, HTTPStatus.FORBIDDEN, "No script of these pages outlives its page.")
        elif self._context.leader() is None:
            await _answer_page(scope, send, HTTPStatus.SERVICE_UNAVAILABLE, _STANDS_BY)
        elif scope["path"] == "/open" and scope["method"] == "POST":
            await self._open(scope, receive, send)
        elif scope["path"] == "/" and is_read:
            page = PlainPage("Spark", '<h1>Spark</h1><p id="told" role="status">Opens…</p>', script=SCRIPT)
            await _answer(scope, send, HTTPStatus.OK, page)
        elif view is not None and is_read:
            await self._show(scope, send, view[1])
        elif is_read:
            await _answer_page(scope, send, HTTPStatus.NOT_FOUND, _CLOSED)
        else:
            sentence = "Spark's pages are only looked at: this takes GET and HEAD."
            await answer_error(send, HTTPStatus.METHOD_NOT_ALLOWED, sentence, [(b"allow", b"GET, HEAD")])

    # --- opening ------------------------------------------------------------------------------------------

    async def _open(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            opening = self._ui.views.take(await _code(receive))
            if opening is None:
                raise InvalidInputError("This code was used, or is older than a minute: open the pages once more.")
            self._principal(scope, opening)
        except (InvalidInputError, ForbiddenError) as error:
            await answer_error(send, HTTPStatus.FORBIDDEN, str(error), [(b"connection", b"close")])
            return
        except UnavailableError as error:
            await answer_error(send, HTTPStatus.SERVICE_UNAVAILABLE, str(error), [(b"retry-after", b"1")])
            return
        view_id, cookie = self._ui.views.open(opening)
        secure = "; Secure" if _is_encrypted(scope) else ""
        made = f"{COOKIE}={cookie}; Path=/{view_id}/; HttpOnly; SameSite=Strict{secure}"
        body = encoded({"path": f"/{view_id}/"})
        headers = [
            (b"content-type", b"application/json"),
            (b"content-length", str(len(body)).encode()),
            (b"cache-control", b"no-store"),
            (b"set-cookie", made.encode("ascii")),
        ]
        await send({"type": "http.response.start", "status": int(HTTPStatus.OK), "headers": headers})
        await send({"type": "http.response.body", "body": body})

    def _principal(self, scope: Scope, opening: Opening) -> Principal:
        """Who has opened it, if that sign-in holds and still may look. Raises ForbiddenError and UnavailableError."""
        if self._desk is None:
            return ANYBODY
        shown = {**scope, "headers": [one for one in scope["headers"] if one[0] != b"authorization"]}
        if opening.token:
            set_bearer(shown, opening.token)
        try:
            principal = self._desk.principal(shown)
        except StrangerError as error:
            message = f"The sign-in by which these pages were opened holds no more: {error.reason or 'it has ended'}."
            raise ForbiddenError(message) from error
        if principal.name != opening.principal:
            message = "These pages were opened by somebody else."
            raise ForbiddenError(message)
        check_role(principal, SPARK_PAGES)
        return principal

    # --- pages --------------------------------------------------------------------------------------------

    async def _show(self, scope: Scope, send: Send, view_id: str) -> None:
        opening = self._ui.views.find(view_id, _cookies(scope))
        if opening is None:
            await _answer_page(scope, send, HTTPStatus.NOT_FOUND, _CLOSED)
            return
        try:
            principal = self._principal(scope, opening)
            self._limits.begin(principal.name)
        except ForbiddenError as error:
            await _answer_page(scope, send, HTTPStatus.FORBIDDEN, str(error))
            return
        except UnavailableError as error:
            await _answer_page(scope, send, HTTPStatus.SERVICE_UNAVAILABLE, str(error))
            return
        except BackpressureError as error:
            after = str(math.ceil(error.retry_after)).encode()
            await _answer_page(scope, send, HTTPStatus.TOO_MANY_REQUESTS, str(error), [(b"retry-after", after)])
            return
        try:
            await self._pass_on(scope, send, view_id, opening)
        finally:
            self._limits.end(principal.name)

    async def _pass_on(self, scope: Scope, send: Send, view_id: str, opening: Opening) -> None:
        view = f"/{view_id}"
        try:
            target = _target(scope, view)
            request = SparkPageRequest(opening.environment, target, view)
            told = await self._ui.task_executor(opening.address).request_spark_page(request)
            if len(told.head) + len(told.body) > PAGE_BYTES_MAX:
                raise UnavailableError("the TaskManager says more than a page may have")
            answer = page_answer(told.head, told.body, view=view, is_static=target.startswith("/static/"))
            takes_packed = b"gzip" in dict(scope["headers"]).get(b"accept-encoding", b"")
            body = answer.body if takes_packed else await asyncio.to_thread(unpacked, answer.body)
        except InvalidInputError as error:
            await _answer_page(scope, send, HTTPStatus.BAD_REQUEST, str(error))
            return
        except NotFoundError as error:
            await _answer_page(scope, send, HTTPStatus.NOT_FOUND, f"TaskManager {opening.task_manager_id}: {error}.")
            return
        except FlinklikeError as error:
            sentence = f"TaskManager {opening.task_manager_id} does not show this page: {error}."
            await _answer_page(scope, send, HTTPStatus.SERVICE_UNAVAILABLE, sentence)
            return
        headers = [*answer.headers, (b"content-length", str(len(body)).encode()), (b"vary", b"accept-encoding")]
        if takes_packed:
            headers.append((b"content-encoding", b"gzip"))
        await send({"type": "http.response.start", "status": answer.status, "headers": [*headers, *_apart(scope)]})
        await send({"type": "http.response.body", "body": b"" if scope["method"] == "HEAD" else body})


def _target(scope: Scope, view: str) -> str:
    query: bytes = scope["query_string"]
    target = bytes(scope["raw_path"])[len(view) :] + (b"?" + query if query else b"")
    target = target or b"/"
    if len(target) > PAGE_TARGET_LENGTH_MAX or not _TARGET.fullmatch(target):
        message = f"Spark has no such page: its paths are plain, with at most {PAGE_TARGET_LENGTH_MAX} characters."
        raise InvalidInputError(message)
    return target.decode("ascii")


def _cookies(scope: Scope) -> list[str]:
    head = f"{COOKIE}="

    def values() -> Iterator[str]:
        for name, value in scope["headers"]:
            if name == b"cookie":
                yield from (part.strip() for part in value.decode("latin-1").split(";"))

    found = (part[len(head) :] for part in values() if part.startswith(head))
    return [one for one in islice(found, _COOKIES_MAX) if len(one) <= _COOKIE_LENGTH_MAX]


async def _code(receive: Receive) -> str:
    """The code in a body. Raises InvalidInputError for what is too long, too slow, or none."""
    body, is_over = b"", False
    try:
        async with asyncio.timeout(GRACE_SECONDS):
            while not is_over:
                message = await receive()
                body += message.get("body", b"")
                is_over = not message.get("more_body", False)
                if len(body) > _CODE_BYTES_MAX:
                    raise InvalidInputError(f"A code has not more than {_CODE_BYTES_MAX} bytes.")
    except TimeoutError as late:
        raise InvalidInputError(f"This code has not come within {GRACE_SECONDS:g} seconds.") from late
    return code_in(body)


def code_in(body: bytes) -> str:
    """The code that a body names, in ASCII. Raises InvalidInputError for one that names none."""
    try:
        code = json.loads(body)["code"]
    except (ValueError, KeyError, TypeError, RecursionError) as wrong:
        raise InvalidInputError(_NO_CODE) from wrong
    if not isinstance(code, str) or not code.isascii():  # half of a surrogate pair has no bytes
        raise InvalidInputError(_NO_CODE)
    return code


def _is_encrypted(scope: Scope) -> bool:
    origin = next((value for name, value in scope["headers"] if name == b"origin"), b"")
    return scope["scheme"] == "https" or origin.startswith(b"https://")


def _apart(scope: Scope) -> Headers:
    """Other windows have no hold of these pages. Browsers take it over TLS, and complain where it comes in plain."""
    return [(b"cross-origin-opener-policy", b"same-origin")] if scope["scheme"] == "https" else []


async def _answer_page(
    scope: Scope, send: Send, status: HTTPStatus, sentence: str, more: Headers | None = None
) -> None:
    title = f"{int(status)} {status.phrase}"
    await _answer(scope, send, status, PlainPage(title, f"<h1>{title}</h1><p>{escape(sentence)}</p>"), more)


async def _answer(scope: Scope, send: Send, status: HTTPStatus, page: PlainPage, more: Headers | None = None) -> None:
    body = page.html().encode()
    headers = [
        (b"content-type", b"text/html; charset=utf-8"),
        (b"content-length", str(len(body)).encode()),
        *((name.encode(), value.encode()) for name, value in plain_headers((), SCRIPT).items()),
        *_apart(scope),
        *(more or []),
    ]
    await send({"type": "http.response.start", "status": int(status), "headers": headers})
    await send({"type": "http.response.body", "body": b"" if scope["method"] == "HEAD" else body})
