"""Flink's bodies for /jobs: pure functions from an archived graph or a summary to the types of `schema.jobs`."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence

from pydantic import JsonValue

from runtime.common.masking import masked
from runtime.common.namespaces import DEFAULT_NAMESPACE
from runtime.common.shares import DEFAULT_QUEUE
from runtime.common.states import ExecutionState, JobStatus
from runtime.executiongraph.archived import ArchivedEdge, ArchivedException, ArchivedExecutionGraph, ArchivedVertex
from runtime.gateways.dispatcher import JobSummary, TaskCounts
from runtime.gateways.overview import JobMasterInfo, Takeover
from runtime.gateways.task import FailureInfo, TaskMetrics
from runtime.jobgraph.graph import JobEdge
from runtime.rest.bodies.accumulator_bodies import values_by_name
from runtime.rest.bodies.java_throwable import serialized_throwable
from runtime.rest.bodies.schema import jobs as schema
from runtime.rest.bodies.schema.common import IOMetrics
from runtime.rest.bodies.stream_bodies import stream_sums

_APPLICATION_STATUS = {
    JobStatus.FINISHED: "SUCCEEDED",
    JobStatus.FAILED: "FAILED",
    JobStatus.CANCELED: "CANCELED",
}


def duration(start: int, end: int, now: int) -> int:
    """(end or now) - start; -1 before the start."""
    return -1 if start < 0 else max(0, (end if end >= 0 else now) - start)


def job_overview(summary: JobSummary, now: int) -> schema.JobOverview:
    """One element of /jobs/overview."""
    return {
        "jid": summary.job_id,
        "name": summary.name,
        "jobType": summary.job_type.value,
        "schedulerType": summary.scheduler_type.value,
        "start-time": summary.start_millis,
        "end-time": summary.end_millis,
        "duration": duration(summary.start_millis, summary.end_millis, now),
        "state": summary.status.value,
        "last-modification": summary.last_modification_millis,
        "tasks": _task_counts(summary.tasks),
        "pending-operators": 0,
        "pending-reason": summary.pending_reason,
        **_cause(summary),
        **whose(summary),
    }


def _cause(summary: JobSummary) -> schema.CauseOfFailure:
    if not summary.failure:
        return {}
    pairs = (label.partition("=") for label in summary.failure_labels)
    return {"failure": summary.failure, "failure-labels": {key: value for key, _, value in pairs}}


def whose(summary: JobSummary) -> schema.Ownership:
    """The namespace of the job, its submitter, "" for the admin (R48), and the rest that is stored with its graph."""
    return {
        "namespace": summary.namespace or DEFAULT_NAMESPACE,
        "submitter": summary.submitter,
        "client": summary.client,
        "trace-id": summary.trace[3:35],
        "queue": summary.queue or DEFAULT_QUEUE,
        "priority": summary.priority,
    }


def _task_counts(tasks: TaskCounts) -> schema.TaskCountPerState:
    return {
        "running": tasks.running,
        "canceling": tasks.canceling,
        "canceled": tasks.canceled,
        "created": tasks.created,
        "scheduled": tasks.scheduled,
        "deploying": tasks.deploying,
        "reconciling": tasks.reconciling,
        "finished": tasks.finished,
        "initializing": tasks.initializing,
        "failed": tasks.failed,
        "total": tasks.total,
    }


def job_details(
    graph: ArchivedExecutionGraph, owner: JobMasterInfo | None, summary: JobSummary, now: int
) -> schema.Job:
    """The body of GET /jobs/:id."""
    counts = {state.value: 0 for state in ExecutionState}
    for vertex in graph.vertices:
        counts[vertex.state.value] += 1
    return {
        "jid": graph.job_id,
        "application-id": graph.job_id,
        "name": graph.name,
        "isStoppable": False,
        "state": graph.status.value,
        "job-type": graph.job_type.value,
        "schedulerType": graph.scheduler_type.value,
        "start-time": graph.start_millis,
        "end-time": graph.end_millis,
        "duration": duration(graph.start_millis, graph.end_millis, now),
        "maxParallelism": max((vertex.max_parallelism for vertex in graph.vertices), default=-1),
        "now": now,
        "timestamps": {status.value: graph.timestamps.get(status, 0) for status in JobStatus},
        "vertices": [_vertex_overview(vertex, now) for vertex in graph.vertices],
        "status-counts": counts,
        "plan": plan(graph),
        "pending-operators": 0,
        "pending-reason": graph.pending_reason,
        "last-modification": graph.last_modification_millis,
        "checkpointing": graph.has_checkpointing,
        **_owners(owner, graph.takeovers),
        **whose(summary),
    }


def _owners(owner: JobMasterInfo | None, takeovers: Sequence[Takeover]) -> schema.JobOwners:
    """The JobMaster process that runs the job, and the takeovers that led to it, newest first."""
    changes: list[schema.TakeoverOfJob] = [
        {
            "timestamp": one.millis,
            "from": one.former_address,
            "from-id": one.former,
            "to": one.owner_address,
            "to-id": one.owner,
            "reason": one.reason,
        }
        for one in reversed(takeovers)
    ]
    return {
        "jobmaster": "" if owner is None else owner.address,
        "jobmaster-id": "" if owner is None else owner.incarnation,
        "takeovers": changes,
    }


def _vertex_overview(vertex: ArchivedVertex, now: int) -> schema.VertexOverview:
    counts = vertex.counts()
    body: schema.VertexOverview = {
        "id": vertex.id,
        "slotSharingGroupId": hashlib.sha256(vertex.slot_sharing_group.encode()).hexdigest()[:32],
        "slot-sharing-group": vertex.slot_sharing_group,
        "name": vertex.name,
        "maxParallelism": vertex.max_parallelism,
        "parallelism": vertex.parallelism,
        "status": vertex.state.value,
        "start-time": vertex.start_millis,
        "end-time": vertex.end_millis,
        "duration": duration(vertex.start_millis, vertex.end_millis, now),
        "tasks": {state.value: counts.get(state, 0) for state in ExecutionState},
        "metrics": io_metrics(vertex.metrics(), is_complete=vertex.end_millis >= 0),
        "exclusive": vertex.is_exclusive,
        "restarts": vertex.restarts,
        "progress": _progress(vertex),
    }
    if vertex.has_streams:
        body["streams"] = stream_sums(vertex)
    if vertex.decision:
        body["parallelism-decision"] = vertex.decision
    if (splits := vertex.splits) is not None:
        body["splits"] = {
            "total": splits.total,
            "finished": splits.finished,
            "running": splits.running,
            "left": splits.left,
        }
    return body


def vertex_progress(vertex: ArchivedVertex) -> schema.VertexProgress:
    """How far a vertex is, in short: for readers that look often. States that no subtask is in are left out."""
    return {
        "id": vertex.id,
        "name": vertex.name,
        "parallelism": vertex.parallelism,
        "tasks": {state.value: count for state, count in vertex.counts().items()},
        "progress": _progress(vertex),
    }


def _progress(vertex: ArchivedVertex) -> schema.Progress:
    progress = [one.current.progress for one in vertex.subtasks if one.current.progress is not None]
    running = [one.current for one in vertex.subtasks if not one.current.state.is_terminal]
    active = [one.progress for one in running if one.progress is not None]
    text = next((one.text for one in reversed(progress) if one.text), "")
    fraction = sum(one.fraction for one in progress) / len(progress) if progress else 0.0
    if (splits := vertex.splits) is not None and not text and not fraction and splits.total:
        read = splits.finished + max(0, splits.running - len(running))  # each that runs reads its last one
        text, fraction = f"{read} of {splits.total} splits", read / splits.total
    return {
        "text": text,
        "fraction": fraction,
        "spark-stages-active": sum(one.spark_stages_active for one in active),
        "spark-tasks-completed": sum(one.spark_tasks_completed for one in progress),
        "spark-tasks-total": sum(one.spark_tasks_total for one in progress),
    }


def io_metrics(metrics: TaskMetrics, *, is_complete: bool) -> IOMetrics:
    """IOMetricsInfo."""
    return {
        "read-bytes": metrics.read_bytes,
        "read-bytes-complete": is_complete,
        "write-bytes": metrics.write_bytes,
        "write-bytes-complete": is_complete,
        "read-records": metrics.read_records,
        "read-records-complete": is_complete,
        "write-records": metrics.write_records,
        "write-records-complete": is_complete,
        "accumulated-backpressured-time": 0,
        "accumulated-idle-time": 0,
        "accumulated-busy-time": metrics.cpu_millis,
    }


def plan(graph: ArchivedExecutionGraph) -> schema.Plan:
    """The plan, sinks first, as Flink lists it."""
    return {
        "jid": graph.job_id,
        "name": graph.name,
        "type": graph.job_type.value,
        "nodes": [
            plan_node(one.id, one.parallelism, one.description, graph.inputs(one.id))
            for one in reversed(graph.vertices)
        ],
    }


def plan_node(
    vertex_id: str, parallelism: int, description: str, inputs: Sequence[ArchivedEdge | JobEdge]
) -> schema.PlanNode:
    """A vertex of a plan, and its inputs by index."""
    node: schema.PlanNode = {
        "id": vertex_id,
        "operator": "",
        "parallelism": parallelism,
        "operator_strategy": "",
        "description": description,
        "optimizer_properties": {},
    }
    if inputs:
        node["inputs"] = [
            {"id": edge.source, "num": number, "exchange": "blocking", "ship_strategy": edge.mode.value}
            for number, edge in enumerate(inputs)
        ]
    return node


def job_config(graph: ArchivedExecutionGraph) -> schema.JobConfiguration:
    """The body of GET /jobs/:id/config."""
    user_config = {**json.loads(graph.config.params or "{}"), **graph.config.spark_conf}
    return {
        "jid": graph.job_id,
        "name": graph.name,
        "execution-config": {
            "restart-strategy": graph.config.restart_strategy,
            "user-failures": graph.config.user_failures,
            "job-parallelism": graph.config.parallelism,
            "object-reuse-mode": False,
            "user-config": {key: _setting(key, value) for key, value in user_config.items()},
        },
    }


def _setting(key: str, value: JsonValue) -> str:
    return masked(key, value if isinstance(value, str) else json.dumps(value))


def exceptions(graph: ArchivedExecutionGraph, limit: int) -> schema.JobExceptions:
    """The body of GET /jobs/:id/exceptions, newest first."""
    entries: list[schema.RootFailureOfJob] = [
        {**_exception(one), "concurrentExceptions": [_exception(other) for other in one.concurrent]}
        for one in graph.exceptions
    ]
    return {"exceptionHistory": {"entries": entries[:limit], "truncated": len(entries) > limit}}


def _exception(one: ArchivedException) -> schema.FailureOfJob:
    failure = one.failure
    body: schema.FailureOfJob = {
        "exceptionName": failure.class_name,
        "stacktrace": failure.stack_trace or f"{failure.class_name}: {failure.message}",
        "timestamp": failure.timestamp_millis,
        "failureLabels": dict(one.labels),
    }
    if one.task_name:
        body["taskName"] = one.task_name
        body["endpoint"] = one.endpoint
        body["taskManagerId"] = one.task_manager_id
    return body


def execution_result(graph: ArchivedExecutionGraph, *, is_for_flink: bool = False) -> schema.ExecutionResult:
    """/jobs/:id/execution-result of a terminal job. `is_for_flink`: Flink's Java clients can read the failure."""
    result: schema.ResultOfJob = {
        "id": graph.job_id,
        "name": graph.name,
        "application-status": _APPLICATION_STATUS[graph.status],
        "accumulator-results": {},
        "accumulators": values_by_name(graph),
        "net-runtime": max(0, graph.end_millis - graph.start_millis),
        "application-id": graph.job_id,
        "start-time": graph.start_millis,
        "end-time": graph.end_millis,
    }
    if graph.status is JobStatus.FINISHED:
        result["result"] = json.loads(graph.result) if graph.result else None
    cause = graph.failure if graph.status is JobStatus.FAILED else graph.cancellation
    if cause is not None:  # the latest of the exceptions
        result["failure-cause"] = failure_cause(cause, graph.exceptions[0].labels)
        if is_for_flink:
            text = result["failure-cause"]["stack-trace"]
            serialized = serialized_throwable(cause.class_name, cause.message, text)
            result["failure-cause"]["serialized-throwable"] = serialized
    return {"status": {"id": "COMPLETED"}, "job-execution-result": result}


def failure_cause(failure: FailureInfo, labels: Mapping[str, str]) -> schema.FailureCause:
    """Flink's failure-cause as JSON. `recoverable`: another run may end otherwise."""
    return {
        "class": failure.class_name,
        "message": failure.message,
        "stack-trace": failure.stack_trace or f"{failure.class_name}: {failure.message}",
        "kind": failure.kind,
        "recoverable": failure.is_recoverable,
        "failure-labels": dict(labels),
    }
