"""Jobs that keep the state of their queries under a name: one at a time has it (R59)."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from runtime.common.errors import ConflictError, UnavailableError
from runtime.common.states import JobStatus
from runtime.dispatcher.core import effects as ef
from runtime.dispatcher.core import events as ev
from runtime.dispatcher.core.jobs import JobRegistry
from runtime.dispatcher.core.submits import JobRegistryLimits
from runtime.dispatcher.stored_jobs import recovered_job
from runtime.highavailability.jobs.job_reader import EMPTY_GRAPH
from runtime.highavailability.records import GraphRecord, Payload, StoredJob
from tests.kit.control_plane.process_events import process_registered
from tests.unit.dispatcher.test_job_registry import P1, RETENTION, ended, job, source


def registry() -> JobRegistry:
    made = JobRegistry(JobRegistryLimits(100, 100), RETENTION)
    made.handle(process_registered(P1, "1:1", 100, "v"))
    return made


def submit(made: JobRegistry, number: int, name: str = "orders", namespace: str = "a", *, stored: bool = True) -> str:
    """Why it was refused, "" if it was not."""
    theirs = replace(source(number), checkpoint_name=name, namespace=namespace)
    effects: list[Any] = made.handle(ev.SubmitRequested(number, theirs))
    if refused := [effect.error for effect in effects if isinstance(effect, ef.Refuse)]:
        assert isinstance(refused[0], ConflictError)
        return str(refused[0])
    if stored:
        made.handle(ev.SubmitStored(job(number), 7, ""))
    return ""


def test_a_second_job_is_refused_until_the_first_has_ended() -> None:
    made = registry()
    assert submit(made, 1) == ""
    refusal = submit(made, 2)
    assert f"job {job(1)}" in refusal
    assert "checkpoints 'orders': cancel it, wait for its end, or give this job another checkpoint_name" in refusal
    made.handle(ev.CancelRequested(9, job(1)))
    made.handle(ev.WantedStored(job(1), is_stored=True))
    assert submit(made, 3), "its queries may run until its end is durable"
    ended(made, 1)
    assert submit(made, 4) == ""
    assert submit(made, 5)


def test_a_submit_under_way_has_the_name_and_a_failed_one_has_not() -> None:
    made = registry()
    assert submit(made, 1, stored=False) == ""
    assert submit(made, 2)
    made.handle(ev.SubmitFailed(job(1), UnavailableError("not now")))
    assert submit(made, 3) == ""


def test_a_repeated_submit_of_the_job_itself_is_no_other_job() -> None:
    made = registry()
    assert submit(made, 1) == ""
    assert submit(made, 1, stored=False) == ""


@pytest.mark.parametrize(("name", "namespace"), [("payments", "a"), ("orders", "b"), ("", "a")])
def test_other_names_and_namespaces_are_free(name: str, namespace: str) -> None:
    made = registry()
    assert [submit(made, 1), submit(made, 2, name, namespace)] == ["", ""]


def stored(number: int, record: GraphRecord) -> StoredJob:
    return StoredJob(job(number), record, 5, None, 0, None, 0, None, "")


def test_the_next_leader_knows_who_has_the_name() -> None:
    made = registry()
    payload = Payload(source(1).digest, b"{}", "")
    record = GraphRecord(payload, "job", 1000, "tests", namespace="a", checkpoint_name="orders")
    made.recover([recovered_job(stored(1, record))], [])
    assert f"job {job(1)}" in submit(made, 2)
    assert submit(made, 3, "payments") == ""


def test_a_job_whose_graph_cannot_be_read_may_have_any_name() -> None:
    made = registry()
    made.recover([recovered_job(stored(1, EMPTY_GRAPH))], [])
    assert f"job {job(1)}" in submit(made, 2)
    assert submit(made, 3, "") == ""


def test_a_job_that_has_ended_is_in_nobodys_way_before_it_is_cleaned() -> None:
    made = registry()
    submit(made, 1)
    ended(made, 1)
    found = made.entry(job(1))
    assert found is not None
    assert found.summary.status is JobStatus.FINISHED
    assert submit(made, 2) == ""
