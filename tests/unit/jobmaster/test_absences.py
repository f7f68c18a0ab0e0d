"""When a TaskManager whose stream has ended counts as lost (R18, R4)."""

from __future__ import annotations

from runtime.common.ids import Incarnation, JobId
from runtime.heartbeat.core.monitor import HeartbeatTiming
from runtime.jobmaster.core.absences import Absences

TM = Incarnation("1" * 32)
OTHER = Incarnation("2" * 32)
A, B = JobId("a" * 32), JobId("b" * 32)


def absences(*jobs: JobId, last_heard: float = 100.0) -> Absences:
    made = Absences(HeartbeatTiming(interval=2.0, timeout=10.0))
    made.begin(TM, "host:1", "the stream was closed", jobs, last_heard)
    return made


def test_it_is_lost_when_it_was_silent_for_the_timeout() -> None:
    found = absences(A)
    assert found.overdue(109.9) == []
    ((lost, jobs),) = found.overdue(110.0)
    assert (lost.incarnation, lost.reason, jobs) == (TM, "the stream was closed", (A,))
    assert found.overdue(200.0) == [], "it is said once"


def test_who_has_told_everything_is_not_lost() -> None:
    found = absences(A, B)
    found.counted(TM, A)
    assert [jobs for _, jobs in found.overdue(110.0)] == [(B,)]


def test_whoever_is_back_has_the_whole_timeout_to_tell() -> None:
    found = absences(A)
    found.heard(TM, 109.0)
    assert found.overdue(118.9) == []
    assert [one.incarnation for one, _ in found.overdue(119.0)] == [TM]


def test_a_second_absence_adds_its_jobs_and_a_later_sign_of_life() -> None:
    found = absences(A)
    found.begin(TM, "host:1", "again", [B], 105.0)
    assert found.overdue(114.9) == []
    ((lost, jobs),) = found.overdue(115.0)
    assert (lost.reason, jobs) == ("again", (A, B))


def test_an_observer_that_was_late_gives_everybody_the_whole_timeout() -> None:  # R4
    found = absences(A)
    found.rearm(130.0)
    found.begin(OTHER, "host:2", "it was away while we were", [B], 95.0)
    assert found.overdue(139.9) == []
    assert {one.incarnation for one, _ in found.overdue(140.0)} == {TM, OTHER}


def test_whom_no_job_has_used_is_not_awaited() -> None:
    found = absences()
    assert found.overdue(1000.0) == []
    found = absences(A)
    found.forget_job(A)
    assert found.overdue(1000.0) == []


def test_who_does_not_speak_by_itself_is_asked() -> None:
    found = absences(A)
    assert found.unanswered(100.9) == []
    assert [one.address for one in found.unanswered(101.0)] == ["host:1"]
    found.counted(TM, A)
    assert found.unanswered(105.0) == []


def test_the_dead_are_not_awaited() -> None:  # R13
    found = absences(A)
    found.forget(TM)
    assert found.overdue(1000.0) == []


def test_whoever_counts_as_lost_is_asked_until_it_has_said_what_it_has() -> None:  # R7: no use before
    found = absences(A)
    found.overdue(110.0)
    assert [one.address for one in found.unanswered(500.0)] == ["host:1"]
    found.begin(TM, "host:1", "again", [A, B], 500.0)
    assert [jobs for _, jobs in found.overdue(510.0)] == [(B,)], "it is lost for A already"
    found.counted(TM, A)
    found.counted(TM, B)
    assert found.unanswered(600.0) == []
