"""The Spark host: holds the driver and serves the TaskManager. Lives and dies with one JVM.

The main thread reads requests; a bounded pool of threads answers them; one thread watches (stopped context, jobs
no session wants, progress); one waits for the JVM's end; one warms up. The host ends when the TaskManager's end of the
socket closes, when the JVM ends, or when the context stops; its JVM always ends with it.
"""

from __future__ import annotations

import logging
import os
import socket
import subprocess
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict
from typing import Any

from py4j.protocol import Py4JError, Py4JJavaError

from runtime.common.clock import Clock, Deadline
from runtime.common.entropy import Entropy
from runtime.taskexecutor.driver_jvm.archive import ClassArchive
from runtime.taskexecutor.spark_host.driver import HOST_TAG, Driver, end_of
from runtime.taskexecutor.spark_host.hadoop_credentials import hadoop_credentials
from runtime.taskexecutor.spark_host.idleness import Idleness
from runtime.taskexecutor.spark_host.jvm_end import JvmEnd
from runtime.taskexecutor.spark_host.pages import Pages
from runtime.taskexecutor.spark_host.progress import progress_by_tag, unwanted_jobs
from runtime.taskexecutor.spark_host.sessions import Sessions
from runtime.taskexecutor.spark_host.stream_progress import streams_by_tag
from runtime.taskexecutor.spark_host.warm_up import WarmUp
from runtime.taskexecutor.spark_host.worker_daemons import kill_daemons
from runtime.taskexecutor.spark_protocol import frames
from runtime.taskexecutor.spark_protocol.archive_build import builder_command
from runtime.taskexecutor.spark_protocol.gateway import PLANTED_SESSION, connect
from runtime.taskexecutor.spark_protocol.settings import SparkSettings

logger = logging.getLogger(__name__)

_SWEEP_AGE_MIN = 60.0
_STOP_TIMEOUT = 5.0
_EXIT_TIMEOUT = 3.0
_CODE_TIMEOUT = 1.0


class SparkHost:
    """Serves one TaskManager over one connected socket."""

    def __init__(
        self, driver: Driver, archive: ClassArchive, connection: socket.socket, clock: Clock, entropy: Entropy
    ) -> None:
        self._driver = driver
        self._archive = archive
        self._connection = connection
        self._clock = clock
        self._settings: SparkSettings = driver.settings
        self._stopping = threading.Event()
        self._sessions = Sessions(
            driver, clock, entropy, self._stopping.wait, hadoop_credentials(os.environ), self._tell_change
        )
        self._send_lock = threading.Lock()
        self._end_lock = threading.Lock()
        self._dumping = threading.Lock()
        self._pages = Pages(driver)
        self._progress: dict[str, Any] = {}
        self._builder: subprocess.Popen[bytes] | None = None
        self._is_warm = threading.Event()
        self._idleness = Idleness(clock.monotonic())

    def serve(self) -> None:
        """Serve until the TaskManager closes the connection or asks to stop. Main thread."""
        self._start_thread("jvm-end", self._wait_jvm_end)
        self._self_test()
        self._driver.note_state()
        self._send({"event": "ready"})
        self._start_thread("watch", self._watch)
        self._start_thread("warm-up", self._warm_up)
        # Closing may take seconds; opening and cancelling must not wait behind it.
        workers = 2 * self._settings.slots + 2
        with ThreadPoolExecutor(workers, thread_name_prefix="request") as pool:
            while (request := frames.receive_frame(self._connection)) is not None:
                if request["operation"] == "stop":
                    break
                pool.submit(self._answer, request)
            self._stopping.set()
        self._end(f"the TaskManager has closed the connection of host {os.getpid()}", is_orderly=True)

    @staticmethod
    def _start_thread(name: str, target: Callable[[], None]) -> None:
        threading.Thread(target=target, name=name, daemon=True).start()

    def _self_test(self) -> None:
        """Ready means: a session like those of slots has run a count through its own gateway."""
        session = self._sessions.open(0)
        gateway = connect(session.port, session.secret)
        rows = int(_planted(gateway, PLANTED_SESSION).range(1000).count())
        assert rows == 1000, rows
        gateway.close()
        self._start_thread("self-test-close", lambda: self._close_quietly(session.session_id))

    def _close_quietly(self, session_id: str) -> None:
        self._sessions.close(session_id, Deadline.after(self._clock, self._settings.close_timeout))

    # --- requests -----------------------------------------------------------------------------------------

    def _answer(self, request: dict[str, Any]) -> None:
        try:
            value = self._perform(request["operation"], request["arguments"])
        except Exception as error:  # noqa: BLE001 - the endpoint's boundary: every failure is an answer
            logger.warning("request %s failed: %s", request["operation"], error)
            self._send({"id": request["id"], "error": self._why(error)})
        else:
            self._send({"id": request["id"], "value": value})

    def _why(self, error: Exception) -> str:
        """A connection that broke, or was refused, says nothing: how the JVM has ended does, if it has."""
        said = f"{type(error).__name__}: {error}"
        if not says_that_the_jvm_is_lost(error) or (code := self._exit_code()) is None:
            return said
        return end_of(self._driver, said, code).reason

    def _perform(self, operation: str, arguments: dict[str, Any]) -> Any:
        match operation:
            case "open_session":
                return asdict(self._sessions.open(arguments["slot_index"], arguments["shares"]))
            case "close_session":
                deadline = Deadline.after(self._clock, self._settings.close_timeout)
                return asdict(self._sessions.close(arguments["session_id"], deadline))
            case "cancel_session_jobs":
                return self._sessions.cancel_jobs(arguments["session_id"])
            case "end_job":
                return self._end_job(arguments["job_id"])
            case _:
                return self._looked(operation, arguments)

    def _looked(self, operation: str, arguments: dict[str, Any]) -> Any:
        looks: dict[str, Callable[..., Any]] = {
            "work": self._driver.work_of,
            "positions": self._driver.positions_of,
            "stream": self._driver.look_at_stream,
            "script": self._driver.look_at_script,
            "progress": lambda: self._progress,
            "threads": self._threads,
            "figures": self._driver.figures,
            "jvm": self._driver.jvm_figures,
            "conf": lambda: self._driver.conf,
            "page": self._pages.answer,
        }
        return looks[operation](**arguments)

    def _threads(self) -> str:
        """One at a time: a JVM that does not answer must not take all threads that answer requests."""
        if not self._dumping.acquire(blocking=False):
            message = "it has not answered an earlier question for its stacks yet"
            raise RuntimeError(message)
        try:
            return self._driver.thread_dump()
        finally:
            self._dumping.release()

    def _tell_change(self, is_changed: bool, told: str) -> None:  # noqa: FBT001 - one of two
        self._send({"event": "changed", "is_changed": is_changed, "told": told})

    def _end_job(self, job_id: str) -> int:
        try:
            self._driver.forget_job(job_id)  # first, so that Spark does not start a daemon again that it finds dead
        finally:
            ended = kill_daemons(self._driver.process.pid, job_id)
        return ended

    def _send(self, message: dict[str, Any]) -> None:
        with self._send_lock:
            try:
                self._connection.sendall(frames.encode(message))
            except OSError as error:
                logger.debug("the TaskManager does not listen any more: %s", error)

    # --- watching -----------------------------------------------------------------------------------------

    def _wait_jvm_end(self) -> None:
        self._driver.process.wait(None)
        self._end("the JVM ended", is_orderly=False)

    def _watch(self) -> None:
        rounds = 0
        while not self._stopping.wait(self._settings.poll_interval):
            rounds += 1
            try:
                self._look(rounds)
            except Exception as error:
                # The boundary of one look: what Java throws in it costs the progress of a second, not all slots.
                if not says_that_the_jvm_is_lost(error):
                    logger.exception("looking at the JVM failed")
                elif not self._stopping.is_set():
                    self._end(f"the JVM does not answer: {error}", is_orderly=False)

    def _look(self, rounds: int) -> None:
        if problem := self._driver.problem():
            self._end(problem, is_orderly=False)
        jobs = self._driver.active_jobs()
        tags = self._sessions.live_tags()
        stages = self._driver.active_stages() if jobs else []
        found = progress_by_tag(jobs, stages, tags, streams_by_tag(self._driver.streams()))
        self._progress = {tag: asdict(progress) for tag, progress in found.items()}
        for job_id in unwanted_jobs(jobs, tags):
            logger.warning("cancelling Spark job %d: no live slot has started it", job_id)
            self._driver.cancel_job(job_id, "no live slot has started it")
        self._sessions.renew()
        self._sessions.put_back()
        is_used = not self._is_warm.is_set() or self._is_used()
        if self._settings.is_on_demand and self._idleness.is_due(self._clock.monotonic(), is_used=is_used):
            self._driver.trim_heap()
        if rounds % 60 == 0:
            self._pages.forget_unused()
            self._sessions.sweep(_SWEEP_AGE_MIN)
        # Started here because the parent-death signal follows the thread that forks, and this one lives on.
        if self._is_warm.is_set() and self._builder is None and self._settings.class_archive:
            self._builder = self._start_builder()

    def _start_builder(self) -> subprocess.Popen[bytes] | None:
        if self._archive.exists() or self._settings.slot_gids or self._settings.is_on_demand:
            return None  # R50: what jobs could have written is no archive for the next JVM
        return subprocess.Popen(builder_command(self._settings), stdin=subprocess.DEVNULL)

    def _warm_up(self) -> None:
        try:
            is_done = WarmUp(self._driver, self._stopping.wait, self._stopping.is_set, self._is_used).run()
        except (Py4JError, OSError) as error:
            if not self._stopping.is_set():
                logger.warning("warming up failed, the first jobs will be slower: %s", error)
            return
        if is_done:
            self._is_warm.set()
            self._send({"event": "warm"})

    def _is_used(self) -> bool:
        if self._settings.is_on_demand:
            return bool(self._sessions.live_tags() - {HOST_TAG})
        return any(HOST_TAG not in job.tags for job in self._driver.active_jobs())

    # --- the end ------------------------------------------------------------------------------------------

    def _end(self, reason: str, *, is_orderly: bool) -> None:
        """End JVM and host, once; the process has ended when this returns."""
        with self._end_lock:
            self._stopping.set()
            end = JvmEnd(reason) if is_orderly else end_of(self._driver, reason, self._exit_code())
            logger.info("the Spark host ends: %s", end.reason)
            self._send({"event": "lost", "reason": end.reason, "session_id": end.session_id})
            if is_orderly:
                self._stop_context()
            self._driver.process.kill()
            logging.shutdown()
            # Threads that wait for the dead JVM cannot be joined.
            os._exit(0)

    def _exit_code(self) -> int | None:
        """The exit code of the JVM, with a wait for it: a JVM that does not answer is usually about to end."""
        return self._driver.process.wait(_CODE_TIMEOUT)

    def _stop_context(self) -> None:
        """Let Spark finish its event log; bounded, because the JVM may hang."""
        stopping = threading.Thread(target=self._driver.stop, name="stop", daemon=True)
        stopping.start()
        stopping.join(_STOP_TIMEOUT)
        self._driver.process.close_stdin()
        self._driver.process.wait(_EXIT_TIMEOUT)


def says_that_the_jvm_is_lost(error: Exception) -> bool:
    """False for an exception that Java has thrown, which is an answer. py4j has several errors for "no answer"."""
    return isinstance(error, Py4JError | OSError) and not isinstance(error, Py4JJavaError)


def _planted(gateway: Any, name: str) -> Any:
    from py4j.java_gateway import JavaObject

    return JavaObject(name, gateway._gateway_client)  # noqa: SLF001 - planted objects have no other way
