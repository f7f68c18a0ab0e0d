"""The audit log: changes, sign-ins and refusals with their principals, one JSON line each (R49).

Lines are ASCII, bounded in length, and hold no token. The files are rotated as other logs are. Lines that change
nothing and may come in any number (refusals, failures, repeats) are only counted above a bound, so that
no flood fills the disk, or pushes changes out of the files.
"""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime
from io import TextIOWrapper
from itertools import accumulate
from pathlib import Path
from typing import Any, Protocol

from runtime.common.clock import Clock
from runtime.common.ids import JobId
from runtime.common.printable import printable
from runtime.logs.rotating import RotatingLogHandler
from runtime.rest.access.audit_lines import last_lines

logger = logging.getLogger(__name__)

FILE_SIZE_MAX = 100 * 1024 * 1024
REFUSALS_WINDOW = 60.0
_WINDOW_LOOK = 5.0
REFUSALS_OF_ONE = 20
"""Lines within a window of refusals of one stranger's address, and of refusals, failures and repeats of one principal.

What is more is counted.
"""
REFUSALS_MAX = 200
"""The same for all strangers together, and for all principals together."""
SIGN_IN_SECONDS = 15 * 60.0
"""A principal that has asked from there within that time does not sign in anew."""
REPEATED_SECONDS = 60 * 60.0
"""The same done by the same principal to the same object within that time is a repeat."""
_NEVER_A_REPEAT = frozenset({"sign-in", "create-token", "rotate-token"})
_REMEMBERED_MAX = 10_000
_TEXT_MAX = 256


More = Callable[[], Mapping[str, str]]
"""Further fields of a line, made when there is one."""


class Audit(Protocol):
    """The lines that requests cause."""

    def tell(self, action: str, outcome: str, *, principal: str, address: str, object_: str = "", **more: Any) -> None:
        """A principal with the role has done or tried something."""

    def fail(self, action: str, *, principal: str, address: str, object_: str = "", **more: Any) -> None:
        """A principal with the role has tried something that failed."""

    def refuse(self, action: str, *, principal: str, address: str, object_: str = "", **more: Any) -> None:
        """A request was refused."""

    def sign_in(self, principal: str, via: str, address: str, *, forwarded_for: str = "", more: More = dict) -> None:
        """A request of that principal; logged when it is the first one in a while."""

    async def latest(self, lines_max: int) -> Sequence[dict[str, Any]]:
        """The last lines, oldest first."""


class NoAudit:
    """Logs nothing: for applications of tests."""

    def tell(self, action: str, outcome: str, *, principal: str, address: str, object_: str = "", **more: Any) -> None:
        """Nothing."""

    def fail(self, action: str, *, principal: str, address: str, object_: str = "", **more: Any) -> None:
        """Nothing."""

    def refuse(self, action: str, *, principal: str, address: str, object_: str = "", **more: Any) -> None:
        """Nothing."""

    def sign_in(self, principal: str, via: str, address: str, *, forwarded_for: str = "", more: More = dict) -> None:
        """Nothing."""

    async def latest(self, lines_max: int) -> Sequence[dict[str, Any]]:
        """None."""
        del lines_max
        return ()


class AuditLog:
    """Implements `Audit` over a file that this process alone writes. Used by one loop."""

    def __init__(self, path: Path, clock: Clock, *, files_max: int, size_max: int = FILE_SIZE_MAX) -> None:
        self._handler = _File(path, maxBytes=size_max, backupCount=files_max - 1, encoding="ascii", delay=True)
        self._clock = clock
        self._signed_in = _Remembered(SIGN_IN_SECONDS)
        self._done = _Remembered(REPEATED_SECONDS)
        self._begin_window()

    async def run(self) -> None:
        """Log soon after each window how many lines were left out: no other line may come then. Eternal."""
        while True:
            await asyncio.sleep(_WINDOW_LOOK)
            self._end_old_window()

    def close(self) -> None:
        """Log how many lines were left out."""
        self._end_window()
        self._handler.close()

    def tell(self, action: str, outcome: str, *, principal: str, address: str, object_: str = "", **more: Any) -> None:
        """One line; of a repeat only the count."""
        self._end_old_window()
        # Without the other fields: a client's promise has another time each time.
        what = (principal, action, outcome, object_)
        is_repeat = action not in _NEVER_A_REPEAT and self._done.note(what, self._clock.monotonic(), is_extended=False)
        if is_repeat and not self._repeats.takes(principal):
            return
        self._write(action, outcome, {"principal": principal, "address": address, "object": object_, **more})

    def refuse(self, action: str, *, principal: str, address: str, object_: str = "", **more: Any) -> None:
        """One line, or only the count: by principal, else by the address that a stand-by has seen, else the peer's."""
        self._end_old_window()
        if principal:
            is_told = self._refusals.takes(principal)
        else:
            is_told = self._strangers.takes(str(more.get("forwarded_for") or address))
        if is_told:
            self._write(action, "refused", {"principal": principal, "address": address, "object": object_, **more})

    def tell_cancel(self, job_id: JobId, reason: str) -> None:
        """The cluster has cancelled a job by itself, for that reason."""
        self.tell("cancel", "done", principal="", address="", object_=job_id, reason=reason)

    def fail(self, action: str, *, principal: str, address: str, object_: str = "", **more: Any) -> None:
        """One line, or one more that is counted."""
        self._end_old_window()
        if self._failures.takes(principal):
            self._write(action, "failed", {"principal": principal, "address": address, "object": object_, **more})

    def sign_in(self, principal: str, via: str, address: str, *, forwarded_for: str = "", more: More = dict) -> None:
        """One line for the first request in a while."""
        if self._signed_in.note((principal, via, address, forwarded_for), self._clock.monotonic(), is_extended=True):
            return
        origin = {"address": address, "forwarded_for": forwarded_for} if forwarded_for else {"address": address}
        self.tell("sign-in", "done", principal=principal, **origin, via=via, **more())

    async def latest(self, lines_max: int) -> Sequence[dict[str, Any]]:
        """Read in a thread: the disk may be slow."""
        return await asyncio.to_thread(last_lines, Path(self._handler.baseFilename), lines_max)

    def _end_old_window(self) -> None:
        if self._clock.monotonic() - self._window_start >= REFUSALS_WINDOW:
            self._end_window()

    def _end_window(self) -> None:
        strangers, failures = self._strangers.untold, sum(self._failures.untold.values())
        refusals, repeats = self._refusals.untold, self._repeats.untold
        self._begin_window()
        for address, count in strangers.items():  # "": all of whom not one has a line of his own
            self._write("refusals", "refused", {"address": address, "count": count})
        if failures:
            self._write("failures", "failed", {"count": failures})
        for principal, count in refusals.items():
            self._write("refusals", "refused", {"principal": principal, "count": count})
        for principal, count in repeats.items():
            self._write("repeats", "done", {"principal": principal, "count": count})

    def _begin_window(self) -> None:
        """Strangers are counted by address, principals by name: strangers take no line of a principal."""
        self._strangers, self._refusals = _Counted(), _Counted(has_first=True)
        self._failures, self._repeats = _Counted(), _Counted()
        self._window_start = self._clock.monotonic()

    def _write(self, action: str, outcome: str, more: Mapping[str, Any]) -> None:
        time = datetime.fromtimestamp(self._clock.epoch_millis() / 1000, UTC).isoformat(timespec="milliseconds")
        bounded = {key: _bounded(value) for key, value in more.items()}
        line = {"time": time, "action": action, "outcome": outcome, **bounded}
        text = json.dumps(line)
        try:
            self._handler.write(text)
        except Exception as error:  # noqa: BLE001 - a log that cannot be written ends no work
            # With what it would have said: this log is the only other place.
            logger.error("the audit log %s cannot be written (%s): %s", self._handler.baseFilename, error, text)  # noqa: TRY400


class _Remembered:
    """What was there within the last `seconds`. Above a bound the first is forgotten."""

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        self._since: dict[tuple[str, ...], float] = {}

    def note(self, what: tuple[str, ...], now: float, *, is_extended: bool) -> bool:
        """True if it was there; from now on it is. `is_extended`: each time that it comes counts, else the first."""
        since = self._since.pop(what, None)
        is_there = since is not None and now - since < self._seconds
        self._since[what] = since if since is not None and is_there and not is_extended else now
        if len(self._since) > _REMEMBERED_MAX:
            del self._since[next(iter(self._since))]
        return is_there


class _Counted:
    """The lines of a window by origin: logged and left out. `has_first`: the first of an origin is always logged."""

    def __init__(self, *, has_first: bool = False) -> None:
        self._has_first = has_first
        self.untold: dict[str, int] = {}
        self._told: dict[str, int] = {}

    def takes(self, who: str) -> bool:
        """Count one more of an origin. True if it is to be logged."""
        of_this = self._told.get(who, 0)
        is_full = sum(self._told.values()) >= REFUSALS_MAX and not (self._has_first and not of_this)
        if is_full or of_this >= REFUSALS_OF_ONE:
            name = who if of_this else ""  # of strangers there may be any number
            self.untold[name] = self.untold.get(name, 0) + 1
            return False
        self._told[who] = of_this + 1
        return True


class _File(RotatingLogHandler):
    """Made with its first line."""

    def _open(self) -> TextIOWrapper:
        Path(self.baseFilename).parent.mkdir(parents=True, exist_ok=True)
        return super()._open()


def _bounded(value: Any) -> Any:
    """Text of others; json escapes what is not ASCII, `printable` what is a control there. Bounded as it is written."""
    if not isinstance(value, str):
        return value
    text = printable(value[:_TEXT_MAX])
    if text.isascii() and len(text) <= _TEXT_MAX // 2:
        return text
    if len(json.dumps(text)) - 2 <= _TEXT_MAX:
        return text
    sizes = accumulate(len(json.dumps(character)) - 2 for character in text)
    return text[: sum(size <= _TEXT_MAX for size in sizes)]
