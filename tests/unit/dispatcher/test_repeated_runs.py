"""R54: the run of a program is one job by its request, whose repeats make graphs that name other objects."""

from __future__ import annotations

from dataclasses import replace

import pytest

from runtime.common.errors import ConflictError
from runtime.common.states import JobStatus
from runtime.dispatcher.core import effects as ef
from runtime.dispatcher.core import events as ev
from runtime.dispatcher.stored_jobs import encode_summary, finished_job, recovered_job
from runtime.gateways.dispatcher import SubmitOutcome, is_same_run
from runtime.highavailability.records import DoneRecord, GraphRecord, Payload, StoredJob
from tests.unit.dispatcher.test_job_registry import P1, ended, job, only, registry, source

RUN = replace(source(1), program_run="a/b")
REPEAT = replace(RUN, digest="f" * 64)


@pytest.mark.parametrize(
    ("one", "other", "is_same"),
    [("a/b", "a", True), ("a/b", "c/b", True), ("a/b", "c/d", False), ("", "", False), ("a", "", False)],
)
def test_a_part_in_common_is_enough(one: str, other: str, is_same: bool) -> None:
    assert is_same_run(one, other) is is_same_run(other, one) is is_same


@pytest.mark.parametrize("stage", ["running", "ended", "cleaned"])
def test_a_repeat_with_another_graph_is_the_same_job(stage: str) -> None:
    made = registry(P1)
    made.handle(ev.SubmitRequested(1, RUN))
    assert made.handle(ev.SubmitRequested(2, REPEAT)) == [], "it waits for the same transaction"
    made.handle(ev.SubmitStored(job(1), 7, ""))
    if stage != "running":
        ended(made, 1)
    if stage == "cleaned":
        made.handle(ev.JobsCleaned((job(1),)))
    again = only(made.handle(ev.SubmitRequested(3, REPEAT)), ef.ReplySubmitted)
    assert again.outcome is SubmitOutcome.ALREADY_SUBMITTED
    other = only(made.handle(ev.SubmitRequested(4, replace(REPEAT, program_run="c/d"))), ef.Refuse)
    assert isinstance(other.error, ConflictError)


def test_the_next_leader_knows_it_from_the_record() -> None:
    graph = GraphRecord(Payload(RUN.digest, b"{}", ""), "job-1", 1001, "jars", program_run="a/b")
    recovered = recovered_job(StoredJob(job(1), graph, 7, None, 0, None, 0, None))
    assert recovered.source.program_run == "a/b"
    made = registry(P1)
    made.recover([recovered], [])
    again = only(made.handle(ev.SubmitRequested(3, REPEAT)), ef.ReplySubmitted)
    assert again.outcome is SubmitOutcome.ALREADY_SUBMITTED
    shown = made.summary(job(1))
    assert shown is not None
    assert shown.program_run == "a/b"


def test_it_knows_it_of_a_cleaned_job_too() -> None:
    made = registry(P1)
    made.handle(ev.SubmitRequested(1, RUN))
    made.handle(ev.SubmitStored(job(1), 7, ""))
    ended(made, 1)
    shown = made.summary(job(1))
    assert shown is not None
    done = DoneRecord(RUN.digest, JobStatus.FINISHED, encode_summary(shown), "", 0, 0, "")
    later = registry(P1)
    later.recover([], [finished_job(job(1), done)])
    assert only(later.handle(ev.SubmitRequested(1, REPEAT)), ef.ReplySubmitted).status is JobStatus.FINISHED


@pytest.mark.parametrize("is_cleaned", [True, False])
def test_it_is_known_though_only_the_store_has_the_job(is_cleaned: bool) -> None:
    made = registry(P1)
    made.handle(ev.SubmitRequested(1, REPEAT))
    found = ev.SubmitFoundStored(job(1), "d", JobStatus.RUNNING, is_cleaned, "", "a/b")
    assert only(made.handle(found), ef.ReplySubmitted).outcome is SubmitOutcome.ALREADY_SUBMITTED
