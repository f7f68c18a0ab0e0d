"""The dashboard's document and files as Airflow's API server serves them, with a policy for Airflow's own frames."""

from __future__ import annotations

import hashlib
import html
from functools import cache
from importlib.resources import files
from importlib.resources.abc import Traversable

_TYPES = {".js": "text/javascript; charset=utf-8", ".css": "text/css; charset=utf-8", ".svg": "image/svg+xml"}
_POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self'; "
    "base-uri 'self'; form-action 'none'; frame-ancestors 'self'"
)
HEADERS = {
    "content-security-policy": _POLICY,
    "referrer-policy": "same-origin",
    "cache-control": "no-store",
    "x-content-type-options": "nosniff",
}
FOR_GOOD = {"cache-control": "private, max-age=31536000, immutable", "x-content-type-options": "nosniff"}


@cache
def static_files() -> tuple[dict[str, bytes], str]:
    """The files of the dashboard of this release by name, and the digest of all."""
    found = dict(sorted(_files(files("runtime").joinpath("rest", "dashboard", "static"), "")))
    digest = hashlib.sha256()
    for name, content in found.items():
        digest.update(f"{name} {len(content)}\n".encode() + content)
    return found, digest.hexdigest()[:16]


def _files(folder: Traversable, prefix: str) -> list[tuple[str, bytes]]:
    found = []
    for one in folder.iterdir():
        if one.is_dir():
            found += _files(one, f"{prefix}{one.name}/")
        elif media_type(one.name):
            found.append((prefix + one.name, one.read_bytes()))
    return found


def media_type(name: str) -> str:
    """By the ending of a name, "" for what is none of ours."""
    return next((kind for ending, kind in _TYPES.items() if name.endswith(ending)), "")


def document(*, base: str, root: str, refresh_millis: int) -> str:
    """The document of a page. `base`: where requests go, `root`: where the files are; both relative to its address."""
    _, digest = static_files()
    place = html.escape(f"{root}static/{digest}")
    return (
        f'<!doctype html><html lang="en"><head><meta charset="utf-8"><base href="{html.escape(base)}">'
        '<title>flinklike</title><meta name="viewport" content="width=device-width, initial-scale=1">'
        f'<meta name="mode" content="airflow"><meta name="refresh-interval" content="{refresh_millis}">'
        f'<link rel="icon" href="{place}/icon.svg"><link rel="stylesheet" href="{place}/dashboard.css">'
        f'<script type="module" src="{place}/app.js"></script></head><body><div id="app"></div></body></html>'
    )


def plain_page(title: str, sentence: str, *, root: str, refresh_seconds: int = 0) -> str:
    """A page that says one thing. `refresh_seconds` 0: it does not ask again."""
    _, digest = static_files()
    again = f'<meta http-equiv="refresh" content="{refresh_seconds}">' if refresh_seconds else ""
    return (
        f'<!doctype html><html lang="en"><head><meta charset="utf-8">{again}<title>{html.escape(title)}</title>'
        f'<link rel="stylesheet" href="{html.escape(root)}static/{digest}/dashboard.css"></head>'
        f"<body><main><h1>{html.escape(title)}</h1><p>{html.escape(sentence)}</p></main></body></html>"
    )
