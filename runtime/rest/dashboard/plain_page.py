"""Plain pages: a sign-in, and what stands in the way of a page. Texts in them are escaped."""

from __future__ import annotations

import base64
import hashlib
import html
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from runtime.common.printable import printable

_STYLE = Path(__file__).with_name("plain_page.css").read_text(encoding="utf-8")
SIGN_IN_SCRIPT = Path(__file__).with_name("sign_in.js").read_text(encoding="utf-8")
_OTHERS = {
    # Not no-referrer: a browser would send the page's own forms with `Origin: null`.
    "referrer-policy": "same-origin",
    "cache-control": "no-store",
}


def page_headers(policy: Sequence[str], frame_ancestors: Sequence[str]) -> dict[str, str]:
    """The headers of a page. `policy`: what it may load and send; `frame_ancestors`: whose pages may frame it.

    No copy of it outlives the sign-out.
    """
    ancestors = " ".join(frame_ancestors) or "'none'"
    whole = ["default-src 'none'", *policy, "form-action 'self'", f"frame-ancestors {ancestors}"]
    return {"content-security-policy": "; ".join(whole), **_OTHERS}


def plain_headers(frame_ancestors: Sequence[str], script: str = SIGN_IN_SCRIPT) -> dict[str, str]:
    """Of a plain page: it loads nothing, as its style and its script stand in it, and it asks this cluster only.

    `script`: the one that it may have.
    """
    policy = [
        f"style-src 'sha256-{_digest(_STYLE)}'",
        f"script-src 'sha256-{_digest(script)}'",
        "connect-src 'self'",
        "base-uri 'none'",
    ]
    return page_headers(policy, frame_ancestors)


def _digest(text: str) -> str:
    return base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()


@dataclass(frozen=True, slots=True)
class PlainPage:
    """`title` is text, `body` is HTML. `refresh`: the seconds after which a browser asks for it again, 0: never.

    `script`: what runs in it, one that `plain_headers` lets run.
    """

    title: str
    body: str
    refresh: int = 0
    script: str = ""

    def html(self) -> str:
        """The whole document."""
        refresh = f'<meta http-equiv="refresh" content="{self.refresh}">' if self.refresh else ""
        script = f"<script>{self.script}</script>" if self.script else ""
        return (
            f'<!doctype html><html lang="en"><head><meta charset="utf-8">{refresh}<title>{escape(self.title)}</title>'
            '<meta name="viewport" content="width=device-width, initial-scale=1">'
            f"<style>{_STYLE}</style></head><body><main>{self.body}</main>{script}</body></html>"
        )


def escape(text: str) -> str:
    """Text of others within a page."""
    return html.escape(printable(text))
