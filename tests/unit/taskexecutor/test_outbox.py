"""What leaves at once, and what may wait for company."""

from __future__ import annotations

from typing import Any

from runtime.common.states import ExecutionState
from runtime.gateways.job_master import TaskReports
from runtime.taskexecutor.connections.outbox import Outbox
from runtime.taskexecutor.core.events import SendReport
from tests.kit.control_plane.task_messages import allocation_id, incarnation, report

OWNER = incarnation(7)


def flush(outbox: Outbox) -> list[Any]:
    told: list[Any] = []
    outbox.flush(lambda owner, message: told.append(message), told.append)
    return told


def test_running_waits_for_the_end_and_travels_with_it() -> None:
    outbox = Outbox()
    running, finished = report(1, 0, ExecutionState.RUNNING), report(1, 0)
    outbox.add_report(SendReport(OWNER, 1, running))
    assert (outbox.is_empty, outbox.is_urgent) == (False, False)
    outbox.add_report(SendReport(OWNER, 1, finished))
    assert (outbox.is_empty, outbox.is_urgent) == (False, True)
    assert flush(outbox) == [TaskReports(running.attempt_id.job_id, 1, (running, finished))]
    assert (outbox.is_empty, outbox.is_urgent) == (True, False)


def test_a_freed_slot_is_urgent() -> None:
    outbox = Outbox()
    outbox.add_freed(allocation_id(1))
    assert outbox.is_urgent
    assert len(flush(outbox)) == 1
