"""The command line, and what Airflow's workers and triggerers run, against a false JobManager over real sockets.

The first byte says who asks, the second which of his requests is answered with the rest: as the body of an answer, or,
with the highest bit of the first, as all that comes over the connection. The other answers are right. Each command ends
with one of its exit codes, and says in a sentence what is wrong; each caller hears an error of the client's own.
"""

from __future__ import annotations

import asyncio
import io
import json
import logging
import os
import signal
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, redirect_stderr, redirect_stdout, suppress
from pathlib import Path
from types import FrameType

from airflow_flinklike.cli.__main__ import main
from airflow_flinklike.client import AsyncFlinklikeClient, FlinklikeClient, JobState, operations
from airflow_flinklike.client.shared_poll import SharedPoll
from airflow_flinklike.exceptions import FlinklikeClientError, JobCanceledError, JobFailedError
from airflow_flinklike.task_instance.observation import AsyncJobObserver, JobObserver, LogSettings
from airflow_flinklike.task_instance.outlets import written
from airflow_flinklike.triggers.conditions import ClusterWish, JobWish, look_at_cluster, look_at_job
from runtime.common.states import JobStatus
from tests.fuzz.surface import MIB, Surface
from tests.kit.control_plane.job_graphs import lone
from tests.kit.rest.fakes import JOB, JOB_MASTER
from tests.kit.strangers.false_job_manager import TOKEN, FalseJobManager

_WALL_SECONDS = 60
_RAW = 0x80
_CODES = {0, 1, 130}
_VERTEX = f"{1:032x}"
_COMMANDS: tuple[tuple[str, ...], ...] = (
    ("list",),
    ("list", "--json", "--state", "finished"),
    ("info", JOB),
    ("info", JOB, "--json"),
    ("status", JOB),
    ("logs", JOB),
    ("logs", JOB, "--vertex", "read", "--subtask", "0", "--attempt", "0", "--json"),
    ("logs", JOB, "-f"),
    ("cancel", JOB),
    ("taskmanagers",),
    ("taskmanagers", "drain", "tm-1"),
    ("jobmasters",),
    ("jobs", "move", JOB, "--to", JOB_MASTER),
    ("tokens",),
    ("tokens", "create", "x", "--role", "viewer"),
    ("tokens", "rotate", "x"),
    ("tokens", "revoke", "x"),
    ("run", "--job-id", "9" * 32, "script.py"),
    ("run", "--job-id", "8" * 32, "--json", "script.py"),
)


def _observed(client: FlinklikeClient) -> object:
    observer = JobObserver(logging.getLogger("fuzz"), settings=LogSettings(10_000, "http://x/"), clock=lambda: 1e9)
    observer.observe(client, JobState(JOB, JobStatus.RUNNING, 1, ""))
    observer.observe(client, JobState(JOB, JobStatus.FINISHED, 2, ""))
    kept = json.loads(json.dumps(observer.bookmark()))
    JobObserver(logging.getLogger("fuzz"), kept, clock=lambda: 1e9).observe(
        client, JobState(JOB, JobStatus.FINISHED, 3, "")
    )
    return None


_WISH = JobWish(frozenset({JobStatus.RUNNING}), None, "daily")
_WORKERS: tuple[Callable[[FlinklikeClient], object], ...] = (
    lambda client: client.submit(lone(), job_id=JOB),
    lambda client: client.wait_for_result(JOB).value_or_raise(),
    _observed,
    lambda client: client.run(look_at_job(_WISH)),
    lambda client: client.run(look_at_cluster(ClusterWish(1, has_spark=True))),
    lambda client: written(client.get(f"/jobs/{JOB}")),
    lambda client: client.cancel(JOB),
    lambda client: client.heartbeat(JOB, 1),
)


async def _triggered(client: AsyncFlinklikeClient) -> object:
    observer = AsyncJobObserver(logging.getLogger("fuzz"), {"log": {"limit": 9, "pages": ""}}, clock=lambda: 1e9)
    await observer.observe(client, JobState(JOB, JobStatus.RUNNING, 1, ""))
    return observer.bookmark()


async def _polled(address: str) -> object:
    async def look_up() -> str:
        return address

    poll = SharedPoll(look_up, _connected, gather=0.0, linger=0.0)
    return await poll.wait(JOB, 0, 5.0, patience=0.0)


async def _waited(client: AsyncFlinklikeClient) -> object:
    return await client.run(operations.wait_for_news({JOB: 1}, wait=0, name="x"))


_TRIGGERS = (_triggered, _waited)
_ASKERS = len(_COMMANDS) + len(_WORKERS) + len(_TRIGGERS) + 1


def _connected(address: str) -> AsyncFlinklikeClient:
    return AsyncFlinklikeClient([address], TOKEN, retry_for=1.0, sleep=_no_pause)


async def _no_pause(_: float) -> None:
    await asyncio.sleep(0)


def _told(arguments: Sequence[str]) -> str:
    """The command in this process, as the console script runs it. How it ended."""
    out, err = (io.TextIOWrapper(io.BytesIO(), encoding="utf-8", write_through=True) for _ in range(2))
    sys.argv = ["flinklike", *arguments]
    code: object = 0
    with redirect_stdout(out), redirect_stderr(err):
        try:
            main()
        except SystemExit as ended:
            code = ended.code or 0
    said = err.buffer.getvalue().decode()
    assert code in _CODES, (code, said)
    assert "Traceback" not in said, said
    assert code != 1 or said.strip(), "it does not say why"
    assert code != 1 or arguments[0] == "run" or said.splitlines()[-1].startswith("flinklike: "), said
    return f"{code} {said.splitlines()[-1][:60] if said else ''}"


def _begin() -> Callable[[bytes], object]:
    false = FalseJobManager().__enter__()
    _false.append(false)
    home = Path(tempfile.mkdtemp(prefix="fuzz-cli."))
    (home / "script.py").write_text("print(1)\n")
    os.chdir(home)
    os.environ |= {"FLINKLIKE_ADDRESS": false.address, "FLINKLIKE_TOKEN": TOKEN, "FLINKLIKE_HOME": str(home)}
    # Of the command line's client: its budget is counted, not waited for.
    (FlinklikeClient.__init__.__kwdefaults__ or {})["sleep"] = lambda _: None

    def feed(data: bytes) -> object:
        data += bytes(max(0, 2 - len(data)))
        is_raw, who, turn, rest = bool(data[0] & _RAW), data[0] & ~_RAW, data[1] % 8, data[2:]
        false.begin_series(turn, answer=rest if is_raw else None, instead=None if is_raw else rest)
        with _within_wall_time():
            return _asked(false, who % _ASKERS)

    return feed


def _asked(false: FalseJobManager, who: int) -> object:
    if who < len(_COMMANDS):
        return _told(_COMMANDS[who])
    who -= len(_COMMANDS)
    try:
        if who < len(_WORKERS):
            with FlinklikeClient([false.address], TOKEN, retry_for=1.0) as client:
                return type(_WORKERS[who](client)).__name__
        return type(asyncio.run(_triggers(false.address, who - len(_WORKERS)))).__name__
    except (JobFailedError, JobCanceledError) as error:
        return type(error).__name__


async def _triggers(address: str, who: int) -> object:
    if who >= len(_TRIGGERS):
        return await _polled(address)
    async with _connected(address) as client:
        return await _TRIGGERS[who](client)


@contextmanager
def _within_wall_time() -> Iterator[None]:
    """Whoever waits takes no processor time, which is what a campaign bounds."""

    def late(_number: int, _frame: FrameType | None) -> None:
        message = "it waits for longer than its time"
        raise AssertionError(message)

    before, begun = signal.signal(signal.SIGALRM, late), time.monotonic()
    signal.setitimer(signal.ITIMER_REAL, _WALL_SECONDS)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
    assert time.monotonic() - begun < _WALL_SECONDS


def _seeds() -> Sequence[bytes]:
    """What the real one answers to each request of each command, and a few whole answers."""
    feed, seeds = _begin(), []
    false = _false[-1]
    for who in range(_ASKERS):
        with suppress(FlinklikeClientError):
            feed(bytes([who, 7]))
        seeds += [bytes([who, turn]) + body for turn, body in enumerate(false.told[:7])]
    whole = (
        b"HTTP/1.1 302 Found\r\nlocation: http://127.0.0.1:1/x\r\ncontent-length: 2\r\n\r\n{}",
        b"HTTP/1.1 200 OK\r\ncontent-length: 99999999999\r\n\r\n{",
        b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n2\r\n{}\r\n0\r\n\r\n",
        b"HTTP/1.1 200 OK\r\ncontent-encoding: gzip\r\ncontent-length: 2\r\n\r\n{}",
        b"HTTP/1.1 429 Busy\r\nretry-after: 1\r\ncontent-length: 0\r\n\r\n",
        b"HTTP/1.1 100 Continue\r\n\r\n" * 20 + b"HTTP/1.1 204 None\r\n\r\n",
        b"\x15\x03\x01\x00\x02\x02\x28",
    )
    return [*seeds, *(bytes([_RAW | number, 0]) + one for number, one in enumerate(whole))]


_false: list[FalseJobManager] = []

SURFACES = (
    Surface(
        "false-job-manager",
        _begin,
        _seeds,
        (FlinklikeClientError,),
        prefix=2,
        cpu_seconds=10.0,
        peak_bytes=64 * MIB,
        growth_bytes=96 * MIB,
        tokens=(b"\r\n", b"Location: http://other/\r\n", b"HTTP/1.1 ", b'"jobs"', b"null", b"\r\n\r\n"),
        smoke_inputs=100,
    ),
)
