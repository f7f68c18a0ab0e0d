"""The parts that pages are made of: escaped text, states, times, tables, and the frame around them. No scripts."""

from __future__ import annotations

import html
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from fastapi.responses import HTMLResponse

from runtime.common.printable import printable

_COLORS = {
    "FINISHED": "#2e7d32",
    "RUNNING": "#1565c0",
    "FAILED": "#c62828",
    "CANCELED": "#6d4c41",
    "CANCELLING": "#6d4c41",
    "FAILING": "#c62828",
    "ready": "#2e7d32",
    "draining": "#ef6c00",
    "drained": "#6d4c41",
    "disconnected": "#c62828",
}
_STYLE = Path(__file__).with_name("ui.css").read_text(encoding="utf-8")
_POLICY = "; ".join(
    [f"{what} 'none'" for what in ("default-src", "frame-ancestors", "base-uri")]
    + ["form-action 'self'", "style-src 'unsafe-inline'"]
)
PAGE_HEADERS = {
    "content-security-policy": _POLICY,
    # Not no-referrer: a browser would send the page's own forms with `Origin: null`.
    "referrer-policy": "same-origin",
    "cache-control": "no-store",
}
"""A page loads nothing, no frame may hold it, its forms go back to it, and no copy outlives the sign-out."""


@dataclass(frozen=True, slots=True)
class Page:
    """`title` is text, `body` is HTML. `refresh`: the seconds after which a browser asks for it again, 0: never."""

    title: str
    body: str
    refresh: int = 0

    def html(self) -> str:
        """The whole document."""
        refresh = f'<meta http-equiv="refresh" content="{self.refresh}">' if self.refresh else ""
        return (
            f'<!doctype html><html lang="en"><head><meta charset="utf-8">{refresh}<title>{escape(self.title)}</title>'
            f"<style>{_STYLE}</style></head><body>{self.body}</body></html>"
        )

    def answer(self) -> HTMLResponse:
        """The answer with the headers of a page."""
        return HTMLResponse(self.html(), headers=PAGE_HEADERS)


def table_html(header: Sequence[str], rows: Sequence[str]) -> str:
    """A table; `rows` are HTML."""
    return f"<table><tr>{''.join(f'<th>{name}</th>' for name in header)}</tr>{''.join(rows)}</table>"


def escape(text: str) -> str:
    """Text of others within a page."""
    return html.escape(printable(text))


def state_html(name: str) -> str:
    """A state in its colour."""
    return f'<span class="state" style="background:{_COLORS.get(name, "#757575")}">{name}</span>'


def time_text(millis: int) -> str:
    """A moment, for people."""
    return datetime.fromtimestamp(millis / 1000, UTC).strftime("%Y-%m-%d %H:%M:%S UTC") if millis >= 0 else "not yet"


def seconds_text(millis: int) -> str:
    """How long something took, "" if it has not begun."""
    return f"{millis / 1000:.1f} s" if millis >= 0 else ""
