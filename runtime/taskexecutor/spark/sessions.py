"""Sessions of slots in the driver: opened in the one order that tags everything, closed so that nothing stays.

Local properties of Spark are inherited by threads. The gateway's accept thread starts in the constructor of
Py4JServer and every connection's thread is its child, so tag, interruptOnCancel, pool and active session are set
on the constructing thread before, and unset after (pitfall 4).
"""

from __future__ import annotations

import contextlib
import logging
import shutil
import threading
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from py4j.protocol import Py4JError

from runtime.common.clock import Clock, Deadline
from runtime.common.entropy import Entropy
from runtime.taskexecutor.spark import settings as spark_settings
from runtime.taskexecutor.spark.driver import HOST_TAG, Driver
from runtime.taskexecutor.spark.environment import SlotSession
from runtime.taskexecutor.spark.gateway import (
    PLANTED_CATALOG,
    PLANTED_CONTEXT,
    PLANTED_NO_PROPERTIES,
    PLANTED_SESSION,
)

logger = logging.getLogger(__name__)

CANCEL_INTERVAL = 0.05
CANCEL_DURATION = 0.6
"""A job that was being planned when its process died starts later: 0 of 40 survived this, 9 of 40 a single cancel."""
INTERRUPTED_DURATION = 2.0
"""How long quiet has to last after a call was interrupted: a broadcast that it began was seen to start 1 s later."""

_CLOSED = "its slot was closed"
_IDLE_WAIT = 0.05
_IDLE_INTERVAL = 0.005


@dataclass(slots=True)
class _OpenSession:
    slot_session: SlotSession
    server: Any
    java_session: Any


class Sessions:
    """All sessions that are open or still closing. Methods may be called from any thread."""

    def __init__(self, driver: Driver, clock: Clock, entropy: Entropy, wait: Callable[[float], object]) -> None:
        self._driver = driver
        self._clock = clock
        self._entropy = entropy
        self._wait = wait
        self._lock = threading.Lock()
        self._sessions: dict[str, _OpenSession] = {}
        self._live_tags: set[str] = {HOST_TAG}

    def live_tags(self) -> frozenset[str]:
        """Tags whose jobs are wanted, or being ended by `close`."""
        with self._lock:
            return frozenset(self._live_tags)

    def open(self, slot_index: int) -> SlotSession:
        """A session with a gateway of its own."""
        tag = f"slot-{slot_index}-{self._entropy.hex_id()}"
        pool = spark_settings.pool_name(slot_index)
        with self._lock:
            self._live_tags.add(tag)
        try:
            opened = self._open(tag, pool)
        except Py4JError:
            with self._lock:
                self._live_tags.discard(tag)
            raise
        with self._lock:
            self._sessions[tag] = opened
        return opened.slot_session

    def _open(self, tag: str, pool: str) -> _OpenSession:
        driver = self._driver
        java_session = driver.java_session.newSession()
        catalog = java_session.sessionState().catalog()  # built lazily otherwise, in the job's time
        server = self._server(tag, pool, java_session)
        gateway = server.server().getJavaServer().getGateway()
        gateway.putObject(PLANTED_CONTEXT, driver.java_context)
        gateway.putObject(PLANTED_SESSION, java_session)
        gateway.putObject(PLANTED_CATALOG, catalog)
        gateway.putObject(PLANTED_NO_PROPERTIES, driver.no_properties)
        directory = spark_settings.session_directory(driver.settings, tag)
        directory.mkdir(mode=0o700)
        port, secret = int(server.getListeningPort()), str(server.secret())
        session = SlotSession(tag, port, secret, pool, str(directory), driver.conf)
        return _OpenSession(session, server, java_session)

    def _server(self, tag: str, pool: str, java_session: Any) -> Any:
        driver = self._driver
        session_class = driver.jvm.org.apache.spark.sql.classic.SparkSession
        driver.bind_thread(tag, pool)
        session_class.setActiveSession(java_session)
        try:
            return driver.jvm.org.apache.spark.api.python.Py4JServer(driver.java_context.sc().conf())
        finally:
            session_class.clearActiveSession()
            driver.unbind_thread(tag)

    def close(self, session_id: str, deadline: Deadline) -> bool:
        """End a session whose process is gone. False when its tasks are still active at the deadline (R15)."""
        with self._lock:
            session = self._sessions.pop(session_id, None)
        if session is None:
            return True
        threads = _connection_threads(session.server)
        session.server.shutdown()
        self._stop_streams(session)
        is_quiet = self._is_idle(session_id, threads) or self._drain(session_id, threads, deadline)
        shutil.rmtree(session.slot_session.directory, ignore_errors=True)
        if is_quiet:
            with self._lock:
                self._live_tags.discard(session_id)
        return is_quiet

    def _stop_streams(self, session: _OpenSession) -> None:
        # Pitfall 14: streams of a killed process run on.
        for query in session.java_session.streams().active():
            try:
                query.stop()
            except Py4JError as error:
                # It ends with its jobs then; a stream that does not stop in time throws here.
                logger.warning("stopping a stream of session %s: %s", session.slot_session.session_id, error)

    def _is_idle(self, tag: str, threads: list[Any]) -> bool:
        """True when nothing was in flight: the usual end, which needs no second cancel."""
        until = Deadline.after(self._clock, _IDLE_WAIT)
        while any(thread.isAlive() for thread in threads):
            if until.has_passed(self._clock):
                return False
            self._wait(_IDLE_INTERVAL)
        return not self._driver.cancel_tag(tag, _CLOSED) and not self._driver.has_active_tasks(tag)

    def _drain(self, tag: str, threads: list[Any], deadline: Deadline) -> bool:
        """Cancel until nothing of the session runs, and nothing can start any more (pitfall 3, R15).

        Calls that were in flight when the process died go on in the JVM, and a job that they plan starts later. Such
        a call is interrupted after CANCEL_DURATION, and counts as active until its thread has ended. Even then threads
        of Spark's own may go on with what it has begun (a broadcast), so the quiet has to last.
        """
        patience = until = Deadline.after(self._clock, CANCEL_DURATION)
        is_interrupted = False
        while True:
            cancelled = self._driver.cancel_tag(tag, _CLOSED)
            in_flight = [thread for thread in threads if thread.isAlive()]
            if cancelled or in_flight:
                until = Deadline.after(self._clock, INTERRUPTED_DURATION if is_interrupted else CANCEL_DURATION)
            is_active = bool(in_flight) or self._driver.has_active_tasks(tag)
            if deadline.has_passed(self._clock):
                return not is_active
            if until.has_passed(self._clock) and not is_active:
                return True
            if in_flight and patience.has_passed(self._clock) and not is_interrupted:
                is_interrupted = True
                for thread in in_flight:
                    thread.interrupt()
            self._wait(CANCEL_INTERVAL)

    def cancel_jobs(self, session_id: str) -> int:
        """The soft step: cancel what is active now."""
        return self._driver.cancel_tag(session_id, "its task was canceled")

    def sweep(self, age_min: float) -> int:
        """Remove what processes left that died while attaching: old `pyspark-<uuid>` directories (pitfall 13)."""
        own = Path(self._driver.context._temp_dir)  # noqa: SLF001 - no public way
        newest = self._clock.epoch_millis() / 1000 - age_min
        removed = 0
        for directory in own.parent.glob("pyspark-*"):
            with contextlib.suppress(FileNotFoundError):
                if directory != own and directory.stat().st_mtime < newest:
                    shutil.rmtree(directory)
                    removed += 1
        return removed


def _connection_threads(server: Any) -> list[Any]:
    """The JVM threads that serve the session's connections; py4j keeps them to itself."""
    java_server = server.server().getJavaServer()
    field = java_server.getClass().getSuperclass().getDeclaredField("connections")
    field.setAccessible(True)
    threads: list[Any] = []
    for connection in list(field.get(java_server)):
        thread_field = connection.getClass().getDeclaredField("jvmThread")
        thread_field.setAccessible(True)
        threads.append(thread_field.get(connection))
    return threads
