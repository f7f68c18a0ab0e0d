"""A script whose job was stopped with a savepoint, and that does not end, is killed and has FINISHED."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from runtime.aio.clock import SystemClock
from runtime.common.states import ExecutionState
from runtime.taskexecutor.attempt_logs.log_files import attempt_directory
from runtime.taskexecutor.slots.running_attempt import RunningAttempt
from runtime.taskexecutor.slots.template_handle import ProcessExit
from tests.kit.spark.slot_work import RecordingListener, slot_work

KILLED = ProcessExit(-9, 0, 0)
SOON = 0.01


class Process:
    """It is killed only."""

    def __init__(self) -> None:
        self.killed = asyncio.Event()
        self.kills = 0
        self.has_signalled_template = self.is_above_its_group = False
        self.refusal, self.own_signals = "", frozenset[int]()

    def kill(self) -> None:
        self.kills += 1
        self.killed.set()


def attempt(directory: Path) -> tuple[RunningAttempt, Any]:
    work = slot_work(directory, "json:dumps")
    attempt_directory(work.log_directory, work.task.attempt_id).mkdir(parents=True)
    running = RunningAttempt(work, RecordingListener(), SystemClock())
    process: Any = Process()
    running.process = process
    return running, process


@pytest.mark.asyncio
async def test_one_that_does_not_end_is_killed_and_has_finished(tmp_path: Path) -> None:
    running, process = attempt(tmp_path)
    running.stop(SOON)
    running.stop(SOON)
    await process.killed.wait()
    report = running.report_of(KILLED)
    assert (report.state, report.failure, process.kills) == (ExecutionState.FINISHED, None, 1)
    directory = attempt_directory(running.work.log_directory, running.attempt_id)
    assert "has not ended within 0.01 s after its job was stopped" in await asyncio.to_thread(
        (directory / "stderr").read_text
    )


@pytest.mark.asyncio
async def test_what_ends_before_is_what_it_says_and_its_process_is_not_touched(tmp_path: Path) -> None:
    running, process = attempt(tmp_path)
    running.stop(SOON)
    report = running.report_of(KILLED)
    assert report.state is ExecutionState.FAILED, "it was killed by somebody else: it runs again, and ends at once"
    running.tell_terminal(report)
    await asyncio.sleep(3 * SOON)
    assert process.kills == 0


@pytest.mark.asyncio
async def test_a_failure_of_ours_and_a_cancel_stay_what_they_are(tmp_path: Path) -> None:
    for number, is_cancelled in enumerate((True, False)):
        running, process = attempt(tmp_path / str(number))
        running.stop(SOON)
        await process.killed.wait()
        if is_cancelled:
            running.is_cancelled = True
        else:
            running.kill(replace(running.system_failure("isolated"), is_isolation=True))
        expected = ExecutionState.CANCELED if is_cancelled else ExecutionState.FAILED
        assert running.report_of(KILLED).state is expected
