"""Who looks at which Spark environment's pages: codes that open them once, and what is open (R58, D-118).

A code travels from the dashboard, where its person has signed in, to the origin of the pages. What it opens is a path
that nobody can guess, and a cookie that is worth something below that path only. So a page whose script is a job's can
ask for pages of its own environment, and for nothing else of the cluster. All of it is in the memory of the leader, and
ends with it.
"""

from __future__ import annotations

import hashlib
import hmac
import secrets
from collections.abc import Collection, Iterable
from dataclasses import dataclass

from runtime.common.clock import Clock

CODE_SECONDS = 60
VIEW_SECONDS = 12 * 60 * 60
OPEN_MAX = 500
OPEN_OF_ONE_MAX = 50
"""Codes, and views, of one principal; for a further one the first of them ends."""


@dataclass(frozen=True, slots=True)
class Opening:
    """Whose pages are opened for whom. `token`: what the principal has shown, "" for a certificate, and for nothing.

    `environment`: its key, "" for the default one. `address`: of its TaskManager. `sessions`: the browser's sign-ins
    (`PageCookie.sessions_in`), none for who has shown a token in a header.
    """

    principal: str
    token: str
    task_manager_id: str
    address: str
    environment: str
    sessions: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True)
class _Kept:
    """`digest`: of the cookie's value, b"" for a code."""

    opening: Opening
    ends: float
    digest: bytes = b""


class _Openings:
    """Some of them by name, for a time; above a bound the oldest ends, of one principal before those of others."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._kept: dict[str, _Kept] = {}

    def add(self, name: str, opening: Opening, seconds: float, digest: bytes = b"") -> None:
        now = self._clock.monotonic()
        self._kept = {one: kept for one, kept in self._kept.items() if kept.ends > now}
        own = [one for one, kept in self._kept.items() if kept.opening.principal == opening.principal]
        if len(own) >= OPEN_OF_ONE_MAX:
            del self._kept[own[0]]
        elif len(self._kept) >= OPEN_MAX:
            del self._kept[next(iter(self._kept))]
        self._kept[name] = _Kept(opening, now + seconds, digest)

    def get(self, name: str) -> _Kept | None:
        kept = self._kept.get(name)
        return kept if kept is not None and kept.ends > self._clock.monotonic() else None

    def pop(self, name: str) -> None:
        self._kept.pop(name, None)

    def end(self, sessions: Collection[str]) -> int:
        before = len(self._kept)
        self._kept = {one: kept for one, kept in self._kept.items() if kept.opening.sessions.isdisjoint(sessions)}
        return before - len(self._kept)


class SparkUiViews:
    """Gives and takes codes, and knows what is open in this process."""

    def __init__(self, clock: Clock) -> None:
        self._codes = _Openings(clock)
        self._views = _Openings(clock)

    def code(self, opening: Opening) -> str:
        """What opens the pages, once, within CODE_SECONDS."""
        code = secrets.token_urlsafe(32)
        self._codes.add(_digest(code).hex(), opening, CODE_SECONDS)
        return code

    def take(self, code: str) -> Opening | None:
        """What it opens, once; None for a code that is not known, was taken, or is too old."""
        name = _digest(code).hex()
        kept = self._codes.get(name)
        self._codes.pop(name)
        return None if kept is None else kept.opening

    def open(self, opening: Opening) -> tuple[str, str]:
        """(id of the view, value of its cookie)."""
        view_id, cookie = secrets.token_hex(16), secrets.token_urlsafe(32)
        self._views.add(view_id, opening, VIEW_SECONDS, _digest(cookie))
        return view_id, cookie

    def end(self, sessions: Collection[str]) -> int:
        """Close what was opened by one of these sign-ins, and forget its codes. Returns how many."""
        return self._codes.end(sessions) + self._views.end(sessions)

    def find(self, view_id: str, cookies: Iterable[str]) -> Opening | None:
        """What is open at that path for who shows one of these cookies."""
        kept = self._views.get(view_id)
        if kept is None or not any(hmac.compare_digest(_digest(one), kept.digest) for one in cookies):
            return None
        return kept.opening


def _digest(value: str) -> bytes:
    """What is looked up tells nothing about a code or a cookie by the time that it takes."""
    return hashlib.sha256(value.encode()).digest()
