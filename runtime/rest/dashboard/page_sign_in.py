"""How a browser signs in: a page answers a stranger with a form, which is posted to the address of the page itself.

The answer to the form is the cookie, and the CSRF token for the scripts of this origin, or the way back to that
address, by its last part alone: so nothing that a link says leads anywhere else. A cookie counts for the GET of a page,
which holds nothing of the cluster, and for any other request with the CSRF token in a header. No page of a stranger
knows that token, nor does what listens on another port of this host, to which browsers send the cookie too (R48). Plain
ASGI middleware.
"""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import Awaitable, Callable, Mapping, Sequence
from http import HTTPStatus
from urllib.parse import parse_qs

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from runtime.common.errors import InvalidInputError, UnavailableError
from runtime.rest.access.page_cookie import PageCookie, is_page
from runtime.rest.access.sign_in import bearer_of, set_bearer
from runtime.rest.access.sign_in_codes import LIFE_SECONDS, SignInCodes
from runtime.rest.access.sign_in_middleware import SignInDesk, StrangerError
from runtime.rest.answers import JsonAnswer, answer_error, encoded
from runtime.rest.connections.body_limits import GRACE_SECONDS
from runtime.rest.dashboard.plain_page import SIGN_IN_SCRIPT, PlainPage, escape, plain_headers
from runtime.security.json_web_tokens import JWT_LENGTH_MAX

_FORM_BYTES_MAX = 3 * JWT_LENGTH_MAX + 1024
"""Of a form, in which each character of a token may take three."""
_FIELDS_MAX = 4
CODES_PATH = "/ui/codes"
_ERROR_BYTES_MAX = 64 * 1024
_SENTENCE_LENGTH_MAX = 2000
_TARGET = re.compile(rb"[!-~]*")
_AGAIN_SECONDS = 2
_COOKIE_ENDED = "What you signed in with has ended or was revoked, or you signed in long ago."
_BY_COOKIE = "flinklike.by-cookie"

Headers = list[tuple[bytes, bytes]]
SignOut = Callable[[Scope, PageCookie], Awaitable[None]]
"""Ends what was opened by the sign-ins in the cookies of a request, beside the browser's cookie."""
PageOf = Callable[[int, str, Mapping[bytes, bytes]], tuple[PlainPage, Headers]]
"""The page of a refusal, by status, sentence and headers, and the headers that it has beside those."""


def is_by_cookie(scope: Scope) -> bool:
    """True for who has signed in by a cookie, and can sign out."""
    return _BY_COOKIE in scope


class PageSignInMiddleware:
    """Takes cookies and forms of pages, and has pages refuse in HTML. All other requests pass as they are."""

    def __init__(
        self,
        app: ASGIApp,
        desk: SignInDesk,
        cookie: PageCookie,
        codes: SignInCodes,
        frame_ancestors: Sequence[str] = (),
        sign_out: SignOut | None = None,
    ) -> None:
        self._app = app
        self._desk = desk
        self._cookie = cookie
        self._codes = codes
        self._sign_out = sign_out
        self._page_headers = plain_headers(frame_ancestors)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Let a request through, or answer it."""
        if scope["type"] != "http" or not is_page(scope["path"]):
            self._take_cookie(scope)
            await self._app(scope, receive, send)
        elif scope["method"] == "POST" and scope["path"] == CODES_PATH:
            await self._give_code(scope, send)
        elif scope["method"] == "POST":
            await self._take(scope, receive, send)
        elif scope["method"] == "GET":
            await self._show(scope, receive, send)
        else:
            await self._app(scope, receive, send)

    def _take_cookie(self, scope: Scope) -> None:
        """Sign in by the cookie a request of a page's script, which has the CSRF token in a header."""
        if scope["type"] != "http" or not self._cookie.is_in(scope) or bearer_of(scope):
            return
        token = self._cookie.token_in(scope)
        if token and self._cookie.has_csrf_token(scope, token):
            set_bearer(scope, token)
            scope[_BY_COOKIE] = True

    async def _show(self, scope: Scope, receive: Receive, send: Send) -> None:
        headers = dict(scope["headers"])
        ended = ""
        if b"authorization" not in headers and self._cookie.is_in(scope):
            ended = _COOKIE_ENDED
            if token := self._cookie.token_in(scope):
                set_bearer(scope, token)
                scope[_BY_COOKIE] = True
        if b"text/html" not in headers.get(b"accept", b""):
            await self._app(scope, receive, send)
            return

        def refused(status: int, sentence: str, headers: Mapping[bytes, bytes]) -> tuple[PlainPage, Headers]:
            if status != HTTPStatus.UNAUTHORIZED:
                return _error_page(status, sentence), []
            is_about_it = bool(bearer_of(scope)) or b"error=" in headers.get(b"www-authenticate", b"")
            forget = [(b"set-cookie", self._cookie.removed(is_encrypted=_is_encrypted(scope)))] if ended else []
            return _sign_in_page(ended or (sentence if is_about_it else "")), forget

        await self._app(scope, receive, _Refusals(send, refused, self._page_headers))

    async def _give_code(self, scope: Scope, send: Send) -> None:
        """To a program that shows a token, a code by which this process lets a browser in."""
        try:
            principal = self._desk.principal(scope)
        except UnavailableError as error:
            await answer_error(send, HTTPStatus.SERVICE_UNAVAILABLE, str(error), [(b"retry-after", b"1")])
            return
        except StrangerError as error:
            await answer_error(send, HTTPStatus.UNAUTHORIZED, str(error), [(b"connection", b"close")])
            return
        token = bearer_of(scope)
        if not token:
            sentence = "A certificate signs in without a code: open the page in a browser that has it."
            await answer_error(send, HTTPStatus.BAD_REQUEST, sentence)
            return
        self._desk.tell(scope, principal)
        await _answer_json(send, {"code": self._codes.give(token), "seconds": LIFE_SECONDS}, [])

    async def _take(self, scope: Scope, receive: Receive, send: Send) -> None:
        """A form: the token of who signs in, or the wish to sign out."""
        try:
            form = await _form(receive)
        except InvalidInputError as error:
            page = _error_page(HTTPStatus.BAD_REQUEST, str(error))
            await self._answer(send, HTTPStatus.BAD_REQUEST, page, [(b"connection", b"close")])
            return
        is_encrypted = _is_encrypted(scope)
        if "sign-out" in form:
            if self._sign_out is not None:
                await self._sign_out(scope, self._cookie)
            await _go_back(scope, send, self._cookie.removed(is_encrypted=is_encrypted))
            return
        is_script = b"application/json" in dict(scope["headers"]).get(b"accept", b"")
        try:
            token = self._token_of(form)
            made = self._let_in(scope, token, is_encrypted=is_encrypted)
        except UnavailableError as error:
            again = [(b"retry-after", b"1")]
            await self._refuse(send, HTTPStatus.SERVICE_UNAVAILABLE, str(error), again, is_script=is_script)
        except (StrangerError, InvalidInputError) as error:
            reason = error.reason if isinstance(error, StrangerError) else str(error)
            close = [(b"www-authenticate", b"Bearer"), (b"connection", b"close")]
            sentence = f"Not signed in: {reason}."
            await self._refuse(send, HTTPStatus.UNAUTHORIZED, sentence, close, is_script=is_script)
        else:
            if is_script:
                told = {"csrf-token": self._cookie.csrf_token(token)}
                await _answer_json(send, told, [(b"set-cookie", made)])
            else:
                await _go_back(scope, send, made)

    def _token_of(self, form: Mapping[str, str]) -> str:
        if "code" not in form:
            return form.get("token", "")
        token = self._codes.take(form["code"])
        if not token:
            reason = "this code was used, or is older than a minute: run `flinklike open` again, or show a token"
            raise StrangerError("", reason)
        return token

    def _let_in(self, scope: Scope, token: str, *, is_encrypted: bool) -> bytes:
        """The cookie. Raises StrangerError, InvalidInputError and UnavailableError."""
        if not token:
            raise StrangerError("", "The field was empty")
        shown = {**scope}
        set_bearer(shown, token)
        principal = self._desk.principal(shown)
        made = self._cookie.made(token, is_encrypted=is_encrypted)
        self._desk.tell(scope, principal)
        return made

    async def _refuse(
        self, send: Send, status: HTTPStatus, sentence: str, headers: Headers, *, is_script: bool
    ) -> None:
        if is_script:
            await answer_error(send, status, sentence, headers)
            return
        page = _sign_in_page(sentence) if status is HTTPStatus.UNAUTHORIZED else _error_page(status, sentence)
        await self._answer(send, status, page, headers)

    async def _answer(self, send: Send, status: int, page: PlainPage, headers: Headers) -> None:
        await _answer(send, status, page, self._page_headers, headers)


class _Refusals:
    """Sends answers on; of a refusal in JSON it makes a page."""

    def __init__(self, send: Send, page_of: PageOf, page_headers: Mapping[str, str]) -> None:
        self._send = send
        self._page_of = page_of
        self._page_headers = page_headers
        self._start: Message | None = None
        self._body = b""

    async def __call__(self, message: Message) -> None:
        """One message of the answer."""
        if message["type"] == "http.response.start" and message["status"] >= HTTPStatus.BAD_REQUEST:
            self._start = message
        elif self._start is None:
            await self._send(message)
        else:
            self._body = (self._body + message.get("body", b""))[:_ERROR_BYTES_MAX]
            if not message.get("more_body", False):
                await self._answer(self._start)

    async def _answer(self, start: Message) -> None:
        headers = {name.lower(): value for name, value in start["headers"]}
        page, more = self._page_of(start["status"], _sentence(self._body), headers)
        kept = [(name, value) for name, value in headers.items() if name not in {b"content-type", b"content-length"}]
        await _answer(self._send, start["status"], page, self._page_headers, [*kept, *more])


async def _form(receive: Receive) -> dict[str, str]:
    """The fields of a form, each once. Raises InvalidInputError for what is too long, too slow, or none."""
    body = b""
    try:
        async with asyncio.timeout(GRACE_SECONDS):
            is_over = False
            while not is_over:
                message = await receive()
                body += message.get("body", b"")
                is_over = not message.get("more_body", False)
                if len(body) > _FORM_BYTES_MAX:
                    error = f"This form has more than {_FORM_BYTES_MAX} bytes: it takes a token."
                    raise InvalidInputError(error)
    except TimeoutError as late:
        error = f"This form has not come within {GRACE_SECONDS:g} seconds."
        raise InvalidInputError(error) from late
    try:
        fields = parse_qs(body.decode("ascii"), keep_blank_values=True, max_num_fields=_FIELDS_MAX)
    except ValueError as wrong:
        error = "This is no form of a page: open the page, and sign in there."
        raise InvalidInputError(error) from wrong
    return {name: values[0].strip() for name, values in fields.items()}


def _is_encrypted(scope: Scope) -> bool:
    """Does the browser speak TLS, with this process or with a proxy before it?"""
    origin = next((value for name, value in scope["headers"] if name == b"origin"), b"")
    return scope["scheme"] == "https" or origin.startswith(b"https://")


async def _answer_json(send: Send, content: Mapping[str, object], more: Headers) -> None:
    body = encoded(content)
    headers = [
        (b"content-type", JsonAnswer.media_type.encode()),
        (b"content-length", str(len(body)).encode()),
        (b"cache-control", b"no-store"),
    ]
    await send({"type": "http.response.start", "status": int(HTTPStatus.OK), "headers": [*headers, *more]})
    await send({"type": "http.response.body", "body": body})


async def _go_back(scope: Scope, send: Send, cookie: bytes) -> None:
    """To the page itself, relative to its address, which a proxy may have moved."""
    query: bytes = scope["query_string"]
    place = scope["raw_path"].rpartition(b"/")[2] + (b"?" + query if query else b"")
    headers = [
        (b"location", b"./" + (place if _TARGET.fullmatch(place) else b"")),
        (b"set-cookie", cookie),
        (b"cache-control", b"no-store"),
        (b"content-length", b"0"),
    ]
    await send({"type": "http.response.start", "status": int(HTTPStatus.SEE_OTHER), "headers": headers})
    await send({"type": "http.response.body", "body": b""})


async def _answer(send: Send, status: int, page: PlainPage, of_pages: Mapping[str, str], headers: Headers) -> None:
    body = page.html().encode()
    of_page = [(name.encode(), value.encode()) for name, value in of_pages.items()]
    kind = (b"content-type", b"text/html; charset=utf-8")
    length = (b"content-length", str(len(body)).encode())
    start = {"type": "http.response.start", "status": int(status), "headers": [kind, length, *of_page, *headers]}
    await send(start)
    await send({"type": "http.response.body", "body": body})


def _sentence(body: bytes) -> str:
    try:
        return " ".join(str(one) for one in json.loads(body)["errors"])[:_SENTENCE_LENGTH_MAX]
    except (ValueError, KeyError, TypeError):
        return ""


def _error_page(status: int, sentence: str) -> PlainPage:
    """What passes is asked for again by the browser itself: a leader that is being elected, a limit."""
    passes = status in {HTTPStatus.SERVICE_UNAVAILABLE, HTTPStatus.TOO_MANY_REQUESTS}
    title = f"{int(status)} {HTTPStatus(status).phrase}"
    return PlainPage(title, f"<h1>{title}</h1><p>{escape(sentence)}</p>", _AGAIN_SECONDS if passes else 0)


def _sign_in_page(why: str) -> PlainPage:
    return PlainPage(
        "Sign in to flinklike",
        f'<h1>Sign in</h1><p id="told" class="wrong" role="alert">{escape(why)}</p>'
        '<form method="post"><p><label>Token <input type="password" name="token" size="48" autocomplete="off" '
        "spellcheck=false autofocus required></label> <button>Sign in</button></p></form>"
        '<p class="muted">A token that <code>flinklike tokens create</code> has made, a JSON Web Token where the '
        "cluster takes them, or the cluster's own, which is in run/token on its hosts.</p>",
        script=SIGN_IN_SCRIPT,
    )
