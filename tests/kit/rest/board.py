"""Jobs of every look for the dashboard's tests: running, failed, waiting, restarting, huge, and with hostile texts."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from runtime.common.accumulators import AccumulatorKind, UserAccumulator
from runtime.common.failure_words import with_class
from runtime.common.ids import JobId, VertexId
from runtime.common.states import ExecutionState, JobStatus, JobType, SchedulerType
from runtime.executiongraph.archived import (
    ARCHIVE_SCHEMA_VERSION,
    ArchivedConfig,
    ArchivedEdge,
    ArchivedException,
    ArchivedExecution,
    ArchivedExecutionGraph,
    ArchivedProgress,
    ArchivedSubtask,
    ArchivedVertex,
)
from runtime.gateways.dispatcher import JobSummary, TaskCounts
from runtime.gateways.overview import Takeover
from runtime.gateways.spark_work import SparkStage, SparkWork, work_of
from runtime.gateways.task import ExchangeMode, FailureInfo, TaskMetrics
from tests.kit.control_plane.streaming_jobs import told
from tests.kit.rest.fakes import JOB_MASTER, FakeDispatcher
from tests.kit.rest.rescaled_jobs import rescales_at
from tests.kit.rest.streaming_graphs import checkpoints_at

HOSTILE = '<img src=x onerror="alert(1)"> &amp; \u202e"\'`${1}'
TRACE = """Traceback (most recent call last):
  File "/opt/venv/lib/python3.11/site-packages/pyspark/sql/dataframe.py", line 12, in collect
    return list(self._jdf.collectToPython())
  File "/home/team/jobs/daily.py", line 7, in total
    price = row["prise"]
  File "/opt/venv/lib/python3.11/site-packages/pyspark/sql/types.py", line 99, in __getitem__
    raise KeyError(item)
KeyError: 'prise'
"""
COUNTED = (
    UserAccumulator("orders read", AccumulatorKind.COUNTER, 1_204_311),
    UserAccumulator(HOSTILE.replace("\u202e", ""), AccumulatorKind.COUNTER, 2),
    UserAccumulator("seconds of a file", AccumulatorKind.HISTOGRAM, 48, 61.3, 0.4, 7.25),
)
_STAGES = [
    SparkStage(
        stage_id=number,
        name=f"collect at daily.py:{7 + number}",
        state="FAILED" if number == 2 else "COMPLETE",
        tasks_total=40,
        tasks_completed=40 - number,
        tasks_failed=number,
        submitted_millis=1000 * number,
        completed_millis=1000 * number + 900,
        run_millis=31_000,
        cpu_millis=20_000,
        gc_millis=700,
        read_bytes=1 << 24,
        shuffle_read_bytes=1 << 20,
        shuffle_write_bytes=1 << 21,
        spilled_disk_bytes=number << 19,
    )
    for number in range(3)
]
_END = (ExecutionState.FINISHED, ExecutionState.FAILED, ExecutionState.CANCELED)


def attempt(
    vertex: int, subtask: int, number: int, state: ExecutionState, start: int, spent: int, *, text: str = ""
) -> ArchivedExecution:
    """One attempt that began at `start` and took or takes `spent` milliseconds."""
    times = {ExecutionState.CREATED: start - 500, ExecutionState.SCHEDULED: start - 400}
    if state is not ExecutionState.SCHEDULED:
        times |= {ExecutionState.DEPLOYING: start, ExecutionState.RUNNING: start + 40}
    if state in _END:
        times[state] = start + spent
    is_placed = state is not ExecutionState.SCHEDULED
    return ArchivedExecution(
        number,
        f"{'a' * 32}_{vertex:032x}_{subtask}_7_{number}",
        state,
        times,
        "127.0.0.1:1" if is_placed else "",
        "tm-1" if is_placed else "",
        None,
        TaskMetrics(1 << 20, 1 << 18, 1000 * (subtask + 1), 100, spent // 2, 200 << 20),
        ArchivedProgress(0.4, text, 1, 1, 40, 100) if state is ExecutionState.RUNNING else None,
        COUNTED if vertex == 1 and state is ExecutionState.FINISHED else (),
        _work(start) if vertex == 1 and state in _END else None,
        slot_index=subtask % 2 if is_placed else -1,
    )


def _work(start: int) -> SparkWork:
    stages = [
        replace(one, submitted_millis=start + one.submitted_millis, completed_millis=start + one.completed_millis)
        for one in _STAGES
    ]
    return work_of(2, 1, stages, 16)


def vertex(number: int, name: str, attempts: Sequence[Sequence[ArchivedExecution]]) -> ArchivedVertex:
    """One vertex, the attempts of each subtask from oldest to newest."""
    subtasks = tuple(ArchivedSubtask(at, of[-1], tuple(of[:-1])) for at, of in enumerate(attempts))
    names = (f"source of {name}", f"map {name}", name)
    return ArchivedVertex(
        VertexId(f"{number:032x}"), name, names, len(attempts), 128, "default", is_exclusive=False, subtasks=subtasks
    )


class Board:
    """Puts jobs into the fakes. `now` is the time of the page in milliseconds."""

    def __init__(self, dispatcher: FakeDispatcher, now: int) -> None:
        self._dispatcher = dispatcher
        self._now = now

    def fill(self) -> dict[str, JobId]:
        """One job of each look, by name of the look."""
        now = self._now
        running = [
            vertex(
                1, "read orders", [[attempt(1, at, 0, ExecutionState.FINISHED, now - 60_000, 9000)] for at in range(4)]
            ),
            vertex(2, "read prices", [[attempt(2, 0, 0, ExecutionState.FINISHED, now - 60_000, 4000)]]),
            vertex(
                3,
                "join and price",
                [
                    [attempt(3, at, 0, ExecutionState.RUNNING, now - 50_000, 50_000, text="stage 3 of 8")]
                    for at in range(4)
                ],
            ),
            vertex(4, "write", [[attempt(4, 0, 0, ExecutionState.SCHEDULED, now - 40_000, 0)]]),
        ]
        running[0] = replace(running[0], accumulators=COUNTED)
        edges = [(1, 3, ExchangeMode.HASH), (2, 3, ExchangeMode.BROADCAST), (3, 4, ExchangeMode.FORWARD)]
        again = [attempt(1, 0, n, ExecutionState.FAILED, now - 90_000 + 20_000 * n, 9000) for n in range(3)]
        failing = [vertex(1, "total", [[*again, attempt(1, 0, 3, ExecutionState.RUNNING, now - 8000, 8000)]])]
        broken = [vertex(1, "total", [[attempt(1, 0, 0, ExecutionState.FAILED, now - 90_000, 9000)]])]
        wide = [
            vertex(
                1, "shards", [[attempt(1, at, 0, self._of(at), now - 90_000, 1000 + 170 * at)] for at in range(500)]
            ),
            vertex(2, "merge", [[attempt(2, 0, 0, ExecutionState.SCHEDULED, now - 90_000, 0)]]),
        ]
        waiting = [vertex(1, "late", [[attempt(1, 0, 0, ExecutionState.SCHEDULED, now - 500, 0)]])]
        done = [vertex(1, HOSTILE, [[attempt(1, 0, 0, ExecutionState.FINISHED, now - 900_000, 700)]])]
        return {
            "running": self._put(1, "orders by day", JobStatus.RUNNING, running, edges),
            "restarting": self._put(2, "totals of the night", JobStatus.RESTARTING, failing, exceptions=3),
            "failed": self._put(3, "prices", JobStatus.FAILED, broken, exceptions=1),
            "huge": self._put(4, "500 shards", JobStatus.RUNNING, wide, [(1, 2, ExchangeMode.REBALANCE)]),
            "waiting": self._put(5, "late", JobStatus.CREATED, waiting, why="waits for a slot: 2 of 2 are taken"),
            "finished": self._put(6, HOSTILE, JobStatus.FINISHED, done, result='{"rows": 3}'),
        }

    def streaming(self) -> JobId:
        """A streaming job with checkpoints, beside those of `fill`."""
        at = self._now - 4000
        first = told(progressed_millis=at, watermark_millis=at - 9000)
        second = told(run_id="another run", batch_id=-1, backlog=-1, phases=())
        attempts = [
            replace(attempt(1, index, 0, ExecutionState.RUNNING, self._now - 80_000, 80_000), streams=streams)
            for index, streams in enumerate(((first,), (second,), ()))
        ]
        query = replace(vertex(1, "read orders -> orders", [[one] for one in attempts]), stream_uid="orders")
        job_id = self._put(7, "orders as they come", JobStatus.RUNNING, [query])
        graph = self._dispatcher.graphs[job_id]
        self.show(
            replace(
                graph,
                job_type=JobType.STREAMING,
                scheduler_type=SchedulerType.ADAPTIVE,
                checkpoints=checkpoints_at(at),
                rescales=rescales_at(self._now - 78_000),
            )
        )
        return job_id

    def goes_on(self, job_id: JobId, batch: int) -> None:
        """The first query of a streaming job completes a batch."""
        graph = self._dispatcher.graphs[job_id]
        (one,) = graph.vertices
        first = one.subtasks[0]
        streams = (told(batch_id=batch, progressed_millis=self._now + batch, processed_rows_per_second=7.0 * batch),)
        first = replace(first, current=replace(first.current, streams=streams))
        self.show(replace(graph, vertices=(replace(one, subtasks=(first, *one.subtasks[1:])),)))

    def stall(self, job_id: JobId, since: int) -> None:
        """The second query of a streaming job has been in one trigger since then, in the middle of its Spark tasks."""
        graph = self._dispatcher.graphs[job_id]
        (one,) = graph.vertices
        first, second, *others = one.subtasks
        current = second.current
        progress = ArchivedProgress(0.0, "", 1, 1, 3, 8)
        streams = (replace(current.streams[0], busy_since_millis=since, thread="its thread in A.b:1", stage="stage 7"),)
        second = replace(second, current=replace(current, streams=streams, progress=progress))
        self.show(replace(graph, vertices=(replace(one, subtasks=(first, second, *others)),)))

    @staticmethod
    def _of(subtask: int) -> ExecutionState:
        return ExecutionState.FINISHED if subtask < 300 else ExecutionState.RUNNING

    def _put(
        self,
        number: int,
        name: str,
        status: JobStatus,
        vertices: Sequence[ArchivedVertex],
        edges: Sequence[tuple[int, int, ExchangeMode]] = (),
        *,
        exceptions: int = 0,
        why: str = "",
        result: str = "",
    ) -> JobId:
        job_id = JobId(f"{number:032x}")
        times = {JobStatus.INITIALIZING: self._now - 91_000, JobStatus.RUNNING: self._now - 90_000}
        if status.is_globally_terminal:
            times[status] = self._now - 1000
        failures = tuple(self._failure(at) for at in range(exceptions))
        graph = ArchivedExecutionGraph(
            schema_version=ARCHIVE_SCHEMA_VERSION,
            job_id=job_id,
            name=name,
            epoch=7,
            graph_digest="d" * 64,
            status=status,
            timestamps=times,
            last_modification_millis=self._now,
            pending_reason=why,
            vertices=tuple(vertices),
            edges=tuple(ArchivedEdge(VertexId(f"{a:032x}"), VertexId(f"{b:032x}"), mode, 0) for a, b, mode in edges),
            exceptions=failures,
            config=ArchivedConfig(4, "exponential-delay", None, '{"day": "2026-11-28"}', {"spark.a": HOSTILE}, ()),
            result=result,
            takeovers=(
                Takeover(self._now - 30_000, JOB_MASTER, "10.0.0.9:1", JOB_MASTER, "127.0.0.1:2", "it was lost"),
            ),
        )
        self.show(graph)
        return job_id

    def show(self, graph: ArchivedExecutionGraph) -> None:
        """Make a job known, or move it on."""
        counts: dict[str, int] = {}
        for one in graph.vertices:
            for state, count in one.counts().items():
                counts[state.value.lower()] = counts.get(state.value.lower(), 0) + count
        self._dispatcher.put(graph.job_id, graph.status)
        self._dispatcher.graphs[graph.job_id] = graph
        known = self._dispatcher.summaries[graph.job_id]
        self._dispatcher.summaries[graph.job_id] = replace(
            known,
            name=graph.name,
            start_millis=graph.start_millis,
            end_millis=graph.end_millis,
            last_modification_millis=graph.last_modification_millis,
            tasks=TaskCounts(**counts),
            pending_reason=graph.pending_reason,
            submitter="sam",
            namespace="team-a",
            **_cause(graph),
        )

    def end(self, job_id: JobId, status: JobStatus) -> None:
        """The job ends now."""
        graph = self._dispatcher.graphs[job_id]
        times: Mapping[JobStatus, int] = {**graph.timestamps, status: self._now}
        self.show(replace(graph, status=status, timestamps=times, last_modification_millis=self._now))

    def _failure(self, number: int) -> ArchivedException:
        failure = FailureInfo(
            "KeyError", "'prise'", TRACE, "USER", is_recoverable=False, timestamp_millis=self._now - 1000 * number
        )
        return ArchivedException(failure, "total (1/1)", "127.0.0.1:1", "tm-1", labels={"type": "USER"})


def _cause(graph: ArchivedExecutionGraph) -> dict[str, Any]:
    """As the owner of a FAILED job tells it."""
    if graph.status is not JobStatus.FAILED or not graph.exceptions:
        return {}
    root = graph.exceptions[0]
    said = with_class(root.failure.class_name, root.failure.message)
    return {"failure": said, "failure_labels": tuple(f"{key}={value}" for key, value in root.labels.items())}


def many(dispatcher: FakeDispatcher, count: int, now: int) -> None:
    """So many finished jobs."""
    for number in range(1000, 1000 + count):
        job_id = JobId(f"{number:032x}")
        summary = JobSummary(
            job_id, f"load {number}", JobStatus.FINISHED, 7, 1, now - 10_000 - number, now - number, now - number,
            TaskCounts(finished=4), "",
        )  # fmt: skip
        dispatcher.summaries[job_id] = summary
