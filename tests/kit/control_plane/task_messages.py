"""Short ways to write the messages between a TaskManager and its owners and leader."""

from __future__ import annotations

from runtime.common.ids import AllocationId, ExecutionAttemptId, Incarnation, JobId, VertexId
from runtime.common.states import ExecutionState
from runtime.gateways.job_master import (
    AcknowledgeReports,
    AnswerSlotOffers,
    CancelTasks,
    DeployTasks,
    EndJob,
    FreeSlots,
    RegisterJob,
)
from runtime.gateways.resource_manager import RequestSlot
from runtime.gateways.task import (
    DEFAULT_PROFILE,
    BlobReference,
    JobInformation,
    TaskDeploymentDescriptor,
    TaskExecutionReport,
    TaskInformation,
    TaskMetrics,
)

VERTEX = VertexId("e" * 32)


def job_id(number: int) -> JobId:
    return JobId(f"{number:032x}")


def allocation_id(number: int) -> AllocationId:
    return AllocationId(f"a{number:031x}")


def incarnation(number: int) -> Incarnation:
    return Incarnation(f"c{number:031x}")


def attempt_id(job: int, subtask: int, *, epoch: int = 1, counter: int = 0) -> ExecutionAttemptId:
    return ExecutionAttemptId(job_id(job), VERTEX, subtask, epoch, counter)


def request_slot(
    allocation: int,
    *,
    slot: int = 0,
    job: int = 1,
    epoch: int = 1,
    owner: int = 1,
    address: str = "job-master:1",
    namespace: str = "",
) -> RequestSlot:
    return RequestSlot(
        allocation_id(allocation), slot, job_id(job), epoch, incarnation(owner), address, DEFAULT_PROFILE, namespace
    )


def answer_offers(*accepted: int, job: int = 1, epoch: int = 1, rejected: tuple[int, ...] = ()) -> AnswerSlotOffers:
    return AnswerSlotOffers(
        job_id(job), epoch, tuple(map(allocation_id, accepted)), tuple(map(allocation_id, rejected))
    )


def job_information(job: int = 1, *, epoch: int = 1, **files: tuple[BlobReference, ...]) -> JobInformation:
    none: tuple[BlobReference, ...] = ()
    return JobInformation(
        job_id=job_id(job),
        job_name=f"job {job}",
        epoch=epoch,
        params=b"{}",
        spark_conf=b"{}",
        environment=b"{}",
        py_files=files.get("py_files", none),
        files=files.get("files", none),
        archives=files.get("archives", none),
        wheels=files.get("wheels", none),
        jars=files.get("jars", none),
        reuse_key="same",
    )


def register_job(job: int = 1, *, epoch: int = 1) -> RegisterJob:
    return RegisterJob(job_information(job, epoch=epoch))


def task(
    job: int,
    subtask: int,
    allocation: int,
    *,
    epoch: int = 1,
    counter: int = 0,
    operators: bytes = b"[]",
    code_blobs: tuple[BlobReference, ...] = (),
) -> TaskDeploymentDescriptor:
    return TaskDeploymentDescriptor(
        attempt_id=attempt_id(job, subtask, epoch=epoch, counter=counter),
        allocation_id=allocation_id(allocation),
        ordinal=0,
        task=TaskInformation(VERTEX, "work", operators, code_blobs, 1, is_exclusive=True),
        splits=b"[]",
        inputs=(),
        outputs=(),
    )


def deploy(allocation: int, *subtasks: int, job: int = 1, epoch: int = 1, operators: bytes = b"[]") -> DeployTasks:
    tasks = tuple(task(job, subtask, allocation, epoch=epoch, operators=operators) for subtask in subtasks)
    return DeployTasks(job_id(job), epoch, tasks)


def cancel(*subtasks: int, job: int = 1, epoch: int = 1) -> CancelTasks:
    return CancelTasks(job_id(job), epoch, tuple(attempt_id(job, subtask, epoch=epoch) for subtask in subtasks))


def acknowledge(*subtasks: int, job: int = 1, epoch: int = 1) -> AcknowledgeReports:
    return AcknowledgeReports(job_id(job), epoch, tuple(attempt_id(job, subtask, epoch=epoch) for subtask in subtasks))


def free_slots(*allocations: int, job: int = 1, epoch: int = 1) -> FreeSlots:
    return FreeSlots(job_id(job), epoch, tuple(map(allocation_id, allocations)))


def end_job(job: int = 1, *, epoch: int = 1) -> EndJob:
    return EndJob(job_id(job), epoch)


def report(
    job: int, subtask: int, state: ExecutionState = ExecutionState.FINISHED, *, epoch: int = 1, value: bytes = b"null"
) -> TaskExecutionReport:
    return TaskExecutionReport(attempt_id(job, subtask, epoch=epoch), state, 0, None, value, (), (), TaskMetrics())
