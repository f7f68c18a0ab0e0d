"""A job that is over lets go of everything: an owner's last orders, which the leader's word overtook, find it done."""

from __future__ import annotations

import pytest

from runtime.common.ids import PartitionId
from runtime.gateways.job_master import EndJob, ReleasePartitions
from runtime.gateways.resource_manager import JobsEnded
from runtime.taskexecutor.core.events import (
    AttemptEnded,
    ForgetJob,
    JobMasterConnected,
    OwnerMessage,
    OwnerSpoke,
    Refused,
)
from runtime.taskexecutor.core.jobs import JobMasterLocation
from runtime.taskexecutor.core.task_executor import TaskExecutorCore
from tests.kit.control_plane.task_messages import (
    acknowledge,
    answer_offers,
    attempt_id,
    cancel,
    deploy,
    end_job,
    free_slots,
    incarnation,
    job_id,
    register_job,
    request_slot,
)

OWNER = JobMasterLocation(incarnation(1), "job-master:1")
LETS_GO: list[OwnerMessage] = [
    acknowledge(0),
    cancel(0),
    free_slots(1),
    answer_offers(1),
    answer_offers(rejected=(1,)),
    ReleasePartitions(job_id(1), 1, (PartitionId(attempt_id(1, 0), 0),)),
    end_job(),
]


def running() -> TaskExecutorCore:
    """A job with a task that runs."""
    core = TaskExecutorCore("tm-1", slots=1, queue_max=8, reports_max=9, report_bytes_max=1 << 20, owner_timeout=60.0)
    core.handle(request_slot(1))
    core.handle(JobMasterConnected(incarnation(1)))
    for message in (answer_offers(1), register_job(), deploy(1, 0)):
        core.handle(OwnerSpoke(OWNER, message))
    return core


@pytest.mark.parametrize("message", LETS_GO, ids=lambda message: type(message).__name__)
@pytest.mark.parametrize("has_left", [False, True])
def test_letting_go_of_what_is_over_is_nothing(message: OwnerMessage, *, has_left: bool) -> None:
    core = running()
    core.handle(JobsEnded((job_id(1),)))
    if has_left:
        assert core.handle(AttemptEnded(0, attempt_id(1, 0)))[-1] == ForgetJob(job_id(1))
    assert core.handle(OwnerSpoke(OWNER, message)) == []
    core.check_invariants()


@pytest.mark.parametrize("message", [register_job(), deploy(1, 0)], ids=lambda message: type(message).__name__)
def test_nothing_is_begun_for_what_is_over(message: OwnerMessage) -> None:
    core = running()
    core.handle(JobsEnded((job_id(1),)))
    [refused] = core.handle(OwnerSpoke(OWNER, message))
    assert isinstance(refused, Refused)


def test_who_was_replaced_is_refused_whatever_it_says() -> None:
    """R1: of a job that goes on under another owner."""
    core = running()
    core.handle(OwnerSpoke(OWNER, acknowledge(epoch=8)))
    for message in LETS_GO:
        [refused] = core.handle(OwnerSpoke(OWNER, message))
        assert isinstance(refused, Refused)


@pytest.mark.parametrize("said", [EndJob(job_id(1), 1, keeps_outputs=True), JobsEnded((job_id(1),), (job_id(1),))])
def test_outputs_that_somebody_may_commit_by_hand_are_kept_whoever_says_so(said: EndJob | JobsEnded) -> None:
    core = running()  # R28
    core.handle(said if isinstance(said, JobsEnded) else OwnerSpoke(OWNER, said))
    core.handle(JobsEnded((job_id(1),)))  # who has once said so is not contradicted
    assert core.handle(AttemptEnded(0, attempt_id(1, 0)))[-1] == ForgetJob(job_id(1), deletes_finished=False)


def test_what_nobody_has_heard_of_is_kept_for_those_that_are_named_only() -> None:
    core = running()  # R28
    effects = core.handle(JobsEnded((job_id(2), job_id(3)), (job_id(3),)))
    assert effects == [ForgetJob(job_id(2)), ForgetJob(job_id(3), deletes_finished=False)]
