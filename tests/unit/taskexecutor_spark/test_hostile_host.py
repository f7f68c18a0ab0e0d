"""A Spark host that says what is no message: Spark is lost, at once, and nothing else is (R43)."""

from __future__ import annotations

import asyncio
import os
import signal
import socket
import struct
import sys
from pathlib import Path

import pytest

from runtime.taskexecutor.spark import environment_process, host_process
from runtime.taskexecutor.spark.account import SparkAccount
from runtime.taskexecutor.spark.environment import SparkLoss, SparkLostError
from runtime.taskexecutor.spark.environment_process import ProcessSparkEnvironment
from runtime.taskexecutor.spark.host_process import SparkStartError
from runtime.taskexecutor.spark_protocol.sessions import SlotSession
from tests.kit.cluster.beside_spark import spare_account
from tests.kit.spark.spark_box import spark_settings

READY = b'{"event": "ready"}'
ANSWERS = (
    "import os, sys, time; fd = int(sys.argv[1]); os.write(fd, bytes.fromhex(sys.argv[2]))\n"
    "while os.read(fd, 4096).find(b'operation') < 0: pass\n"
    "os.write(fd, bytes.fromhex(sys.argv[3])); time.sleep(600)"
)
SESSION = b'{"session_id": "s", "port": 1, "secret": "x", "pool": "p", "directory": "d", "conf": {}}'
STARTS = (
    "import json, os, struct, sys, time\n"
    "said = json.dumps({'event': 'started', 'jvm_pid': os.getpid()}).encode()\n"
    "os.write(int(sys.argv[1]), (struct.pack('!I', len(said)) + said) * 200); time.sleep(600)"
)
SAYS = "import os, sys, time; os.write(int(sys.argv[1]), open(sys.argv[2], 'rb').read()); time.sleep(600)"


def frame(body: bytes) -> bytes:
    return struct.pack("!I", len(body)) + body


@pytest.mark.asyncio
@pytest.mark.parametrize(
    "said",
    [
        b"\xff" * 100,
        frame(b"no JSON"),
        frame(b"[]"),
        frame(b"[" * 50_000),
        frame(b'{"event": "started"}'),
        frame(b'{"event": "started", "jvm_pid": []}'),
        frame(b'{"id": "x"}'),
    ],
)
async def test_it_is_lost(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, said: bytes) -> None:
    async def launch(_: object, theirs: socket.socket) -> asyncio.subprocess.Process:
        (tmp_path / "said").write_bytes(said)
        arguments = (sys.executable, "-c", SAYS, str(theirs.fileno()), str(tmp_path / "said"))
        return await asyncio.create_subprocess_exec(*arguments, pass_fds=(theirs.fileno(),))

    monkeypatch.setattr(host_process.HostProcess, "_launch", launch)
    with pytest.raises(SparkStartError, match="said what is no message of ours"):
        await ProcessSparkEnvironment(spark_settings(tmp_path)).start()


@pytest.mark.asyncio
async def test_one_that_starts_again_and_again_takes_no_descriptors(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def launch(_: object, theirs: socket.socket) -> asyncio.subprocess.Process:
        arguments = (sys.executable, "-c", STARTS, str(theirs.fileno()))
        return await asyncio.create_subprocess_exec(*arguments, pass_fds=(theirs.fileno(),))

    monkeypatch.setattr(host_process.HostProcess, "_launch", launch)
    before = len(os.listdir("/proc/self/fd"))  # noqa: PTH208
    with pytest.raises(SparkStartError, match="for the second time"):
        await ProcessSparkEnvironment(spark_settings(tmp_path)).start()
    assert len(os.listdir("/proc/self/fd")) < before + 20  # noqa: PTH208


def answering(monkeypatch: pytest.MonkeyPatch, answer: bytes) -> None:
    """Hosts are ready at once, and say that to the first question after it."""

    async def launch(_: object, theirs: socket.socket) -> asyncio.subprocess.Process:
        words = (frame(READY).hex(), frame(b'{"id": 1, "value": ' + answer + b"}").hex())
        arguments = (sys.executable, "-c", ANSWERS, str(theirs.fileno()), *words)
        return await asyncio.create_subprocess_exec(*arguments, pass_fds=(theirs.fileno(),))

    monkeypatch.setattr(host_process.HostProcess, "_launch", launch)


@pytest.mark.asyncio
@pytest.mark.parametrize("answer", [b"1", b"[]", b"{}", SESSION.replace(b"1", b"[]"), SESSION.replace(b'"s"', b"{}")])
async def test_what_is_no_session_costs_spark_only(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, answer: bytes
) -> None:
    answering(monkeypatch, answer)
    environment = ProcessSparkEnvironment(spark_settings(tmp_path))
    await environment.start()
    with pytest.raises(SparkLostError, match="answer to open_session is none"):
        await environment.open_session(0)
    assert "answer to open_session is none" in (await environment.wait_lost()).reason
    await environment.stop()


@pytest.mark.asyncio
async def test_a_session_is_taken(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    answering(monkeypatch, SESSION)
    environment = ProcessSparkEnvironment(spark_settings(tmp_path))
    await environment.start()
    assert await environment.open_session(0) == SlotSession("s", 1, "x", "p", "d", {})
    await environment.stop()


@pytest.mark.asyncio
@pytest.mark.parametrize("said", [b'{"s": {"jobs_active": 1e300}}', b'{"s": {"jobs_active": -1}}', b'{"s": [1]}', b"7"])
async def test_what_is_no_progress_costs_spark_only(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, said: bytes
) -> None:
    answering(monkeypatch, said)
    environment = ProcessSparkEnvironment(spark_settings(tmp_path))
    await environment.start()
    with pytest.raises(SparkLostError, match="answer to progress is none"):
        await environment.progress()
    await environment.stop()


@pytest.mark.asyncio
@pytest.mark.skipif(os.geteuid() != 0 or not spare_account(range(0)), reason="takes root, and a spare account")
async def test_it_has_no_process_of_another_user_ended(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """R50: the TaskManager ends what the host says its JVM is, and is root where the host is an account."""
    account = SparkAccount.named(spare_account(range(0)), (23300, 23301), (), 0o002)
    other = await asyncio.create_subprocess_exec("sleep", "600")
    said = frame(b'{"event": "started", "jvm_pid": %d}' % other.pid)

    async def launch(_: object, theirs: socket.socket) -> asyncio.subprocess.Process:
        arguments = (sys.executable, "-c", ANSWERS, str(theirs.fileno()), said.hex(), "")
        return await asyncio.create_subprocess_exec(*arguments, pass_fds=(theirs.fileno(),))

    monkeypatch.setattr(host_process.HostProcess, "_launch", launch)
    (tmp_path / "log").mkdir()
    with pytest.raises(SparkStartError, match="it is not its user's"):
        await ProcessSparkEnvironment(spark_settings(tmp_path), account=account).start()
    other.terminate()
    assert await other.wait() == -signal.SIGTERM, "nothing else has ended it"


SILENT = "import os, sys, time; os.write(int(sys.argv[1]), bytes.fromhex(sys.argv[2])); time.sleep(600)"


@pytest.mark.asyncio
async def test_a_host_that_does_not_say_its_stacks_stays(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """R48: whoever looks into a process ends nothing by it."""

    async def launch(_: object, theirs: socket.socket) -> asyncio.subprocess.Process:
        arguments = (sys.executable, "-c", SILENT, str(theirs.fileno()), frame(READY).hex())
        return await asyncio.create_subprocess_exec(*arguments, pass_fds=(theirs.fileno(),))

    monkeypatch.setattr(host_process.HostProcess, "_launch", launch)
    monkeypatch.setattr(environment_process, "_STACKS_TIMEOUT", 0.1)
    environment = ProcessSparkEnvironment(spark_settings(tmp_path))
    assert await environment.thread_dump() == "the JVM is not ready"
    await environment.start()
    try:
        assert "no answer in 0.1 s" in await environment.thread_dump()
        assert environment.is_ready
    finally:
        await environment.end(SparkLoss("the test ends"))


@pytest.mark.asyncio
@pytest.mark.parametrize("answer", [b"[1, {}]", b"null", b'"a stack"', b"7"])
async def test_any_answer_is_a_text(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, answer: bytes) -> None:
    answering(monkeypatch, answer)
    environment = ProcessSparkEnvironment(spark_settings(tmp_path))
    await environment.start()
    try:
        assert isinstance(await environment.thread_dump(), str)
        assert environment.is_ready
    finally:
        await environment.end(SparkLoss("the test ends"))
