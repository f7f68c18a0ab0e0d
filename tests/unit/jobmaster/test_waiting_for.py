"""What a JobMaster waits for: TaskManagers that it cannot reach, and the reason that users see."""

from __future__ import annotations

from runtime.common.ids import Incarnation, JobId
from runtime.common.states import JobStatus
from runtime.common.waiting import NOT_WAITING, Waiting, WaitingKind
from runtime.executiongraph.core.execution import TaskManagerLocation
from runtime.gateways.job_master import CommitProgress, SlotsDraining
from runtime.heartbeat.core.monitor import HeartbeatTiming
from runtime.jobmaster.core.absences import Absences
from runtime.jobmaster.core.reasons import Reasons
from runtime.jobmaster.core.recovery import Recovery
from runtime.scheduler.core import events as ev
from runtime.scheduler.core.events import Moment


def test_a_task_manager_that_was_never_away_may_report_and_be_forgotten() -> None:
    absences = Absences(HeartbeatTiming(1.0, 5.0))
    present = Incarnation("a" * 32)
    absences.heard(present, 1.0)
    absences.counted(present, JobId("b" * 32))
    absences.forget(present)


def test_a_store_that_does_not_answer_is_the_reason_whatever_else_is_missing() -> None:
    reasons = Reasons()
    assert reasons.pending(JobStatus.SUSPENDED, None) == NOT_WAITING
    reasons.store = Waiting(WaitingKind.STORE, "waiting for etcd")
    assert reasons.pending(JobStatus.SUSPENDED, None) == reasons.store


def test_progress_is_none_of_what_a_recovery_collects() -> None:
    recovery, at, job = Recovery(), Moment(0.0, 0), JobId("b" * 32)
    mover = TaskManagerLocation(Incarnation("c" * 32), "tm-c", "host:1")
    recovery.take(ev.TaskManagerSpoke(mover, CommitProgress(job, 1, 1, 2, 3, ""), at))
    recovery.take(ev.TaskManagerLost(Incarnation("a" * 32), "silent", at))
    recovery.take(ev.TaskManagerSpoke(mover, SlotsDraining(job, 1, (), "it drains"), at))
    assert recovery.waiting == Waiting(WaitingKind.LOADING, "reading what the job's last owner wrote")
