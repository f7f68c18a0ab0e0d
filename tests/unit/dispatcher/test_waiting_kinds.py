"""What jobs wait for, as the metrics count it. Who makes a sentence says its kind, which the tests of each show."""

from __future__ import annotations

from dataclasses import replace

import pytest

from runtime.common.ids import JobId
from runtime.common.shares import QueueSettings, QueueStatus
from runtime.common.states import JobStatus
from runtime.common.waiting import NOT_WAITING, Waiting, WaitingKind
from runtime.dispatcher.core.waiting_kinds import waiting_kind
from runtime.entrypoint.job_manager_metrics import queue_samples, waiting_samples
from runtime.gateways.dispatcher import JobSummary, TaskCounts
from runtime.jobmaster.core.reasons import Reasons
from runtime.metrics import table

JOB = JobId("a" * 32)
SLOTS = Waiting(WaitingKind.SLOTS, "waiting for slots")


def summary(waiting: Waiting, status: JobStatus = JobStatus.RUNNING) -> JobSummary:
    made = JobSummary(JOB, "daily", status, 7, 1, 900, -1, 1000, TaskCounts(), waiting.reason)
    return replace(made, pending_kind=waiting.kind.value)


@pytest.mark.parametrize("kind", [kind for kind in WaitingKind if kind is not WaitingKind.NOTHING])
def test_the_kind_counts_whatever_the_sentence_says(kind: WaitingKind) -> None:
    """A sentence was searched for words: one with the message of an error of users counted as what that said."""
    assert waiting_kind(summary(Waiting(kind, "no free slot: committing, JobMaster process"))) == kind.value
    assert kind.value in table.WAITING_REASONS


def test_a_job_that_gets_on_or_has_ended_waits_for_nothing() -> None:
    assert waiting_kind(summary(NOT_WAITING)) == ""
    assert waiting_kind(summary(SLOTS, JobStatus.FAILED)) == ""
    assert waiting_kind(summary(Reasons().initialization)) == "loading"


def test_an_owner_of_another_release_waits_for_something_else() -> None:
    assert waiting_kind(replace(summary(SLOTS), pending_kind="")) == "other"
    assert waiting_kind(replace(summary(SLOTS), pending_kind="moonlight")) == "other"


def test_they_are_counted_with_the_longest() -> None:
    jobs = [
        summary(SLOTS),
        replace(summary(SLOTS), last_modification_millis=4000),
        summary(NOT_WAITING),
    ]
    found = {(sample.metric, sample.labels): sample.value for sample in waiting_samples(jobs, 6000)}
    assert found[table.JOBS_WAITING, ("slots",)] == 2
    assert found[table.LONGEST_WAIT, ("slots",)] == 5
    assert found[table.JOBS_WAITING, ("commit",)] == found[table.LONGEST_WAIT, ("commit",)] == 0
    assert {labels[0] for metric, labels in found if metric is table.JOBS_WAITING} == set(table.WAITING_REASONS)


def test_queues_that_are_called_after_people_are_counted_together() -> None:
    etl = QueueSettings(weight=1)  # set, and equal to what queues without options have
    queues = [
        QueueStatus("etl", etl, 2, 2.5, 1, 7, is_named=True),
        QueueStatus("sam", QueueSettings(), 1, 0.5, 1, 2),
        QueueStatus("sue", QueueSettings(), 0, 0.5, 0, 3),
    ]
    found = {(sample.metric, sample.labels[0]): sample.value for sample in queue_samples(queues)}
    assert {key[1]: value for key, value in found.items() if key[0] is table.QUEUE_WAITING} == {
        "default": 0,
        "-": 5,
        "etl": 7,
    }
    assert (found[table.QUEUE_SLOTS, "-"], found[table.QUEUE_SHARE, "etl"]) == (1, 2.5)
