"""What the end of a session, of a job and of the JVM does for all jobs, whatever becomes of one of its steps."""

from __future__ import annotations

import os
import resource
import signal
import socket
import subprocess
import sys
import threading
import uuid
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from runtime.aio.clock import SystemClock
from runtime.aio.entropy import SeededEntropy
from runtime.common.clock import Deadline
from runtime.taskexecutor.credentials.token_values import TokenValues
from runtime.taskexecutor.spark_host import host as host_module
from runtime.taskexecutor.spark_host.driver import HOST_TAG, end_of, witness_file
from runtime.taskexecutor.spark_host.host import SparkHost
from runtime.taskexecutor.spark_host.sessions import Sessions
from runtime.taskexecutor.spark_protocol.settings import crash_file, sessions_directory
from runtime.taskexecutor.worker_protocol import session_marks
from tests.kit.spark.spark_box import spark_settings

SESSION = "slot-0-" + uuid.uuid4().hex
"""Of this process: the tests of another one beside it would find what these have started."""


class _Java:
    """A session in the JVM that is quiet."""

    def __init__(self) -> None:
        self.is_released = False
        self.refuses_credentials = False

    def give(self, _values: dict[str, str]) -> None:
        if self.refuses_credentials:
            raise RuntimeError("no credentials")

    def address(self) -> str:
        return "1 secret"

    def shut(self) -> str:
        return ""

    def stopStreams(self) -> str:  # noqa: N802 - Java's name
        return ""

    def callsInFlight(self) -> int:  # noqa: N802 - Java's name
        return 0

    def cancelJobs(self, _reason: str) -> int:  # noqa: N802 - as above
        return 0

    def hasActiveTasks(self) -> bool:  # noqa: N802 - as above
        return False

    def release(self) -> str:
        self.is_released = True
        return ""

    def settle(self) -> str:
        """What the session has changed for all."""
        return ""


class _Driver:
    """What Sessions, the host and the end of the JVM ask of a driver."""

    def __init__(self, directory: Path) -> None:
        self.settings = spark_settings(directory)
        self.conf: dict[str, str] = {}
        self.java = _Java()
        self.process = SimpleNamespace(pid=4711, last_output=lambda _size: "")
        self.forgotten: list[str] = []
        self.forgotten_sessions: list[_Java] = []

    def open_session(self, _tag: str, _script_words: str, _properties: dict[str, str]) -> _Java:
        return self.java

    def forget_session(self, java: _Java) -> None:
        self.forgotten_sessions.append(java)

    def forget_job(self, job_id: str) -> None:
        self.forgotten.append(job_id)


@pytest.fixture
def driver(tmp_path: Path) -> Any:
    made = _Driver(tmp_path)
    sessions_directory(made.settings).mkdir(parents=True)
    return made


@pytest.fixture
def marked() -> Iterator[int]:
    """A process that Python functions of SESSION have started."""
    code = "import resource, sys; resource.setrlimit(10, (int(sys.argv[1]), -1)); print(flush=True); sys.stdin.read()"
    mark = str(session_marks._mark_of(SESSION))
    with subprocess.Popen([sys.executable, "-c", code, mark], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        process.stdout.readline()
        yield process.pid
        process.kill()


def refuse(_pid: int, number: int) -> None:
    """What the kernel answers about a program that runs as another user, as `sudo` does."""
    assert number == signal.SIGKILL
    raise PermissionError


def test_a_process_that_may_not_be_killed_is_told(marked: int, monkeypatch: pytest.MonkeyPatch) -> None:
    assert resource.getrlimit(10)[1] == resource.RLIM_INFINITY
    monkeypatch.setattr(os, "kill", refuse)
    ended, alive = session_marks.end_left_behind(SESSION, lambda _: None)
    monkeypatch.undo()
    assert (list(ended), list(alive)) == ([], [marked])
    assert list(ended) == []


@pytest.mark.parametrize("error", [OSError(24, "Too many open files"), RuntimeError("x")])
def test_a_session_is_released_whatever_becomes_of_the_look_for_what_it_has_left(
    driver: Any, error: Exception, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def fail(*_: object) -> None:
        raise error

    clock = SystemClock()
    sessions = Sessions(driver, clock, SeededEntropy(1), threading.Event().wait, TokenValues(None, ""), lambda *_: None)
    session = sessions.open(0)
    (Path(session.directory) / session_marks.USED).touch()
    monkeypatch.setattr(session_marks, "end_left_behind", fail)
    end = sessions.close(session.session_id, Deadline.after(clock, 10))
    assert driver.java.is_released
    assert not Path(session.directory).exists()
    assert end.is_quiet
    assert str(error) in end.left, "the look failed, so it is not known that nothing is left"
    assert "cannot be ended" in caplog.text


def test_a_session_that_gets_no_credentials_leaves_nothing(driver: Any, tmp_path: Path) -> None:
    (tmp_path / "tokens").mkdir()
    (tmp_path / "tokens" / "lake.json").write_text('{"values": {"hadoop_conf.k": "v"}}')
    tokens = TokenValues(tmp_path / "tokens", "hadoop_conf.")
    clock = SystemClock()
    sessions = Sessions(driver, clock, SeededEntropy(1), threading.Event().wait, tokens, lambda *_: None)
    driver.java.refuses_credentials = True
    with pytest.raises(RuntimeError, match="no credentials"):
        sessions.open(0)
    assert driver.java.is_released
    assert driver.forgotten_sessions == [driver.java]
    assert list(sessions_directory(driver.settings).iterdir()) == []
    assert sessions.live_tags() == frozenset({HOST_TAG})


def test_a_catalog_goes_even_when_workers_of_its_job_cannot_be_ended(
    driver: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object) -> None:
        raise PermissionError

    monkeypatch.setattr(host_module, "kill_daemons", fail)
    ours, theirs = socket.socketpair()
    nothing: Any = None
    with ours, theirs:
        made = SparkHost(driver, nothing, ours, SystemClock(), SeededEntropy(1))
        with pytest.raises(PermissionError):
            made._end_job("j")
    assert driver.forgotten == ["j"]


def test_a_witness_that_is_no_text_keeps_nobody_from_telling_the_end(driver: Any) -> None:
    witness_file(driver.settings).write_bytes(b"\nThread-\xff\nx.Y.z\n")
    assert "Thread-\ufffd" in end_of(driver, "gone", 1).reason


@pytest.mark.parametrize("place", [witness_file, crash_file])
def test_what_cannot_be_read_keeps_nobody_from_telling_the_end(
    driver: Any, place: Any, caplog: pytest.LogCaptureFixture
) -> None:
    place(driver.settings).mkdir(parents=True)
    end = end_of(driver, "the JVM ended", 1)
    assert end.reason.startswith("the JVM ended; how and for whom is not known")
    assert end.session_id == ""
    assert "cannot be found out" in caplog.text


def works_for(directory: Path) -> None:
    """In a process of its own: what it does to its limits and its name cannot be undone."""
    code = (
        "import sys; from runtime.taskexecutor.worker_protocol.session_marks import work_for; work_for(*sys.argv[1:])"
    )
    subprocess.run([sys.executable, "-c", code, SESSION, str(directory)], check=True, capture_output=True, text=True)


def test_a_task_that_comes_to_its_worker_when_its_session_has_ended_does_not_begin(driver: Any) -> None:
    clock = SystemClock()
    sessions = Sessions(driver, clock, SeededEntropy(1), threading.Event().wait, TokenValues(None, ""), lambda *_: None)
    session = sessions.open(0)
    directory = Path(session.directory)
    assert session_marks.tasks_of(session.directory) == 0
    works_for(directory)
    works_for(directory)
    assert session_marks.tasks_of(session.directory) == 2
    sessions.close(session.session_id, Deadline.after(clock, 10))
    assert list(directory.parent.iterdir()) == []
    with pytest.raises(subprocess.CalledProcessError) as failed:
        works_for(directory)
    assert "SessionEndedError" in failed.value.stderr
