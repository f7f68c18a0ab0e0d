"""The running execution graph turned into its archived form, live or for the result."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from itertools import chain

from runtime.common.states import JobStatus
from runtime.common.stream_progress import StreamProgress
from runtime.executiongraph.archived import (
    ARCHIVE_SCHEMA_VERSION,
    NO_CONFIG,
    ArchivedConfig,
    ArchivedEdge,
    ArchivedException,
    ArchivedExecution,
    ArchivedExecutionGraph,
    ArchivedProgress,
    ArchivedSubtask,
    ArchivedVertex,
)
from runtime.executiongraph.archived_checkpoints import ArchivedCheckpoints
from runtime.executiongraph.archived_rescales import ArchivedRescales
from runtime.executiongraph.core.accumulators import Accumulators, counted
from runtime.executiongraph.core.ended_streams import with_result
from runtime.executiongraph.core.execution import Execution
from runtime.executiongraph.core.graph import ExecutionGraph, ExecutionJobVertex
from runtime.gateways.task import TaskProgress
from runtime.jobgraph.graph import JobGraph

STAGES_MAX = 2_000
"""With more stages of Spark in all attempts, an archive has only their sums: it must fit into one message."""
PHASES_MAX = 10_000
"""With more phases of batches in all streaming queries, an archive has none of them."""


@dataclass(frozen=True, slots=True)
class FailurePolicy:
    """The restart strategy of the job in words, and its value of `restart-strategy.user-failures`."""

    restart_strategy: str
    user_failures: str


@dataclass(frozen=True, slots=True)
class _Bounds:
    """What is shown of each attempt, because there is little enough of it in all of them."""

    has_accumulators: bool
    has_stages: bool
    has_phases: bool


def archive(
    graph: ExecutionGraph,
    *,
    digest: str,
    status: JobStatus,
    timestamps: Mapping[JobStatus, int],
    last_modification_millis: int,
    pending_reason: str,
    exceptions: tuple[ArchivedException, ...],
    policy: FailurePolicy,
    result: str,
    checkpoints: ArchivedCheckpoints | None = None,
    rescales: ArchivedRescales | None = None,
) -> ArchivedExecutionGraph:
    """The archived form of the graph. `status` and `timestamps` of a result may be ahead of the graph's."""
    accumulators = counted(graph)
    bounds = _Bounds(accumulators.has_each, _stages(graph) <= STAGES_MAX, _phases(graph) <= PHASES_MAX)
    return ArchivedExecutionGraph(
        schema_version=ARCHIVE_SCHEMA_VERSION,
        job_id=graph.job_id,
        name=graph.name,
        epoch=graph.epoch,
        graph_digest=digest,
        status=status,
        timestamps=dict(timestamps),
        last_modification_millis=last_modification_millis,
        pending_reason=pending_reason,
        vertices=tuple(_vertex(graph, vertex, accumulators, bounds) for vertex in graph.vertices.values()),
        accumulators_left_out=accumulators.left_out,
        edges=_edges(graph),
        exceptions=exceptions,
        config=_config(graph.job_graph, policy) if graph.job_graph is not None else NO_CONFIG,
        result=result,
        takeovers=graph.takeovers,
        job_type=graph.job_type,
        scheduler_type=graph.scheduler_type,
        checkpoints=checkpoints,
        rescales=rescales,
    )


def result_value(graph: ExecutionGraph) -> str:
    """The job's value as JSON text: the value of the only terminal subtask, else `{vertex: [values by subtask]}`.

    So are those of a vertex whose parallelism was chosen: the form does not depend on how much data there was.
    """
    terminal = [vertex for vertex in graph.vertices.values() if not vertex.outputs]
    if len(terminal) == 1 and terminal[0].parallelism == 1 and not terminal[0].decision:
        return _value(terminal[0].executions[0])
    parts = (
        f"{json.dumps(vertex.vertex.name)}:[{','.join(_value(execution) for execution in vertex.executions)}]"
        for vertex in terminal
    )
    return "{" + ",".join(parts) + "}"


def _value(execution: Execution) -> str:
    return execution.value.decode() or "null"


def _vertex(
    graph: ExecutionGraph, vertex: ExecutionJobVertex, accumulators: Accumulators, bounds: _Bounds
) -> ArchivedVertex:
    sink = vertex.vertex.stream_sink

    def shown(execution: Execution) -> ArchivedExecution:
        found = _execution(execution, bounds)
        if sink is None:
            return found
        return replace(found, streams=with_result(found.streams, execution, vertex.vertex.operators[-1].name))

    return ArchivedVertex(
        id=vertex.id,
        name=vertex.vertex.name,
        operators=tuple(operator.name for operator in vertex.vertex.operators),
        parallelism=vertex.parallelism,
        max_parallelism=vertex.vertex.max_parallelism,
        slot_sharing_group=vertex.vertex.slot_sharing_group,
        is_exclusive=vertex.is_exclusive,
        subtasks=tuple(
            ArchivedSubtask(
                index,
                shown(execution),
                tuple(map(shown, vertex.prior.get(index, ()))),
                tuple(map(shown, graph.concurrent.of((vertex.id, index)))),
                vertex.restarts.get(index, 0),
            )
            for index, execution in enumerate(vertex.executions)
        ),
        accumulators=accumulators.of_vertices.get(vertex.id, ()),
        stream_uid=sink.uid if sink is not None else "",
        decision=vertex.decision,
        splits=vertex.split_counts(),
    )


def _execution(execution: Execution, bounds: _Bounds) -> ArchivedExecution:
    location, work = execution.location, execution.spark_work
    return ArchivedExecution(
        attempt=execution.ordinal,
        attempt_id=str(execution.attempt_id),
        state=execution.state,
        timestamps=dict(execution.timestamps),
        endpoint=location.address if location is not None else "",
        task_manager_id=location.task_manager_id if location is not None else "",
        failure=execution.failure,
        metrics=execution.metrics,
        progress=_progress(execution.progress) if execution.progress is not None else None,
        accumulators=execution.accumulators if bounds.has_accumulators else (),
        spark_work=work if work is None or bounds.has_stages else replace(work, stages=()),
        streams=_streams(execution, bounds),
        slot_index=execution.slot_index,
    )


def _streams(execution: Execution, bounds: _Bounds) -> tuple[StreamProgress, ...]:
    found = execution.progress.streams if execution.progress is not None else ()
    return found if bounds.has_phases else tuple(replace(one, phases=(), thread="", stage="") for one in found)


def _phases(graph: ExecutionGraph) -> int:
    """How many phases all queries have told of their last batches."""
    told = (one.progress for vertex in graph.vertices.values() for one in (*vertex.executions, *_prior(vertex)))
    return sum(len(stream.phases) for progress in told if progress is not None for stream in progress.streams)


def _stages(graph: ExecutionGraph) -> int:
    """How many stages of Spark all attempts have kept."""
    works = (one.spark_work for vertex in graph.vertices.values() for one in (*vertex.executions, *_prior(vertex)))
    return sum(len(work.stages) for work in works if work is not None)


def _prior(vertex: ExecutionJobVertex) -> Iterator[Execution]:
    return chain.from_iterable(vertex.prior.values())


def _progress(progress: TaskProgress) -> ArchivedProgress:
    return ArchivedProgress(
        fraction=progress.fraction,
        text=progress.text,
        spark_jobs_active=progress.spark_jobs_active,
        spark_stages_active=progress.spark_stages_active,
        spark_tasks_completed=progress.spark_tasks_completed,
        spark_tasks_total=progress.spark_tasks_total,
    )


def _edges(graph: ExecutionGraph) -> tuple[ArchivedEdge, ...]:
    return tuple(
        ArchivedEdge(edge.source, vertex.id, edge.mode_read, edge.edge.input_index)
        for vertex in graph.vertices.values()
        for edge in vertex.inputs
    )


def _config(job_graph: JobGraph, policy: FailurePolicy) -> ArchivedConfig:
    return ArchivedConfig(
        parallelism=max((vertex.parallelism for vertex in job_graph.vertices), default=1),
        restart_strategy=policy.restart_strategy,
        execution_timeout_seconds=job_graph.execution_timeout_seconds,
        params=json.dumps(job_graph.params, sort_keys=True),
        spark_conf=dict(job_graph.spark_conf),
        environment=tuple(sorted(job_graph.environment)),
        user_failures=policy.user_failures,
    )
