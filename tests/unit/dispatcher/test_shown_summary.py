"""What is shown of a job: the latest that its owner has said, with what the leader adds while nobody owns it."""

from __future__ import annotations

import pytest

from runtime.common.states import JobStatus
from runtime.common.waiting import NOT_WAITING, Waiting, WaitingKind
from runtime.dispatcher.core.shown_summary import ShownSummary
from tests.unit.dispatcher.test_job_registry import job, pushed, source

R, F = JobStatus.RUNNING, JobStatus.FINISHED


def shown(status: JobStatus, epoch: int, sequence: int) -> ShownSummary:
    made = ShownSummary(source(1))
    assert made.accept(pushed(1, status, epoch=epoch, sequence=sequence), source(1))
    return made


@pytest.mark.parametrize(
    ("before", "said", "is_newer"),
    [
        ((R, 7, 3), (R, 7, 4), True),
        ((R, 7, 3), (R, 7, 3), False),
        ((R, 7, 3), (R, 8, 1), True),
        ((R, 8, 1), (R, 7, 9), False),
        ((R, 7, 10), (F, 7, 10), True),  # it was composed before the summaries that say that its write takes long
        ((R, 7, 10), (F, 7, 8), True),
        ((F, 7, 8), (R, 7, 10), False),
        ((F, 7, 8), (F, 7, 8), False),
        ((R, 8, 1), (F, 7, 8), False),
    ],
)
def test_the_latest_is_shown(
    before: tuple[JobStatus, int, int], said: tuple[JobStatus, int, int], is_newer: bool
) -> None:
    made = shown(*before)
    millis = made.summary.last_modification_millis
    status, epoch, sequence = said
    assert made.accept(pushed(1, status, epoch=epoch, sequence=sequence), source(1)) is is_newer
    assert made.summary.status is (status if is_newer else before[0])
    assert (made.summary.last_modification_millis > millis) is is_newer, "long polls compare it"
    assert made.summary.job_id == job(1)


def test_what_the_leader_adds_takes_the_place_of_nothing_that_the_owner_says() -> None:
    made = shown(R, 7, 3)
    assert made.wait(Waiting(WaitingKind.JOB_MASTERS, "no JobMaster process"))
    millis = made.summary.last_modification_millis
    assert made.accept(pushed(1, R, epoch=7, sequence=4), source(1))
    assert made.summary.last_modification_millis > millis
    assert not made.wait(NOT_WAITING), "the owner has spoken"
