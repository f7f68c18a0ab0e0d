"""A Spark environment on a loop of its own thread, and slot processes as small as they can be.

Tests stay plain functions: `box.run(...)` calls the environment, `box.slot(...)` runs user code in a fresh,
attached process.
"""

from __future__ import annotations

import asyncio
import dataclasses
import json
import os
import queue
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any, TypeVar

from runtime.taskexecutor.spark.environment import JvmChange
from runtime.taskexecutor.spark.environment_process import ProcessSparkEnvironment
from runtime.taskexecutor.spark_protocol.sessions import SlotSession
from runtime.taskexecutor.spark_protocol.settings import SparkSettings
from runtime.taskexecutor.task_environment import TaskEnvironment

T = TypeVar("T")

ROOT = Path(__file__).resolve().parents[3]
ONE_COMPILER = "-XX:TieredStopAtLevel=1"
"""A JVM that lives for a minute has no use for the second one, which takes half of its CPU time."""
QUICK_JVM = {"spark.driver.extraJavaOptions": ONE_COMPILER}
PATIENCE = 270.0
"""Seconds for what a slot's code says next: what takes one on a quiet machine may take a hundred on a busy one."""
_MARK = "\x1eslot:"
_ENDED = object()


def spark_settings(directory: Path, *, archive: Path | None = None, **changes: Any) -> SparkSettings:
    """Small and quick: two cores, no warm-up, one compiler, and the class archive in `archive`, if there is one."""
    changes["spark_conf"] = {**QUICK_JVM, **changes.get("spark_conf", {})}
    settings = SparkSettings(
        master="local[2]",
        slots=2,
        cores=2,
        heap_bytes=768 << 20,
        work_directory=directory / "work",
        cds_directory=archive or directory / "cds",
        log_directory=directory / "log",
        warm_up_count=0,
        class_archive=archive is not None,
        poll_interval=0.2,
        close_timeout=20.0,  # a crowded machine takes longer than the product's 5 s to end what a test leaves
    )
    return dataclasses.replace(settings, **changes)


def wait_until(predicate: Callable[[], object], timeout: float = 100.0) -> None:
    """Wait for a level that another process reaches."""
    until = time.monotonic() + timeout
    while not predicate():
        assert time.monotonic() < until, f"not reached in {timeout} s"
        time.sleep(0.01)


def is_alive(pid: int) -> bool:
    """True while the process exists and is no zombie."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


class SlotProcess:
    """User code in a process of its own, attached to a session."""

    def __init__(self, session: SlotSession, code: str, directory: Path, binding: dict[str, Any]) -> None:
        directory.mkdir(parents=True, exist_ok=True)
        self.session = session
        self.stderr_file = directory / f"{session.session_id}.stderr"
        self.logs = directory / f"{session.session_id}.logs"
        """What Spark prints for the session, in `stdout` and `stderr`."""
        self.logs.mkdir()
        for name in ("stdout", "stderr"):
            (self.logs / name).touch()
        defaults = {
            "job_id": "0" * 32,
            "description": "test",
            "job_directory": str(directory),
            "log_directory": str(self.logs),
        }
        order = {"session": dataclasses.asdict(session), "code": code, "binding": defaults | binding}
        with self.stderr_file.open("wb") as stderr:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "tests.kit.spark.spark_slot"],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=stderr,
                cwd=directory,
                env={**os.environ, "PYTHONPATH": str(ROOT), "PYSPARK_PYTHON": sys.executable},
                text=True,
            )
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps(order) + "\n")
        self._process.stdin.flush()
        self._emitted: queue.Queue[Any] = queue.Queue()
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    @property
    def pid(self) -> int:
        """The process."""
        return self._process.pid

    def _read(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            if line.startswith(_MARK):
                self._emitted.put(json.loads(line[len(_MARK) :]))
        self._emitted.put(_ENDED)

    def next(self, timeout: float = PATIENCE) -> Any:
        """The next value that the code emitted. AssertionError when it ends, or takes too long, before."""
        try:
            value = self._emitted.get(timeout=timeout)
        except queue.Empty:
            value = _ENDED
        assert value is not _ENDED, self.stderr_file.read_text()
        return value

    def tell(self, text: str = "") -> None:
        """One line for the code's `ask()`."""
        assert self._process.stdin is not None
        self._process.stdin.write(text + "\n")
        self._process.stdin.flush()

    def finish(self, timeout: float = PATIENCE) -> int:
        """The exit code."""
        code = self._process.wait(timeout)
        self._reader.join(5)
        self._close_pipes()
        return code

    def kill(self) -> None:
        """SIGKILL, and reap."""
        self._process.send_signal(signal.SIGKILL)
        self._process.wait()
        self._reader.join(5)
        self._close_pipes()

    def _close_pipes(self) -> None:
        for pipe in (self._process.stdin, self._process.stdout):
            if pipe is not None:
                pipe.close()


class SparkBox:
    """One environment for plain test functions."""

    def __init__(self, settings: SparkSettings, directory: Path) -> None:
        self.settings = settings
        self.directory = directory
        self.credentials = directory / "credentials"
        passed = TaskEnvironment.of_this_process().naming_credentials(self.credentials)
        self.environment = ProcessSparkEnvironment(settings, environment=passed)
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)
        self._thread.start()
        self._slots: list[SlotProcess] = []

    def run(self, coroutine: Coroutine[Any, Any, T], timeout: float = 180.0) -> T:
        """Call the environment."""
        return asyncio.run_coroutine_threadsafe(coroutine, self._loop).result(timeout)

    def open(self, slot_index: int = 0) -> SlotSession:
        """A session."""
        return self.run(self.environment.open_session(slot_index))

    def close(self, session: SlotSession) -> None:
        """End it. What a test does is ordinary, so it changes nothing for other jobs (R45)."""
        change = self.settled(session)
        assert change is None, change

    def settled(self, session: SlotSession) -> JvmChange | None:
        """End it; what it has changed for all who use its JVM."""
        return self.run(self.environment.close_session(session)).change

    def end_job(self, job_id: str) -> None:
        """The job leaves."""
        self.environment.note_use(job_id)
        self.run(self.environment.end_job(job_id))

    def slot(self, code: str, *, slot_index: int = 0, directory: Path | None = None, **binding: Any) -> SlotProcess:
        """Run `code` in a fresh slot process: it has `spark`, `attached`, `emit(value)` and `ask()`."""
        session = self.open(slot_index)
        slot = SlotProcess(session, code, directory or self.directory / session.session_id, binding)
        self._slots.append(slot)
        return slot

    def end(self, slot: SlotProcess) -> None:
        """Kill the process and close its session."""
        slot.kill()
        self.close(slot.session)

    def evaluate(self, code: str, **binding: Any) -> Any:
        """The first value that `code` emits; the slot is ended afterwards."""
        slot = self.slot(code, **binding)
        try:
            return slot.next()
        finally:
            self.end(slot)

    def end_slots(self) -> None:
        """Kill what a test has left."""
        slots, self._slots = self._slots, []
        for slot in slots:
            slot.kill()
            self.close(slot.session)

    def shut(self) -> None:
        """Stop environment and loop."""
        self.run(self.environment.stop())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(10)
        self._loop.close()
