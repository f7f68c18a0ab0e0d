"""Who looks at which Spark environment's pages: codes that open them once, and what is open (R58, D-118).

A code travels from the dashboard, where its person has signed in, to the origin of the pages. It is sealed, so that any
JobManager takes it, once each. What it opens is kept by the process that took it: a path that nobody can guess, and a
cookie that is worth something below that path only. So a page whose script is a job's can ask for pages of its own
environment, and for nothing else of the cluster.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
import secrets
from dataclasses import asdict, dataclass

from cryptography.fernet import Fernet, InvalidToken

from runtime.common.clock import Clock
from runtime.security.cluster_key import ClusterKey

CODE_SECONDS = 120
VIEW_SECONDS = 12 * 60 * 60
VIEWS_MAX = 500
VIEWS_OF_ONE_MAX = 50
"""Of one principal; the one that was opened first is closed for a further one."""
_PURPOSE = "codes of spark pages"
_USED_MAX = 10_000


@dataclass(frozen=True, slots=True)
class Opening:
    """Whose pages are opened for whom. `token`: what the principal has shown, "" for a certificate, and for nothing.

    `environment`: its key, "" for the default one. `address`: of its TaskManager.
    """

    principal: str
    token: str
    task_manager_id: str
    address: str
    environment: str


@dataclass(frozen=True, slots=True)
class View:
    """Pages that are open. `digest`: of the cookie's value."""

    view_id: str
    opening: Opening
    digest: bytes
    ends: float


class SparkUiViews:
    """Gives and takes codes, and knows what is open in this process."""

    def __init__(self, key: ClusterKey, clock: Clock) -> None:
        self._fernet = Fernet(base64.urlsafe_b64encode(key.derived(_PURPOSE)))
        self._clock = clock
        self._used: dict[bytes, float] = {}
        self._views: dict[str, View] = {}

    def __repr__(self) -> str:
        return f"SparkUiViews({len(self._views)})"

    def code(self, opening: Opening) -> str:
        """What opens the pages, once, within CODE_SECONDS."""
        return self._fernet.encrypt_at_time(json.dumps(asdict(opening)).encode(), self._now()).decode()

    def take(self, code: str) -> Opening | None:
        """What it opens; None for a code that is none, was taken here, or is too old."""
        now = self._clock.monotonic()
        self._used = {digest: ends for digest, ends in self._used.items() if ends > now}
        try:
            told = self._fernet.decrypt_at_time(code.encode(), CODE_SECONDS, self._now())
        except (InvalidToken, UnicodeEncodeError):
            return None
        digest = hashlib.sha256(told).digest() + hashlib.sha256(code.encode()).digest()
        if digest in self._used or len(self._used) >= _USED_MAX:
            return None
        # A clock of another host may be a minute ahead of this one's.
        self._used[digest] = now + 2 * CODE_SECONDS
        return Opening(**json.loads(told))

    def open(self, opening: Opening) -> tuple[str, str]:
        """(id of the view, value of its cookie)."""
        self._expire()
        own = [view_id for view_id, view in self._views.items() if view.opening.principal == opening.principal]
        if len(own) >= VIEWS_OF_ONE_MAX:
            del self._views[own[0]]
        while len(self._views) >= VIEWS_MAX:
            del self._views[next(iter(self._views))]
        view_id, cookie = secrets.token_hex(16), secrets.token_urlsafe(32)
        self._views[view_id] = View(view_id, opening, _digest(cookie), self._clock.monotonic() + VIEW_SECONDS)
        return view_id, cookie

    def find(self, view_id: str, cookies: list[str]) -> Opening | None:
        """What is open at that path for who shows one of these cookies."""
        view = self._views.get(view_id)
        if view is None or view.ends <= self._clock.monotonic():
            return None
        shown = [hmac.compare_digest(_digest(one), view.digest) for one in cookies]
        return view.opening if any(shown) else None

    def _expire(self) -> None:
        now = self._clock.monotonic()
        self._views = {view_id: view for view_id, view in self._views.items() if view.ends > now}

    def _now(self) -> int:
        return self._clock.epoch_millis() // 1000


def _digest(value: str) -> bytes:
    """What is looked up tells nothing about the cookie by the time that it takes."""
    return hashlib.sha256(value.encode()).digest()
