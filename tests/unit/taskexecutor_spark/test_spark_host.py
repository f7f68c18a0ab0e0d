"""What the Spark host decides by itself: when the JVM is gone, and what goes first at the end of a job."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from py4j.protocol import Py4JError, Py4JJavaError, Py4JNetworkError

from runtime.aio.clock import SystemClock
from runtime.aio.entropy import SeededEntropy
from runtime.taskexecutor.spark_host.host import SparkHost, says_that_the_jvm_is_lost
from runtime.taskexecutor.spark_protocol import frames
from runtime.taskexecutor.worker_protocol.worker_environment import JOB_ID_VARIABLE
from tests.kit.spark.spark_box import spark_settings

THROWN = Py4JJavaError("An error occurred while calling o1.f", SimpleNamespace(_target_id="o2"))


@pytest.mark.parametrize(
    ("error", "is_gone"),
    [
        (Py4JNetworkError("Answer from Java side is empty"), True),
        (Py4JError("An error occurred while calling o1.f"), True),
        (ConnectionRefusedError(), True),
        (THROWN, False),
        (KeyError("jobTags"), False),
    ],
)
def test_an_exception_of_java_is_an_answer(error: Exception, is_gone: bool) -> None:
    assert says_that_the_jvm_is_lost(error) is is_gone


class _Driver:
    """A driver that throws when it has to forget a catalog; this process stands for its JVM."""

    def __init__(self, directory: Path) -> None:
        self.settings = spark_settings(directory)
        self.conf: dict[str, str] = {}
        self.process = SimpleNamespace(pid=os.getpid())

    def forget_job(self, _job_id: str) -> None:
        raise THROWN


@pytest.fixture
def daemon() -> Iterator[subprocess.Popen[bytes]]:
    program = "import sys; print(flush=True); sys.stdin.read()"
    with subprocess.Popen(
        [sys.executable, "-c", program],
        env={**os.environ, JOB_ID_VARIABLE: "j" * 32},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        start_new_session=True,
    ) as process:
        assert process.stdout is not None
        process.stdout.readline()
        yield process
        process.kill()


def test_workers_of_a_job_end_even_when_its_catalog_stays(tmp_path: Path, daemon: subprocess.Popen[bytes]) -> None:
    driver: Any = _Driver(tmp_path)
    ours, theirs = socket.socketpair()
    with ours, theirs:
        host = SparkHost(driver, SimpleNamespace(), ours, SystemClock(), SeededEntropy(1))  # type: ignore[arg-type]  # no archive
        with pytest.raises(Py4JJavaError):
            host._end_job("j" * 32)
    assert daemon.wait(100) == -9


@pytest.mark.parametrize(
    ("error", "code", "said"),
    [
        (ConnectionRefusedError(111, "Connection refused"), -9, "the JVM was killed by SIGKILL (code -9)"),
        (ConnectionRefusedError(111, "Connection refused"), None, "ConnectionRefusedError: [Errno 111]"),
        (KeyError("tag"), -9, "KeyError: 'tag'"),
    ],
)
def test_a_question_that_a_lost_jvm_does_not_answer_is_told_how_it_has_ended(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error: Exception, code: int | None, said: str
) -> None:
    driver: Any = _Driver(tmp_path)
    driver.process = SimpleNamespace(pid=1, wait=lambda _timeout: code, last_output=lambda _size: "")

    def ask(*_asked: Any) -> None:
        raise error

    monkeypatch.setattr(SparkHost, "_looked", ask)
    ours, theirs = socket.socketpair()
    with ours, theirs:
        host = SparkHost(driver, SimpleNamespace(), ours, SystemClock(), SeededEntropy(1))  # type: ignore[arg-type]  # no archive
        host._answer({"id": 7, "operation": "stream", "arguments": {}})
        answer = frames.receive_frame(theirs)
    assert answer is not None
    assert answer["id"] == 7
    assert answer["error"].startswith(said)
