"""Stored jobs as the registry takes them over, those with records that cannot be read too."""

from __future__ import annotations

import pytest

from runtime.common.ids import JobId
from runtime.common.states import JobStatus
from runtime.dispatcher.stored_jobs import recovered_job
from runtime.highavailability.jobs.job_reader import EMPTY_GRAPH
from runtime.highavailability.records import JobRecordKind, StoredJob

JOB = JobId("a" * 32)


def stored(unreadable: JobRecordKind | None) -> StoredJob:
    problem = "" if unreadable is None else f"the {unreadable.value} cannot be read"
    return StoredJob(JOB, EMPTY_GRAPH, 7, None, 7, None, 0, None, problem, unreadable=unreadable)


def test_a_job_whose_result_cannot_be_read_has_failed_for_that_reason() -> None:
    ended = recovered_job(stored(JobRecordKind.RESULT)).ended
    assert ended is not None
    assert (ended.status, ended.pending_reason) == (JobStatus.FAILED, "the result cannot be read")
    assert ended.keeps_outputs, "what it has committed is not known"


@pytest.mark.parametrize("unreadable", [None, *(one for one in JobRecordKind if one is not JobRecordKind.RESULT)])
def test_a_job_of_which_another_record_cannot_be_read_goes_on(unreadable: JobRecordKind | None) -> None:
    assert recovered_job(stored(unreadable)).ended is None
