"""A job belongs to the submitter that is stored with its graph, whatever repeats of its id and owners say (R48)."""

from __future__ import annotations

from dataclasses import replace

import pytest

from runtime.common.errors import ConflictError, ForbiddenError
from runtime.common.namespaces import DEFAULT_NAMESPACE, UNKNOWN_NAMESPACE
from runtime.common.states import JobStatus
from runtime.dispatcher.core import effects as ef
from runtime.dispatcher.core import events as ev
from runtime.dispatcher.stored_jobs import encode_summary, finished_job, recovered_job
from runtime.gateways.dispatcher import SubmitOutcome
from runtime.highavailability.jobs.job_reader import EMPTY_GRAPH
from runtime.highavailability.records import DoneRecord, GraphRecord, OwnerRecord, Payload, ResultRecord, StoredJob
from tests.unit.dispatcher.test_job_registry import P1, ended, job, only, pushed, registry, source

SAMS = replace(source(1), submitter="sam", namespace="team-a")


@pytest.mark.parametrize("stage", ["submitting", "running", "ended", "cleaned"])
def test_the_same_job_of_somebody_else_is_refused(stage: str) -> None:
    made = registry(P1)
    made.handle(ev.SubmitRequested(1, SAMS))
    if stage != "submitting":
        made.handle(ev.SubmitStored(job(1), 7, ""))
    if stage in {"ended", "cleaned"}:
        ended(made, 1)
    if stage == "cleaned":
        made.handle(ev.JobsCleaned((job(1),)))
    for number, submitter in enumerate(("sue", ""), 2):
        refused = only(made.handle(ev.SubmitRequested(number, replace(SAMS, submitter=submitter))), ef.Refuse)
        assert isinstance(refused.error, ForbiddenError)
        assert "somebody else" in str(refused.error)
    again = made.handle(ev.SubmitRequested(4, SAMS))
    assert not [effect for effect in again if isinstance(effect, ef.Refuse)]


@pytest.mark.parametrize("is_cleaned", [True, False])
def test_nor_is_one_told_that_only_the_store_knows(is_cleaned: bool) -> None:
    made = registry(P1)
    made.handle(ev.SubmitRequested(1, replace(SAMS, submitter="sue", namespace="team-b")))
    found = ev.SubmitFoundStored(job(1), "d", JobStatus.RUNNING, is_cleaned, "sam")
    assert isinstance(only(made.handle(found), ef.Refuse).error, ForbiddenError)
    shown = made.summary(job(1))
    if is_cleaned:
        assert shown is None
        return
    assert shown is not None
    assert shown.namespace == UNKNOWN_NAMESPACE
    graph = GraphRecord(Payload("d", b"{}", ""), "job-1", 1001, "tests", "sam", "team-a")
    stored = StoredJob(job(1), graph, 7, None, 0, None, 0, None)
    made.handle(ev.JobReloaded(job(1), recovered_job(stored)))
    shown = made.summary(job(1))
    assert shown is not None
    assert (shown.submitter, shown.namespace) == ("sam", "team-a")


@pytest.mark.parametrize("is_cleaned", [True, False])
def test_who_repeats_the_id_of_a_job_that_cannot_be_read_is_told_so(is_cleaned: bool) -> None:
    """The answer to sam's own submit was lost, and then the graph: it is of nobody now, not of somebody else."""
    made = registry(P1)
    made.handle(ev.SubmitRequested(1, SAMS))
    refused = only(
        made.handle(ev.SubmitFoundStored(job(1), "", JobStatus.INITIALIZING, is_cleaned, "")), ef.Refuse
    ).error
    assert isinstance(refused, ConflictError)
    assert "cannot be read" in str(refused)
    assert "another id" in str(refused)


def test_the_code_of_who_has_the_id_alone_does_not_run_as_that_job() -> None:
    """Sam's graph cannot be read; sue submits another one under its id."""
    made = registry(P1)
    sues = replace(source(1, "another"), submitter="sue", graph=b'{"of": "sue"}')
    made.handle(ev.SubmitRequested(1, sues))
    made.handle(ev.SubmitFoundStored(job(1), "", JobStatus.INITIALIZING, False))
    unreadable = StoredJob(job(1), EMPTY_GRAPH, 7, OwnerRecord(P1, "1:1"), 7, None, 0, None, "unreadable")
    order = only(made.handle(ev.JobReloaded(job(1), recovered_job(unreadable))), ef.SendAssign).message
    assert (order.graph, order.graph_key, order.digest) == (b"", "", "")


def test_a_repeat_is_answered_while_the_stored_job_is_being_read() -> None:
    made = registry(P1)
    made.handle(ev.SubmitRequested(1, SAMS))
    made.handle(ev.SubmitFoundStored(job(1), SAMS.digest, JobStatus.INITIALIZING, False, "sam"))
    only(made.handle(ev.SubmitRequested(2, SAMS)), ef.ReplySubmitted)
    sues = only(made.handle(ev.SubmitRequested(3, replace(SAMS, submitter="sue"))), ef.Refuse)
    assert isinstance(sues.error, ForbiddenError)


def test_the_admin_of_all_is_shown_a_job_that_cannot_be_read() -> None:
    made = registry(P1)
    made.handle(ev.SubmitRequested(1, replace(SAMS, submitter="")))
    told = only(made.handle(ev.SubmitFoundStored(job(1), "", JobStatus.INITIALIZING, False, "")), ef.ReplySubmitted)
    assert told.outcome is SubmitOutcome.ALREADY_SUBMITTED


def test_an_owner_does_not_say_whose_job_it_runs() -> None:
    made = registry(P1)
    made.handle(ev.SubmitRequested(1, SAMS))
    made.handle(ev.SubmitStored(job(1), 7, ""))
    for sequence, (submitter, namespace) in enumerate([("", ""), ("sue", "team-b")], 1):
        said = replace(pushed(1, JobStatus.RUNNING, sequence=sequence), submitter=submitter, namespace=namespace)
        made.handle(ev.SummariesReceived((said,)))
        shown = made.summary(job(1))
        assert shown is not None
        assert (shown.status, shown.submitter, shown.namespace) == (JobStatus.RUNNING, "sam", "team-a")
        assert shown.client == SAMS.client != ""


def test_nor_does_the_result_that_it_has_stored() -> None:
    graph = GraphRecord(Payload("d", b"{}", ""), "job-1", 1001, "tests", "sam", "team-a")
    result = ResultRecord(JobStatus.FINISHED, encode_summary(pushed(1, JobStatus.FINISHED)), Payload("", b"", ""))
    ended_summary = recovered_job(StoredJob(job(1), graph, 7, None, 0, None, 0, result)).ended
    assert ended_summary is not None
    assert (ended_summary.submitter, ended_summary.namespace) == ("sam", "team-a")
    assert ended_summary.client == "tests"


def test_a_job_that_an_earlier_release_has_cleaned_is_of_the_default_namespace() -> None:
    old = replace(pushed(1, JobStatus.FINISHED), submitter="", namespace="")
    done = DoneRecord("d", JobStatus.FINISHED, encode_summary(old), "", 0, 0, "")
    assert finished_job(job(1), done).summary.namespace == DEFAULT_NAMESPACE
    unreadable = replace(done, summary=b"?")
    assert finished_job(job(1), unreadable).summary.namespace == UNKNOWN_NAMESPACE
