"""Whose signal ended a task's process: one of its own is the user's doing, of the attempt that has sent it (R36)."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio

from runtime.common.states import ExecutionState
from runtime.system.linux import is_alive
from tests.kit.spark.slot_work import RecordingListener, SlotBench, slot_bench

pytestmark = [pytest.mark.process, pytest.mark.asyncio(loop_scope="module")]


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def bench(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[SlotBench]:
    async with slot_bench(tmp_path_factory.mktemp("slots")) as started:
        yield started


def by_the_process(_ctx: Any) -> None:
    import os
    import signal

    os.kill(os.getpid(), signal.SIGTERM)


def by_raising(_ctx: Any) -> None:
    import signal

    signal.raise_signal(signal.SIGTERM)


def by_a_thread(_ctx: Any) -> None:
    import signal
    import threading

    signal.pthread_kill(threading.get_ident(), signal.SIGTERM)


def by_the_kernel_at_once(_ctx: Any) -> None:
    import os

    os.kill(os.getpid(), 9)


def with_its_group(_ctx: Any) -> None:
    import os

    os.kill(0, 9)


@pytest.mark.parametrize("code", [by_the_kernel_at_once, with_its_group])
async def test_a_task_that_kills_itself_is_blamed(bench: SlotBench, code: Callable[[Any], None]) -> None:
    report = await bench.run(code)
    assert report.failure is not None
    assert report.failure.message.startswith("user code ended its process with SIGKILL")
    assert report.failure.kind == "USER"


def in_a_shell(_ctx: Any) -> None:
    import subprocess

    subprocess.run("kill -9 0", shell=True, check=False)


async def test_a_kill_that_nobody_here_has_sent_says_what_it_may_be(bench: SlotBench) -> None:
    """SIGKILL leaves no word of its sender: a program of the task looks like the machine."""
    report = await bench.run(in_a_shell)
    assert report.failure is not None
    assert "killed by SIGKILL, not by this TaskManager" in report.failure.message
    assert "`kill -9 0` in a shell" in report.failure.message
    assert report.failure.kind == "RESOURCE"


@pytest.mark.parametrize("code", [by_the_process, by_raising, by_a_thread])
async def test_a_task_that_sends_itself_a_signal_is_blamed(bench: SlotBench, code: Callable[[Any], None]) -> None:
    report = await bench.run(code)
    assert report.failure is not None
    assert report.failure.message.startswith("user code ended its process with SIGTERM")


def survives_its_own(_ctx: Any) -> int:
    import os
    import signal

    signal.signal(signal.SIGTERM, lambda *_: None)
    os.kill(os.getpid(), signal.SIGTERM)
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    return os.getpid()


def sleeps(ctx: Any) -> None:
    import os
    import time

    ctx.report_progress(0.5, str(os.getpid()))
    time.sleep(1000)


async def until(predicate: Callable[[], object]) -> None:
    async with asyncio.timeout(100):
        while not predicate():
            await asyncio.sleep(0.01)


async def test_a_signal_of_an_earlier_attempt_is_not_the_next_ones(bench: SlotBench) -> None:
    first = await bench.value(bench.work(survives_its_own))
    listener, running = await bench.started(bench.work(sleeps, subtask=1))
    await until(lambda: listener.progresses.value)
    assert int(listener.progresses.value[-1].text) == first, "the process is used again"
    os.kill(first, signal.SIGTERM)
    await running
    failure = listener.terminal.failure
    assert failure is not None
    assert failure.message.endswith("which somebody has sent to it"), failure


async def test_a_cancel_ends_an_attempt_that_waits_for_a_template(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with slot_bench(tmp_path) as bench:
        template = bench.pool.template_pid
        with monkeypatch.context() as broken:
            broken.setattr(sys, "executable", "/bin/false")  # no template starts
            os.kill(template, signal.SIGKILL)
            await bench.pool.readiness.wait_until(lambda is_ready: not is_ready)
            assert not is_alive(template)
            work, listener = bench.work(sleeps), RecordingListener()
            running = asyncio.create_task(bench.pool.run(0, work, listener))
            await until(lambda: listener.progresses.value)
            assert "template process was lost" in listener.progresses.value[-1].text
            await bench.pool.cancel(0, work.task.attempt_id)
            async with asyncio.timeout(100):
                await running
            assert listener.terminal.state is ExecutionState.CANCELED
        await bench.pool.readiness.wait_until(bool)
        assert await bench.value(survives_its_own)
