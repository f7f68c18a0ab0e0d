"""What the TaskManager keeps of the numbers that an attempt tells (R57)."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from runtime.aio.clock import SystemClock
from runtime.common.accumulators import AccumulatorKind, UserAccumulator
from runtime.common.spark_environments import DEFAULT_ENVIRONMENT
from runtime.common.states import ExecutionState
from runtime.gateways.task import TaskMetrics
from runtime.taskexecutor.slot_protocol.wire import FrameError, TaskOutcome, encode_accumulators, encode_outcome
from runtime.taskexecutor.slots import slot_message_checks as said
from runtime.taskexecutor.slots.running_attempt import RunningAttempt
from runtime.taskexecutor.slots.template_handle import ProcessExit
from tests.kit.spark.slot_work import RecordingListener, slot_work

ROWS = (UserAccumulator("rows", AccumulatorKind.COUNTER, 3),)
KILLED = ProcessExit(-9, 0, 0)


def attempt(directory: Path) -> tuple[RunningAttempt, RecordingListener]:
    listener = RecordingListener()
    return RunningAttempt(slot_work(directory, "json:dumps"), listener, SystemClock()), listener


def test_what_a_killed_attempt_had_told_is_in_its_report(tmp_path: Path) -> None:
    running, listener = attempt(tmp_path)
    running.tell_accumulators(ROWS)
    running.tell_reported_progress(0.5, "half")
    assert [one.accumulators for one in listener.progresses.value] == [ROWS, ROWS]
    assert running.report_of(KILLED).accumulators == ROWS


def test_a_script_that_begins_again_elsewhere_begins_at_nothing(tmp_path: Path) -> None:
    running, _ = attempt(tmp_path)
    running.begin()
    running.tell_accumulators(ROWS)
    running.move(DEFAULT_ENVIRONMENT)
    assert running.report_of(KILLED).accumulators == ()


def test_an_outcome_counts_what_an_attempt_can() -> None:
    many = tuple(UserAccumulator(str(number), AccumulatorKind.COUNTER, 1) for number in range(101))
    nothing = TaskOutcome(ExecutionState.FINISHED, None, b"", (), (), TaskMetrics(), True, True, False)
    assert said.outcome(encode_outcome(replace(nothing, accumulators=many[:100]))).accumulators == many[:100]
    with pytest.raises(FrameError, match="100 are the most"):
        said.outcome(encode_outcome(replace(nothing, accumulators=many)))
    with pytest.raises(FrameError, match="100 are the most"):
        said.accumulators(encode_accumulators(many))
