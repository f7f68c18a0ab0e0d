"""Sessions of slots in the driver: opened in the one order that tags everything, closed so that nothing stays.

What a session is inside the JVM is `jvm/SlotSession.java`: a context, a cache and views of its own (R22), and a gateway
all of whose threads carry the session's tag (pitfall 4).
"""

from __future__ import annotations

import contextlib
import logging
import os
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from runtime.common.clock import Clock, Deadline
from runtime.common.deletion import delete_tree
from runtime.common.entropy import Entropy
from runtime.taskexecutor.credentials.token_values import TokenValues
from runtime.taskexecutor.spark_host.driver import HOST_TAG, Driver
from runtime.taskexecutor.spark_protocol import settings as spark_settings
from runtime.taskexecutor.spark_protocol.sessions import SlotSession
from runtime.taskexecutor.worker_protocol import session_marks
from runtime.taskexecutor.worker_protocol.worker_environment import WORKING_DIRECTORY_PROPERTY

logger = logging.getLogger(__name__)

CANCEL_INTERVAL = 0.05
CANCEL_DURATION = 0.6
"""A job that was being planned when its process died starts later: 0 of 40 survived this, 9 of 40 a single cancel."""
INTERRUPTED_DURATION = 2.0
"""How long quiet has to last after a call was interrupted: a broadcast that it began was seen to start 1 s later."""

_CLOSED = "its slot was closed"
_WAITS, _RESTORED = "waits", "restored"
_IDLE_WAIT = 0.05
_IDLE_INTERVAL = 0.005
_OF_SLOT_TOO = 0o2770
"""Mode of a session's directory, where slots have users of their own (R50): its files have the slot's group."""


@dataclass(slots=True)
class _OpenSession:
    """`given`: the credentials that it has. `lock`: held to change that, or to close it (`is_closing`)."""

    slot_session: SlotSession
    java: Any
    given: Mapping[str, str] = field(default_factory=dict)
    lock: threading.Lock = field(default_factory=threading.Lock)
    is_closing: bool = False


@dataclass(frozen=True, slots=True)
class SessionEnd:
    """`is_quiet`: nothing of the session is active (R15). `left`: processes of its functions and scripts that do not
    die.

    `change`: its possible changes of the shared JVM, in the lines of `jvm/JvmState.java` (R45).
    """

    is_quiet: bool
    left: str = ""
    change: str = ""


class Sessions:
    """All sessions that are open or still closing. Methods may be called from any thread.

    `on_change` hears whether the JVM is changed for all (R45), and what was put back while others work, if anything.
    """

    def __init__(
        self,
        driver: Driver,
        clock: Clock,
        entropy: Entropy,
        wait: Callable[[float], object],
        credentials: TokenValues,
        on_change: Callable[[bool, str], object],
    ) -> None:
        self._driver = driver
        self._credentials = credentials
        self._clock = clock
        self._entropy = entropy
        self._wait = wait
        self._lock = threading.Lock()
        self._sessions: dict[str, _OpenSession] = {}
        self._live_tags: set[str] = {HOST_TAG}
        self._on_change = on_change
        self._settling = threading.Lock()  # what is told of the JVM is told in the order in which it was so
        self._is_changed = False

    def live_tags(self) -> frozenset[str]:
        """Tags whose jobs are wanted, or being ended by `close`."""
        with self._lock:
            return frozenset(self._live_tags)

    def open(self, slot_index: int, shares: int = 1) -> SlotSession:
        """Open a session with a gateway of its own, whose jobs have the weight of so many slots.

        When that fails, nothing of the session is left (R25).
        """
        tag = f"slot-{slot_index}-{self._entropy.hex_id()}"
        with self._lock:
            self._live_tags.add(tag)
        try:
            opened = self._open(tag, slot_index, shares)
            try:
                self._give(opened, self._credentials.newest())
            except BaseException:
                self._close_unused(opened)
                raise
        except BaseException:
            self._forget(tag)
            raise
        with self._lock:
            self._sessions[tag] = opened
        return opened.slot_session

    def _open(self, tag: str, slot_index: int, shares: int) -> _OpenSession:
        driver, pool = self._driver, spark_settings.pool_name(slot_index, shares)
        if shares > 1:
            driver.add_pool(pool, shares * spark_settings.SLOT_WEIGHT)
        link = spark_settings.working_directory_link(driver.settings, tag)
        directory = spark_settings.session_directory(driver.settings, tag)
        directory.mkdir(mode=0o700)
        if driver.settings.slot_gids:
            os.chown(directory, -1, driver.settings.slot_gids[slot_index])
            directory.chmod(_OF_SLOT_TOO)
        words = session_marks.shell_words(tag, str(directory)) if driver.settings.is_local else ""
        try:
            java = driver.open_session(
                tag, words, {"spark.scheduler.pool": pool, WORKING_DIRECTORY_PROPERTY: str(link)}
            )
        except BaseException:
            delete_tree(directory)
            raise
        port, secret = str(java.address()).split(" ")
        is_of_one_job = driver.settings.is_of_one_job
        session = SlotSession(tag, int(port), secret, pool, str(directory), driver.conf, is_of_one_job=is_of_one_job)
        return _OpenSession(session, java)

    def _close_unused(self, session: _OpenSession) -> None:
        try:
            self._close(session, Deadline.after(self._clock, CANCEL_DURATION))
        except Exception:
            # The caller that asked for it tells why it was not to be had; a JVM that is lost has lost this, too.
            logger.warning("session %s cannot be closed", session.slot_session.session_id, exc_info=True)

    def _forget(self, tag: str) -> None:
        """Take the tag off the list of live ones: the reaper cancels jobs under it from now on."""
        with self._lock:
            self._live_tags.discard(tag)

    @staticmethod
    def _give(session: _OpenSession, newest: Mapping[str, str]) -> None:
        if session.given is not newest and (newest or session.given):
            session.java.give(dict(newest))
        session.given = newest

    def renew(self) -> None:
        """Give the newest credentials to all open sessions (R51). Cheap where there are none."""
        newest = self._credentials.newest()
        with self._lock:
            sessions = list(self._sessions.values())
        for session in sessions:
            with session.lock:
                if session.is_closing:
                    continue
                self._give(session, newest)
                if session.given:
                    session.java.renewFileSystems()

    def close(self, session_id: str, deadline: Deadline) -> SessionEnd:
        """End a session whose process is dead.

        When nothing of the session runs any more, all that the session has cached, persisted, broadcast or registered
        is removed (R22), and processes that its Python functions and scripts have started are killed (R29).
        """
        with self._lock:
            session = self._sessions.pop(session_id, None)
        if session is None:
            return SessionEnd(is_quiet=True)
        with session.lock:
            session.is_closing = True
        try:
            return self._close(session, deadline)
        finally:
            self._forget(session_id)

    def _close(self, session: _OpenSession, deadline: Deadline) -> SessionEnd:
        tag, java = session.slot_session.session_id, session.java
        self._note_streams(tag, str(java.shut()))  # a stream that does not stop in time ends with its jobs
        is_quiet = self._is_idle(session) or self._drain(session, deadline)
        is_used = self._remove_directory(Path(session.slot_session.directory))
        left = self._end_left_behind(tag) if is_quiet and is_used else ""
        if not is_quiet:
            return SessionEnd(is_quiet, left)
        for problem in str(java.release()).splitlines():
            logger.error("session %s has left something in the JVM: %s", tag, problem)
        try:
            with self._settling:
                change = str(java.settle())
                self._note_change("", is_changed=bool(change) and not change.startswith(_RESTORED))
        finally:
            self._driver.forget_session(java)
        return SessionEnd(is_quiet, left, change)

    @staticmethod
    def _remove_directory(directory: Path) -> bool:
        """True if Python workers or scripts have worked for the session; from here on none begins to."""
        ended = directory.with_name(f"{directory.name}.gone")
        try:
            directory.rename(ended)
            return (ended / session_marks.USED).exists()
        except OSError:
            logger.exception("the directory of a session is not where it was made")
            delete_tree(directory)
            return True
        finally:
            delete_tree(ended)

    def _end_left_behind(self, session_id: str) -> str:
        """Kill the processes of the session. Returns those that do not die, or a failed look, in words."""
        try:
            ended, alive = session_marks.end_left_behind(session_id, self._wait)
        except Exception as error:
            # The session ends all the same: what it has in the JVM counts against all jobs (R25).
            logger.exception("what Python functions and scripts of session %s have left cannot be ended", session_id)
            return f"perhaps processes of its Python functions and scripts, which could not be looked for: {error}"
        if ended:
            logger.info(
                "ended what Python functions and scripts of session %s had left: %s",
                session_id,
                session_marks.in_words(ended),
            )
        return session_marks.in_words(alive)

    @staticmethod
    def _note_streams(tag: str, unstopped: str) -> None:
        for problem in unstopped.splitlines():
            logger.warning("stopping what session %s has left: %s", tag, problem)

    def _has_streams(self, session: _OpenSession) -> bool:
        """True while a stream does not stop. Once no call is in flight none begins: such a call may have started one
        behind the first stop of all."""
        unstopped = str(session.java.stopStreams())
        self._note_streams(session.slot_session.session_id, unstopped)
        return bool(unstopped)

    def _is_idle(self, session: _OpenSession) -> bool:
        """True when nothing was in flight: the usual end, which needs no second cancel."""
        java = session.java
        until = Deadline.after(self._clock, _IDLE_WAIT)
        while java.callsInFlight():
            if until.has_passed(self._clock):
                return False
            self._wait(_IDLE_INTERVAL)
        return not self._has_streams(session) and not java.cancelJobs(_CLOSED) and not java.hasActiveTasks()

    def _drain(self, session: _OpenSession, deadline: Deadline) -> bool:
        """Cancel until nothing of the session runs, and nothing can start any more (pitfall 3, R15).

        Calls that were in flight when the process died go on in the JVM, and a job that they plan starts later. Such
        a call is interrupted after CANCEL_DURATION, and counts as active until its thread has ended. Even then threads
        of Spark's own may go on with what it has begun (a broadcast), so the quiet has to last. A task that waits for a
        program of the session, as for the script of a TRANSFORM, ends with that (R29).
        """
        java, used = session.java, Path(session.slot_session.directory) / session_marks.USED
        patience = until = Deadline.after(self._clock, CANCEL_DURATION)
        is_interrupted = False
        while True:
            cancelled, in_flight = java.cancelJobs(_CLOSED), java.callsInFlight()
            if cancelled or in_flight:
                until = Deadline.after(self._clock, INTERRUPTED_DURATION if is_interrupted else CANCEL_DURATION)
            is_active = in_flight > 0 or self._has_streams(session) or java.hasActiveTasks()
            if is_active and used.exists():
                session_marks.kill_programs(session.slot_session.session_id)
            if deadline.has_passed(self._clock):
                return not is_active
            if until.has_passed(self._clock) and not is_active:
                return True
            if in_flight and patience.has_passed(self._clock) and not is_interrupted:
                is_interrupted = True
                java.interruptCalls()
            self._wait(CANCEL_INTERVAL)

    def put_back(self) -> None:
        """R45: a change waits `change_timeout` for others to end. Costs a call only while there is one."""
        if self._is_changed:
            with self._settling:
                told = self._driver.put_back(self._driver.settings.change_timeout)
                if told != _WAITS:
                    self._note_change(told, is_changed=False)

    def _note_change(self, told: str, *, is_changed: bool) -> None:
        if is_changed != self._is_changed:
            self._is_changed = is_changed
            self._on_change(is_changed, told)

    def cancel_jobs(self, session_id: str) -> int:
        """The soft step: cancel the jobs that are active now."""
        with self._lock:
            session = self._sessions.get(session_id)
        return 0 if session is None else int(session.java.cancelJobs("its task was canceled"))

    def sweep(self, age_min: float) -> int:
        """Remove what processes left that died while attaching: old `pyspark-<uuid>` directories (pitfall 13)."""
        own = Path(self._driver.context._temp_dir)  # noqa: SLF001 - no public way
        newest = self._clock.epoch_millis() / 1000 - age_min
        removed = 0
        for directory in own.parent.glob("pyspark-*"):
            with contextlib.suppress(FileNotFoundError):
                if directory != own and directory.stat().st_mtime < newest:
                    for failure in delete_tree(directory):
                        raise failure
                    removed += 1
        return removed
