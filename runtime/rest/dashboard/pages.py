"""The routes of the dashboard: one document for every address below `/ui`, and its files.

The document holds nothing of the cluster: its script asks REST for what the page of the address shows, as whoever has
signed in (R48).
"""

from __future__ import annotations

from fastapi import APIRouter, Request
from fastapi.responses import HTMLResponse, RedirectResponse, Response

from runtime.common.errors import NotFoundError
from runtime.common.version import VERSION
from runtime.rest.access.authorized_routes import authorized_router
from runtime.rest.answers import JsonAnswer
from runtime.rest.bodies.schema.cluster import Start
from runtime.rest.context import RestContext
from runtime.rest.dashboard.page_sign_in import is_by_cookie
from runtime.rest.dashboard.plain_page import escape, page_headers
from runtime.rest.dashboard.static_files import static_files
from runtime.rest.openapi import answers

_POLICY = [
    "script-src 'self'",
    "style-src 'self'",
    "img-src 'self' data:",
    "connect-src 'self'",
    "base-uri 'self'",
]
_FOR_GOOD = {"cache-control": "private, max-age=31536000, immutable"}


def dashboard_router(context: RestContext) -> APIRouter:
    """`/`, `/ui` and all below it."""
    router = authorized_router(context)
    files = static_files()

    @router.get("/", responses=answers(Start))
    async def start(request: Request) -> Response:
        """The main paths; a browser is redirected to `/ui`."""
        if "text/html" in request.headers.get("accept", ""):
            return RedirectResponse("ui")
        body: Start = {
            "flinklike-version": VERSION,
            "page": "/ui",
            "overview": "/overview",
            "jobs": "/jobs/overview",
            "taskmanagers": "/taskmanagers",
            "jobmasters": "/jobmasters",
            "openapi": "/openapi.json",
        }
        return JsonAnswer(body)

    @router.get("/ui", include_in_schema=False)
    async def overview_page(request: Request) -> HTMLResponse:
        """The first page."""
        return _document(context, request)

    @router.get("/ui/static/{digest}/{name:path}", include_in_schema=False)
    async def static_file(digest: str, name: str) -> Response:
        """A file of the page. Another `digest` is of another release: the page has to be loaded again."""
        content = files.files.get(name) if digest == files.digest else None
        if content is None:
            message = f"{name[:80]!r} is no file of this release's dashboard: load the page again"
            raise NotFoundError(message)
        return Response(content, media_type=files.media_type(name), headers=_FOR_GOOD)

    @router.get("/ui/{page:path}", include_in_schema=False)
    async def page(request: Request) -> HTMLResponse:
        """Any other page: the script looks at the address."""
        return _document(context, request)

    return router


def _document(context: RestContext, request: Request) -> HTMLResponse:
    """Relative to where the browser has found it: a proxy may have put a path in front."""
    below = request.scope["raw_path"].lstrip(b"/").count(b"/")
    files = f"ui/static/{static_files().digest}"
    base = "../" * below or "./"
    facts = {
        "signed-in-by": "cookie" if is_by_cookie(request.scope) else "",
        "refresh-interval": str(context.refresh_interval_millis),
        "mode": "history" if context.history is not None else "",
    }
    metas = "".join(f'<meta name="{name}" content="{escape(value)}">' for name, value in facts.items() if value)
    text = (
        f'<!doctype html><html lang="en"><head><meta charset="utf-8"><base href="{base}"><title>flinklike</title>'
        f'<meta name="viewport" content="width=device-width, initial-scale=1">{metas}'
        f'<link rel="icon" href="{files}/icon.svg"><link rel="stylesheet" href="{files}/dashboard.css">'
        f'<script type="module" src="{files}/app.js"></script></head>'
        '<body><div id="app"></div><noscript>The dashboard takes JavaScript. <code>flinklike list</code> and '
        "<code>flinklike status</code> show jobs without it.</noscript></body></html>"
    )
    return HTMLResponse(text, headers=page_headers(_POLICY, context.frame_ancestors))
