"""How many jobs of one principal, and of one namespace, may be unfinished at once (R49)."""

from __future__ import annotations

from dataclasses import replace

from runtime.common.errors import BackpressureError
from runtime.common.states import JobStatus
from runtime.dispatcher.core import effects as ef
from runtime.dispatcher.core import events as ev
from runtime.dispatcher.core.jobs import JobRegistry
from runtime.dispatcher.core.submits import JobRegistryLimits
from tests.kit.control_plane.process_events import process_registered
from tests.unit.dispatcher.test_job_registry import P1, RETENTION, ended, job, source


def registry(**limits: int) -> JobRegistry:
    made = JobRegistry(JobRegistryLimits(100, 100, **limits), RETENTION)
    made.handle(process_registered(P1, "1:1", 100, "v"))
    return made


def submit(made: JobRegistry, number: int, submitter: str, namespace: str = "team-a", *, is_stored: bool = True) -> str:
    """Why it was refused, "" if it was not."""
    theirs = replace(source(number), submitter=submitter, namespace=namespace)
    effects = made.handle(ev.SubmitRequested(number, theirs))
    refused = [effect for effect in effects if isinstance(effect, ef.Refuse)]
    if refused:
        assert isinstance(refused[0].error, BackpressureError)
        assert refused[0].error.retry_after > 0
        return str(refused[0].error)
    if is_stored:
        made.handle(ev.SubmitStored(job(number), 7, ""))
    return ""


def test_one_principal_leaves_room_to_others() -> None:
    made = registry(principal_jobs_max=2)
    assert [submit(made, 1, "sam"), submit(made, 2, "sam", "team-b")] == ["", ""]
    assert "sam has 2 jobs that are not finished" in submit(made, 3, "sam")
    assert submit(made, 4, "sue") == ""
    ended(made, 1)
    assert submit(made, 5, "sam") == ""


def test_one_namespace_leaves_room_to_others() -> None:
    made = registry(namespace_jobs_max=2)
    assert [submit(made, 1, "sam"), submit(made, 2, "sue")] == ["", ""]
    assert "2 jobs of the namespace team-a" in submit(made, 3, "tom")
    assert submit(made, 4, "sam", "team-b") == ""


def test_submits_that_are_being_stored_count() -> None:
    made = registry(principal_jobs_max=2)
    assert [submit(made, number, "sam", is_stored=False) for number in (1, 2)] == ["", ""]
    assert submit(made, 3, "sam")
    made.handle(ev.SubmitFailed(job(1), BackpressureError("not now", retry_after=1.0)))
    assert submit(made, 4, "sam") == ""
    assert submit(made, 5, "sam")
    made.handle(ev.SubmitStored(job(2), 7, ""))
    assert submit(made, 6, "sam"), "one that is stored is not counted twice, nor forgotten"


def test_a_job_that_is_there_is_answered_however_many_there_are() -> None:
    made = registry(principal_jobs_max=1)
    assert submit(made, 1, "sam") == ""
    again = replace(source(1), submitter="sam", namespace="team-a")
    (effect,) = made.handle(ev.SubmitRequested(9, again))
    assert isinstance(effect, ef.ReplySubmitted)


def test_those_of_an_earlier_term_count() -> None:
    made = registry(principal_jobs_max=1)
    stored = replace(source(1), submitter="sam", namespace="team-a")
    made.recover([ev.RecoveredJob(stored, 7, None, wants_cancel=False, ended=None)], [])
    assert submit(made, 2, "sam")
    assert made.shown.counts()[JobStatus.INITIALIZING] == 1


def test_there_are_only_so_many_queues_at_once() -> None:  # D-128
    made = registry(queues_max=2)

    def into(queue: str, number: int, *, is_stored: bool = True) -> str:
        (effect, *_) = made.handle(ev.SubmitRequested(number, replace(source(number), queue=queue)))
        if is_stored and not isinstance(effect, ef.Refuse):
            made.handle(ev.SubmitStored(job(number), 7, ""))
        return str(effect.error) if isinstance(effect, ef.Refuse) else ""

    assert [into("a", 1), into("b", 2, is_stored=False), into("a", 3), into("b", 4)] == [""] * 4
    assert "2 queues have jobs that are not finished, and c would be one more" in into("c", 5)
    ended(made, 1)
    assert into("c", 6), "job 3 is still there"
    ended(made, 3)
    assert into("c", 7) == ""
