"""Reports are kept until acknowledged (R10), commands are known by attempt id until the job leaves (R11)."""

from __future__ import annotations

import pytest

from runtime.common.fsm import IllegalTransitionError
from runtime.common.states import ExecutionState
from runtime.taskexecutor.core.reports import (
    ATTEMPT_TRANSITIONS,
    MESSAGE_SIZE_BYTES_MAX,
    AttemptLedger,
    AttemptState,
    messages_of,
    report_size_bytes,
)
from tests.kit.control_plane.task_messages import attempt_id, job_id, report

ATTEMPT = attempt_id(1, 0)


def ledger_with(state: AttemptState) -> AttemptLedger:
    ledger = AttemptLedger(reports_max=100, bytes_max=1 << 20)
    ledger.add(ATTEMPT)
    if state is not AttemptState.WAITING:
        ledger.start(ATTEMPT)
    if state is AttemptState.CANCELING:
        ledger.cancel(ATTEMPT)
    if state in {AttemptState.REPORTED, AttemptState.ACKNOWLEDGED}:
        ledger.record(report(1, 0))
    if state is AttemptState.ACKNOWLEDGED:
        ledger.acknowledge(ATTEMPT)
    assert ledger.state(ATTEMPT) is state
    ledger.check_invariants()
    return ledger


LEGAL = set(ATTEMPT_TRANSITIONS.arcs())


@pytest.mark.parametrize("source", AttemptState)
@pytest.mark.parametrize("target", AttemptState)
def test_every_arc_is_either_in_the_table_or_refused(source: AttemptState, target: AttemptState) -> None:
    ledger = ledger_with(source)
    if (source, target) in LEGAL:
        ledger._move(ATTEMPT, target)
        assert ledger.state(ATTEMPT) is target
    else:
        with pytest.raises(IllegalTransitionError, match=target.name):
            ledger._move(ATTEMPT, target)


@pytest.mark.parametrize("state", AttemptState)
def test_a_repeated_command_is_recognised_in_every_state(state: AttemptState) -> None:
    assert not ledger_with(state).add(ATTEMPT)  # R11


@pytest.mark.parametrize(
    ("state", "is_news"),
    [
        (AttemptState.WAITING, True),
        (AttemptState.STARTED, True),
        (AttemptState.CANCELING, True),
        (AttemptState.REPORTED, False),
        (AttemptState.ACKNOWLEDGED, False),
    ],
)
def test_only_the_first_terminal_report_counts(state: AttemptState, *, is_news: bool) -> None:
    ledger = ledger_with(state)
    assert ledger.record(report(1, 0, ExecutionState.FAILED)) is is_news
    ledger.check_invariants()


def test_a_report_of_an_unknown_attempt_is_no_news() -> None:
    assert not ledger_with(AttemptState.STARTED).record(report(7, 0))


def test_reports_stay_pending_until_they_are_acknowledged() -> None:
    ledger = ledger_with(AttemptState.STARTED)
    ledger.record(report(1, 0, ExecutionState.RUNNING))
    assert [kept.state for kept in ledger.pending(job_id(1))] == [ExecutionState.RUNNING]
    ledger.record(report(1, 0))
    assert [kept.state for kept in ledger.pending(job_id(1))] == [ExecutionState.FINISHED]
    assert ledger.acknowledge(ATTEMPT)
    assert not ledger.acknowledge(ATTEMPT)
    assert not ledger.pending(job_id(1))
    assert ledger.kept == 0


@pytest.mark.parametrize("state", [AttemptState.WAITING, AttemptState.STARTED, AttemptState.CANCELING])
def test_an_acknowledgement_before_the_report_changes_nothing(state: AttemptState) -> None:
    ledger = ledger_with(state)
    assert not ledger.acknowledge(ATTEMPT)
    assert ledger.state(ATTEMPT) is state


def fill(ledger: AttemptLedger, *subtasks: int, value: bytes = b"null") -> bool:
    for subtask in subtasks:
        ledger.add(attempt_id(1, subtask))
        ledger.record(report(1, subtask, value=value))
    return ledger.has_room


def test_there_is_no_room_above_the_number_of_reports() -> None:
    ledger = AttemptLedger(reports_max=2, bytes_max=10_000)
    assert fill(ledger, 0)
    assert not fill(ledger, 1)
    ledger.acknowledge(attempt_id(1, 0))
    assert fill(ledger)


def test_there_is_no_room_above_the_bytes_of_reports_until_the_job_ends() -> None:
    ledger = AttemptLedger(reports_max=10, bytes_max=10_000)
    assert not fill(ledger, 0, value=b"x" * 10_000)
    ledger.end_job(job_id(1))
    assert fill(ledger)
    assert ledger.is_empty(job_id(1))
    ledger.check_invariants()


def test_reports_are_split_into_messages_by_size_in_order() -> None:
    reports = [report(1, subtask, value=b"x" * 300_000) for subtask in range(10)]
    groups = list(messages_of(reports, report_size_bytes))
    assert [entry for group in groups for entry in group] == reports
    assert len(groups) == 4
    assert all(sum(map(report_size_bytes, group)) <= MESSAGE_SIZE_BYTES_MAX for group in groups)


def test_a_report_above_the_size_travels_alone() -> None:
    huge = report(1, 0, value=b"x" * (MESSAGE_SIZE_BYTES_MAX + 1))
    groups = messages_of([report(1, 1), huge, report(1, 2)], report_size_bytes)
    assert list(groups) == [(report(1, 1),), (huge,), (report(1, 2),)]
