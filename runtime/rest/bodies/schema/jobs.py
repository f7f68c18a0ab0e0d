"""Bodies of /jobs. Times are milliseconds; -1 is a time that has not come yet."""

from __future__ import annotations

from typing import NotRequired

from pydantic import JsonValue
from typing_extensions import TypedDict

from runtime.rest.bodies.schema.accumulators import AccumulatorValue
from runtime.rest.bodies.schema.common import CountPerState, Empty, IOMetrics, MillisPerStatus
from runtime.rest.bodies.schema.streams import StreamSums


class Submitted(TypedDict):
    """A submit that is durable. `outcome` says whether the job was known; `warnings`, what looks like a slip."""

    jobUrl: str
    status: str
    outcome: str
    warnings: NotRequired[list[str]]


class JobIdAndStatus(TypedDict):
    """Flink's JobIdWithStatus."""

    id: str
    status: str


class Jobs(TypedDict):
    """Ids and states of all jobs that the caller may see."""

    jobs: list[JobIdAndStatus]


class TaskCountPerState(TypedDict):
    """How many subtasks are in each state."""

    running: int
    canceling: int
    canceled: int
    total: int
    created: int
    scheduled: int
    deploying: int
    reconciling: int
    finished: int
    initializing: int
    failed: int


_OwnershipFields = TypedDict(
    "_OwnershipFields",
    {"namespace": str, "submitter": str, "client": str, "trace-id": str, "queue": str, "priority": int},
)


class Ownership(_OwnershipFields):
    """The namespace of a job and the principal that has submitted it, "" for the admin. `trace-id`: "" without traces.

    `client`: what the job was submitted with, in the client's own words (of Airflow: DAG, task and run). `queue` and
    `priority`: where it waits for slots.
    `cluster`: of a history server only, the `high-availability.cluster-id` of the cluster that has run it.
    """

    cluster: NotRequired[str]


_JobOverviewFields = TypedDict(
    "_JobOverviewFields",
    {
        "jid": str,
        "name": str,
        "jobType": str,
        "schedulerType": str,
        "start-time": int,
        "end-time": int,
        "duration": int,
        "state": str,
        "last-modification": int,
        "tasks": TaskCountPerState,
        "pending-operators": int,
        "pending-reason": str,
    },
)

CauseOfFailure = TypedDict("CauseOfFailure", {"failure": str, "failure-labels": dict[str, str]}, total=False)
"""Of a FAILED job: the root cause in a line, and what failure enrichers say of it."""


class JobOverview(_JobOverviewFields, CauseOfFailure, Ownership):
    """One line of a list of jobs."""


class JobOverviews(TypedDict):
    """A line for each job that the caller may see, newest first. With `limit` also how many there are, and the place
    of the next page."""

    jobs: list[JobOverview]
    total: NotRequired[int]
    next: NotRequired[str]


class ChangedJobs(JobOverviews):
    """The jobs of a long poll with news, and the ids that are not known."""

    unknown: list[str]


JobState = TypedDict("JobState", {"status": str, "last-modification": int, "pending-reason": str, "is-own": bool})


class PlanInput(TypedDict):
    """An edge into a node."""

    id: str
    num: int
    exchange: str
    ship_strategy: str


class PlanNode(TypedDict):
    """A vertex of the plan."""

    id: str
    operator: str
    parallelism: int
    operator_strategy: str
    description: str
    optimizer_properties: Empty
    inputs: NotRequired[list[PlanInput]]


class Plan(TypedDict):
    """The vertices and edges of a job, sinks first."""

    jid: str
    name: str
    type: str
    nodes: list[PlanNode]


class JobPlan(TypedDict):
    """The plan of a job."""

    plan: Plan


Progress = TypedDict(
    "Progress",
    {
        "text": str,
        "fraction": float,
        "spark-stages-active": int,
        "spark-tasks-completed": int,
        "spark-tasks-total": int,
    },
)


class Splits(TypedDict):
    total: int
    finished: int
    running: int
    left: int


VertexOverview = TypedDict(
    "VertexOverview",
    {
        "id": str,
        "slotSharingGroupId": str,
        "slot-sharing-group": str,
        "name": str,
        "maxParallelism": int,
        "parallelism": int,
        "status": str,
        "start-time": int,
        "end-time": int,
        "duration": int,
        "tasks": CountPerState,
        "metrics": IOMetrics,
        "exclusive": bool,
        "restarts": int,
        "progress": Progress,
        "streams": NotRequired[StreamSums],
        "parallelism-decision": NotRequired[str],
        "splits": NotRequired[Splits],
    },
)
"""`streams`: of a streaming query, and of any other vertex that runs some. `parallelism`: -1 until the scheduler has
chosen it; `parallelism-decision`: from which numbers it has. `splits`: of a source whose subtasks take them on demand.
"""

TakeoverOfJob = TypedDict(
    "TakeoverOfJob", {"timestamp": int, "from": str, "from-id": str, "to": str, "to-id": str, "reason": str}
)

JobOwners = TypedDict("JobOwners", {"jobmaster": str, "jobmaster-id": str, "takeovers": list[TakeoverOfJob]})

_JobFields = TypedDict(
    "_JobFields",
    {
        "jid": str,
        "application-id": str,
        "name": str,
        "isStoppable": bool,
        "state": str,
        "job-type": str,
        "schedulerType": str,
        "start-time": int,
        "end-time": int,
        "duration": int,
        "maxParallelism": int,
        "now": int,
        "timestamps": MillisPerStatus,
        "vertices": list[VertexOverview],
        "status-counts": CountPerState,
        "plan": Plan,
        "pending-operators": int,
        "pending-reason": str,
        "last-modification": int,
        "checkpointing": bool,
    },
)


class Job(_JobFields, JobOwners, Ownership):
    """A job with its vertices, its plan and the JobMaster processes that have run it.

    `checkpointing`: it has streaming queries whose checkpoints are recorded.
    """


class VertexProgress(TypedDict):
    id: str
    name: str
    parallelism: int
    tasks: dict[str, int]
    progress: Progress


LogPiece = TypedDict("LogPiece", {"data": str, "next-offset": int, "size": int, "truncated": bool, "dropped": int})


class LogsOfAttempt(TypedDict):
    """New pieces of an attempt's logs, by stream; `missing` says why there are none."""

    vertex: str
    subtask: int
    attempt: int
    ended: bool
    missing: str
    logs: dict[str, LogPiece]


JobLogs = TypedDict(
    "JobLogs",
    {
        "state": str,
        "last-modification": int,
        "vertices": list[VertexProgress],
        "attempts": list[LogsOfAttempt],
        "more": bool,
    },
)

ExecutionConfiguration = TypedDict(
    "ExecutionConfiguration",
    {
        "restart-strategy": str,
        "user-failures": str,
        "job-parallelism": int,
        "object-reuse-mode": bool,
        "user-config": dict[str, str],
    },
)

JobConfiguration = TypedDict("JobConfiguration", {"jid": str, "name": str, "execution-config": ExecutionConfiguration})


class FailureOfJob(TypedDict):
    """A failure; without `taskName`, `endpoint` and `taskManagerId` it is one of the whole job."""

    exceptionName: str
    stacktrace: str
    timestamp: int
    failureLabels: dict[str, str]
    taskName: NotRequired[str]
    endpoint: NotRequired[str]
    taskManagerId: NotRequired[str]


class RootFailureOfJob(FailureOfJob):
    """A failure with those that came while the job was handling it."""

    concurrentExceptions: list[FailureOfJob]


class ExceptionHistory(TypedDict):
    """Failures, newest first."""

    entries: list[RootFailureOfJob]
    truncated: bool


class JobExceptions(TypedDict):
    """The failures of a job."""

    exceptionHistory: ExceptionHistory


FailureCause = TypedDict(
    "FailureCause",
    {
        "class": str,
        "message": str,
        "stack-trace": str,
        "kind": str,
        "recoverable": bool,
        "failure-labels": dict[str, str],
        "serialized-throwable": NotRequired[str],
    },
)

ResultOfJob = TypedDict(
    "ResultOfJob",
    {
        "id": str,
        "name": str,
        "application-status": str,
        "accumulator-results": dict[str, str],
        "accumulators": dict[str, AccumulatorValue],
        "net-runtime": int,
        "application-id": str,
        "start-time": int,
        "end-time": int,
        "result": NotRequired[JsonValue],
        "failure-cause": NotRequired[FailureCause],
    },
)


class QueueStatus(TypedDict):
    """IN_PROGRESS or COMPLETED."""

    id: str


ExecutionResult = TypedDict(
    "ExecutionResult", {"status": QueueStatus, "job-execution-result": NotRequired[ResultOfJob]}
)
