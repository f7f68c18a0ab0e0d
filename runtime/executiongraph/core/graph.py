"""The execution graph of one job under one owner: job status, vertices, subtasks, and how many are in which state.

Invariants: every change of an attempt's state goes through `transition`, so the counts of a vertex and of the job
always equal what a recount would give; nothing here is per pair of subtasks: 10 000 subtasks are 10 000 attempts.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence

from runtime.common.exchange import AUTO_PARALLELISM, ExchangeMode, InputShare
from runtime.common.fsm import StateMachine
from runtime.common.ids import ExecutionAttemptId, JobId, VertexId
from runtime.common.namespaces import DEFAULT_NAMESPACE
from runtime.common.states import JOB_TRANSITIONS, ExecutionState, JobStatus, JobType, SchedulerType
from runtime.executiongraph.core.aggregate import aggregate_state
from runtime.executiongraph.core.concurrent_executions import ConcurrentExecutions, subtask_of
from runtime.executiongraph.core.edges import ExecutionEdge
from runtime.executiongraph.core.execution import Execution
from runtime.executiongraph.core.handed_splits import HandedSplits, SplitCounts
from runtime.gateways.dispatcher import TaskCounts
from runtime.gateways.overview import Takeover
from runtime.gateways.task import PartitionDescriptor, TaskExecutionReport, TaskProgress
from runtime.jobgraph.forward_groups import forward_groups, known_parallelism
from runtime.jobgraph.graph import JobGraph, JobVertex
from runtime.jobgraph.regions import topological_order

FIRST_COUNTER = 0

_COUNTS_NO_MORE = frozenset({ExecutionState.FAILED, ExecutionState.CANCELED})

INLINE_SIZE_MAX = 64 * 1024
"""The most bytes of JSON values in one deployment, and in one report: for 8 waiting attempts in each of 100 slots
of a TaskManager they still fit into a stream's outbox of 64 MiB."""


class ExecutionJobVertex:
    """One vertex with the current attempt of each subtask. `order` is its place in topological order.

    It has no attempts while its parallelism is not decided. `shares`: of a vertex whose parallelism was chosen, what
    each subtask reads of its divided inputs. `decision`: why it was chosen, in words.
    `prior`: earlier attempts by subtask, oldest first, bounded. `committed`: of a streaming query, the last batch that
    is known to be committed, by subtask, whatever attempt it was (R59). `restarts`: how often a subtask was reset.
    `queries`: of a query that can be rescaled, how many there are, one for each split, by whose numbers `committed`
    goes then; 0 for others (R68). `retired`: the last attempts of subtasks that a rescale has taken away.
    `handed`: of a source whose subtasks take their splits on demand, who has which; None for others (R12).
    """

    __slots__ = (
        "committed",
        "counts",
        "decision",
        "executions",
        "handed",
        "has_output_directories",
        "inputs",
        "is_exclusive",
        "order",
        "outputs",
        "prior",
        "queries",
        "restarts",
        "retired",
        "shares",
        "unaccepted",
        "vertex",
    )

    def __init__(self, vertex: JobVertex, executions: list[Execution], *, is_exclusive: bool, order: int) -> None:
        self.vertex = vertex
        self.executions = executions
        self.is_exclusive = is_exclusive
        self.order = order
        self.inputs: tuple[ExecutionEdge, ...] = ()
        self.outputs: tuple[ExecutionEdge, ...] = ()
        self.counts: dict[ExecutionState, int] = {ExecutionState.CREATED: len(executions)}
        self.unaccepted = len(executions)
        self.shares: tuple[InputShare, ...] = ()
        self.decision = ""
        self.has_output_directories = False
        self.prior: dict[int, deque[Execution]] = {}
        self.committed: dict[int, int] = {}
        self.restarts: dict[int, int] = {}
        self.queries = 0
        self.handed = HandedSplits() if vertex.splits_on_demand else None
        self.retired: dict[int, Execution] = {}

    @property
    def id(self) -> VertexId:
        """The vertex."""
        return self.vertex.id

    @property
    def parallelism(self) -> int:
        """The number of subtasks, AUTO_PARALLELISM while it is not decided."""
        return len(self.executions) or AUTO_PARALLELISM

    @property
    def is_decided(self) -> bool:
        """True once the number of subtasks is known."""
        return bool(self.executions)

    def counted(self) -> set[ExecutionAttemptId]:
        """The current attempts that have finished, or still may: what they were given is theirs (R12)."""
        return {one.attempt_id for one in self.executions if one.state not in _COUNTS_NO_MORE}

    def split_counts(self) -> SplitCounts | None:
        """Where its splits are; None for a vertex whose subtasks do not take them on demand."""
        if self.handed is None or self.handed.total is None:
            return None
        counted = self.counted()
        finished = {one.attempt_id for one in self.executions if one.state is ExecutionState.FINISHED}
        held = self.handed.held_by
        return SplitCounts(self.handed.total, held(finished), held(counted - finished))

    def note_restart(self, subtask_index: int) -> None:
        """A subtask was reset: its next attempt is a restart, unlike one that is started beside another (R67)."""
        self.restarts[subtask_index] = self.restarts.get(subtask_index, 0) + 1

    def note_committed(self, subtask_index: int, batch: int) -> None:
        """A subtask of the query has committed this batch. What is told late takes nothing back."""
        self.committed[subtask_index] = max(batch, self.committed.get(subtask_index, batch))

    @property
    def state(self) -> ExecutionState:
        """Flink's aggregated state."""
        return aggregate_state(self.counts, self.parallelism)

    @property
    def is_finished(self) -> bool:
        """True when every subtask is FINISHED, durable or not."""
        return self.counts.get(ExecutionState.FINISHED, 0) == self.parallelism

    @property
    def is_accepted(self) -> bool:
        """True when every subtask is FINISHED and its event is durable."""
        return self.unaccepted == 0 and self.is_decided


class ExecutionGraph:
    """The job's status and its vertices. It has no vertices before `attach`."""

    __slots__ = (
        "concurrent",
        "counts",
        "epoch",
        "finishes_queries",
        "forward_groups",
        "is_committing",
        "job_graph",
        "job_id",
        "name",
        "namespace",
        "prior_attempts_max",
        "scheduler_type",
        "status_machine",
        "takeovers",
        "timestamps",
        "vertices",
    )

    def __init__(self, job_id: JobId, epoch: int, *, submit_millis: int, prior_attempts_max: int = 16) -> None:
        self.prior_attempts_max = prior_attempts_max
        self.job_id = job_id
        self.epoch = epoch
        self.name = ""
        self.job_graph: JobGraph | None = None
        self.status_machine = StateMachine(f"job {job_id}", JOB_TRANSITIONS, JobStatus.INITIALIZING)
        self.timestamps: dict[JobStatus, int] = {JobStatus.INITIALIZING: submit_millis}
        self.vertices: dict[VertexId, ExecutionJobVertex] = {}
        self.forward_groups: Mapping[VertexId, VertexId] = {}
        self.counts: dict[ExecutionState, int] = {}
        self.concurrent = ConcurrentExecutions()
        self.is_committing = False
        """The outcome is decided, and the outputs become visible (R26)."""
        self.takeovers: tuple[Takeover, ...] = ()
        self.namespace = DEFAULT_NAMESPACE
        self.finishes_queries = False
        """A stop with a savepoint is durable: queries finish, and begin no more (R61)."""
        self.scheduler_type = SchedulerType.DEFAULT

    @property
    def job_type(self) -> JobType:
        """What kind of job it is; before the graph is attached, the kind that most are."""
        return self.job_graph.job_type if self.job_graph is not None else JobType.BATCH

    @property
    def status(self) -> JobStatus:
        """The status of the job."""
        return self.status_machine.state

    def enter(self, target: JobStatus, at_millis: int, reason: str = "") -> None:
        """Change the job's status along one arc of its table. Raises IllegalTransitionError."""
        self.status_machine.to(target, reason)
        self.timestamps[target] = at_millis

    def attach(self, job_graph: JobGraph, at_millis: int) -> None:
        """Build vertices and attempts, in topological order."""
        assert self.job_graph is None, self.job_id
        self.job_graph = job_graph
        self.name = job_graph.name
        self.forward_groups = forward_groups(job_graph)
        known = known_parallelism(job_graph, self.forward_groups)
        for order, vertex_id in enumerate(topological_order(job_graph)):
            vertex = job_graph.vertex(vertex_id)
            executions = self._new_executions(vertex_id, known.get(vertex_id, 0), at_millis)
            is_exclusive = vertex.is_exclusive(job_graph)
            self.vertices[vertex_id] = ExecutionJobVertex(vertex, executions, is_exclusive=is_exclusive, order=order)
        self._connect(job_graph)
        self.counts = {ExecutionState.CREATED: sum(len(vertex.executions) for vertex in self.vertices.values())}

    def _new_executions(self, vertex_id: VertexId, parallelism: int, at_millis: int) -> list[Execution]:
        ids = (
            ExecutionAttemptId(self.job_id, vertex_id, index, self.epoch, FIRST_COUNTER) for index in range(parallelism)
        )
        return [Execution(attempt_id, 0, at_millis, is_first_to_begin=True) for attempt_id in ids]

    def decide(
        self, vertex_id: VertexId, shares: Sequence[InputShare], broadcast: Collection[int], reason: str, at_millis: int
    ) -> None:
        """Give a vertex its subtasks, once: one for each share of what its divided inputs bring.

        `broadcast`: the divided inputs of which each subtask reads all rows instead.
        """
        vertex = self.vertices[vertex_id]
        assert not vertex.is_decided, vertex_id
        parallelism = len(shares)
        vertex.executions = self._new_executions(vertex_id, parallelism, at_millis)
        vertex.shares, vertex.decision = tuple(shares), reason
        vertex.unaccepted = parallelism
        for counts in (vertex.counts, self.counts):
            counts[ExecutionState.CREATED] = counts.get(ExecutionState.CREATED, 0) + parallelism
        for edge in vertex.outputs:
            edge.producers_decided(parallelism)
        for edge in vertex.inputs:
            edge.consumers_decided(parallelism, vertex.shares, is_broadcast=edge.edge.input_index in broadcast)

    def group_maximum(self, vertex_id: VertexId) -> int:
        """The greatest parallelism that each vertex of a forward group allows."""
        return min(member.vertex.max_parallelism for member in self._group_of(vertex_id))

    def decided_with(self, vertex_id: VertexId) -> int | None:
        """The parallelism that the forward group of a vertex has, if one of its vertices is decided."""
        return next((one.parallelism for one in self._group_of(vertex_id) if one.is_decided), None)

    def _group_of(self, vertex_id: VertexId) -> Iterator[ExecutionJobVertex]:
        group = self.forward_groups[vertex_id]
        return (self.vertices[one] for one, leader in self.forward_groups.items() if leader == group)

    def _connect(self, job_graph: JobGraph) -> None:
        edges = {}
        read_by = {vertex_id: self._producers_of(job_graph, vertex_id) for vertex_id in self.vertices}
        for vertex in self.vertices.values():
            out_edges = job_graph.out_edges(vertex.id)
            vertex.outputs = tuple(
                ExecutionEdge(
                    edge,
                    output=output,
                    source_name=vertex.vertex.name,
                    parallelism=len(vertex.executions),
                    consumer_parallelism=len(self.vertices[edge.target].executions),
                    subpartitions=self.vertices[edge.target].vertex.subpartitions,
                    is_dynamic=edge.mode.divides and self.vertices[edge.target].vertex.is_auto,
                    inline_size_max=INLINE_SIZE_MAX // max(len(out_edges), read_by[edge.target]),
                )
                for output, edge in enumerate(out_edges)
            )
            edges.update({(edge.target, edge.edge.input_index): edge for edge in vertex.outputs})
        for vertex in self.vertices.values():
            vertex.inputs = tuple(edges[vertex.id, edge.input_index] for edge in job_graph.in_edges(vertex.id))

    def _producers_of(self, job_graph: JobGraph, vertex_id: VertexId) -> int:
        """The number of partitions that one subtask of the vertex reads."""
        return sum(
            1 if edge.mode is ExchangeMode.FORWARD else self.vertices[edge.source].vertex.subpartitions
            for edge in job_graph.in_edges(vertex_id)
        )

    def execution(self, attempt_id: ExecutionAttemptId) -> Execution | None:
        """The current attempt with that id, or one beside it; None for any other id."""
        vertex = self.vertices.get(attempt_id.vertex_id)
        if vertex is None or not 0 <= attempt_id.subtask_index < vertex.parallelism:
            return None
        execution = vertex.executions[attempt_id.subtask_index]
        return execution if execution.attempt_id == attempt_id else self.concurrent.find(attempt_id)

    def current(self, execution: Execution) -> Execution:
        """The current attempt of the subtask of an attempt."""
        return self.vertex_of(execution).executions[execution.attempt_id.subtask_index]

    def progressed(self, progresses: Iterable[TaskProgress]) -> None:
        """Keep the latest progress of running attempts."""
        for progress in progresses:
            execution = self.execution(progress.attempt_id)
            if execution is not None and not execution.state.is_terminal:
                execution.progress = progress
                execution.accumulators = progress.accumulators

    def vertex_of(self, execution: Execution) -> ExecutionJobVertex:
        """The vertex of an attempt of this job."""
        return self.vertices[execution.attempt_id.vertex_id]

    def prior_execution(self, attempt_id: ExecutionAttemptId) -> Execution | None:
        """The earlier attempt with that id, None when it is unknown or not kept any more."""
        vertex = self.vertices.get(attempt_id.vertex_id)
        prior = vertex.prior.get(attempt_id.subtask_index, ()) if vertex is not None else ()
        return next((execution for execution in prior if execution.attempt_id == attempt_id), None)

    def task_name(self, execution: Execution) -> str:
        """The display name of an attempt, in Flink's form."""
        vertex = self.vertex_of(execution)
        subtask = f"({execution.attempt_id.subtask_index + 1}/{vertex.parallelism})"
        return f"{vertex.vertex.name} {subtask} - execution #{execution.ordinal}"

    def incomplete(self, execution: Execution, report: TaskExecutionReport) -> str:
        """What is wrong with a terminal report that carries no failure."""
        if report.state is not ExecutionState.FINISHED:
            return f"the TaskManager reported {report.state.value} unasked and without a reason"
        expected = len(self.vertex_of(execution).outputs)
        written = sorted(partition.partition_id.output for partition in report.partitions)
        if written != list(range(expected)):
            return f"the attempt was to write {expected} result partitions, it reported {written}"
        return ""

    def executions(self) -> Iterator[Execution]:
        """All current attempts, in topological order of their vertices."""
        for vertex in self.vertices.values():
            yield from vertex.executions

    def transition(self, execution: Execution, target: ExecutionState, at_millis: int, reason: str = "") -> None:
        """Change an attempt's state along one arc of its table, and keep the counts."""
        source = execution.state
        execution.enter(target, at_millis, reason)
        if self.current(execution) is not execution:
            return
        for counts in (self.vertex_of(execution).counts, self.counts):
            counts[source] -= 1
            counts[target] = counts.get(target, 0) + 1

    def accept(self, execution: Execution) -> None:
        """Accept an attempt whose event is durable: consumers may read its partitions from now on (R10)."""
        assert execution.state is ExecutionState.FINISHED, execution.attempt_id
        assert not execution.is_accepted, execution.attempt_id
        execution.is_accepted = True
        vertex = self.vertex_of(execution)
        vertex.unaccepted -= 1
        index = execution.attempt_id.subtask_index
        by_output = {partition.partition_id.output: partition for partition in execution.partitions}
        for edge in vertex.outputs:
            edge.accept(index, by_output[edge.output])
            if not edge.is_needed(index):  # R17: every consumer stands, and another edge made it run again
                edge.release(index)
        for edge in vertex.inputs:
            for producer in edge.consumer_finished(index):
                edge.release(producer)
        execution.partitions = ()

    def releases(self, executions: list[Execution]) -> list[PartitionDescriptor]:
        """The partitions that no consumer needs once these attempts are accepted. Inline ones have no directory.

        Notes that these consumers have finished: the caller accepts them next, or the job ends.
        """
        released: list[PartitionDescriptor] = []
        for execution in executions:
            vertex, index = self.vertex_of(execution), execution.attempt_id.subtask_index
            for edge in vertex.inputs:
                read = [edge.partition(producer) for producer in edge.consumer_finished(index)]
                released += [partition for partition in read if partition is not None and partition.directory]
            standing = {edge.output for edge in vertex.outputs if not edge.is_needed(index)}
            released += [one for one in execution.partitions if one.partition_id.output in standing and one.directory]
        return released

    def reset(self, execution: Execution, at_millis: int) -> Execution:
        """Replace a terminal attempt by a new one: forget its partitions, and let its inputs be read again."""
        assert execution.state.is_terminal, execution.attempt_id
        vertex = self.vertex_of(execution)
        index = execution.attempt_id.subtask_index
        for edge in vertex.inputs:
            edge.consumer_reset(index)
        if execution.is_accepted:
            vertex.unaccepted += 1
            for edge in vertex.outputs:
                edge.release(index)
        vertex.note_restart(index)
        fresh = self._next_attempt(execution, at_millis, is_first_to_begin=execution.lets_next_begin_first)
        self._keep_prior(vertex, execution)
        self._replace(vertex, execution, fresh)
        return fresh

    def _keep_prior(self, vertex: ExecutionJobVertex, execution: Execution) -> None:
        execution.forget_results()
        if self.prior_attempts_max:
            index = execution.attempt_id.subtask_index
            vertex.prior.setdefault(index, deque(maxlen=self.prior_attempts_max)).append(execution)

    def next_ordinal(self, execution: Execution) -> int:
        """The number of the next attempt of the subtask."""
        return self.concurrent.newest_number(execution) + 1

    def _next_attempt(self, execution: Execution, at_millis: int, *, is_first_to_begin: bool) -> Execution:
        before = execution.attempt_id
        own = (one.counter + 1 for one in self.concurrent.ids(execution) if one.epoch == self.epoch)
        counter = max(own, default=FIRST_COUNTER)  # R9
        attempt_id = ExecutionAttemptId(self.job_id, before.vertex_id, before.subtask_index, self.epoch, counter)
        return Execution(attempt_id, self.next_ordinal(execution), at_millis, is_first_to_begin=is_first_to_begin)

    # --- attempts of one subtask that run at the same time (R67) ---------------------------------------------

    def speculate(self, current: Execution, at_millis: int) -> Execution:
        """Another attempt of the subtask, beside the current one."""
        execution = self._next_attempt(current, at_millis, is_first_to_begin=False)
        self.concurrent.add(execution)
        return execution

    def promote(self, execution: Execution) -> None:
        """The current attempt and one beside it change places."""
        before = self.current(execution)
        self.concurrent.remove(execution)
        self.concurrent.add(before)
        self._replace(self.vertex_of(execution), before, execution)

    def retire(self, execution: Execution) -> None:
        """An attempt beside the current one has ended: it is an earlier one from now on."""
        assert execution.state.is_terminal, execution.attempt_id
        self.concurrent.remove(execution)
        self._keep_prior(self.vertex_of(execution), execution)

    def attempts(self) -> Iterator[Execution]:
        """All current attempts, and those beside them."""
        yield from self.executions()
        yield from tuple(self.concurrent)

    def with_concurrent(self, executions: Sequence[Execution]) -> list[Execution]:
        """Current attempts, and those beside them."""
        if not self.concurrent:
            return list(executions)
        beside = [one for execution in executions for one in self.concurrent.of(subtask_of(execution))]
        return [*executions, *beside]

    def _replace(self, vertex: ExecutionJobVertex, before: Execution, after: Execution) -> None:
        vertex.executions[before.attempt_id.subtask_index] = after
        for counts in (vertex.counts, self.counts):
            counts[before.state] -= 1
            counts[after.state] = counts.get(after.state, 0) + 1

    def rescale(self, vertex_id: VertexId, parallelism: int, at_millis: int, *, is_first_to_begin: bool) -> None:
        """Give a vertex another number of subtasks, none of which runs. Attempts that were deployed are replaced."""
        vertex = self.vertices[vertex_id]
        known = {**vertex.retired, **dict(enumerate(vertex.executions))}
        for counts in (vertex.counts, self.counts):
            for execution in vertex.executions:
                counts[execution.state] -= 1
            counts[ExecutionState.CREATED] = counts.get(ExecutionState.CREATED, 0) + parallelism
        fresh = []
        for index, first in enumerate(self._new_executions(vertex_id, parallelism, at_millis)):
            before = known.pop(index, None)
            fresh.append(first if before is None else self._following(vertex, index, before, at_millis))
            fresh[-1].is_first_to_begin = is_first_to_begin
        vertex.retired, vertex.executions, vertex.unaccepted = known, fresh, parallelism

    def _following(self, vertex: ExecutionJobVertex, index: int, before: Execution, at_millis: int) -> Execution:
        if before.location is None:
            return Execution(before.attempt_id, before.ordinal, at_millis)
        before.forget_results()
        if self.prior_attempts_max:
            vertex.prior.setdefault(index, deque(maxlen=self.prior_attempts_max)).append(before)
        return self._next_attempt(before, at_millis, is_first_to_begin=False)

    def adopt(self, execution: Execution) -> None:
        """Adopt an attempt that an earlier owner started, in the place of the subtask's unstarted one (R6, R9)."""
        vertex = self.vertex_of(execution)
        current = vertex.executions[execution.attempt_id.subtask_index]
        assert current.state is ExecutionState.CREATED, current.attempt_id
        execution.is_first_to_begin = current.is_first_to_begin
        self._replace(vertex, current, execution)

    def restore(self, execution: Execution) -> None:
        """Restore an attempt that an earlier owner accepted, in the place of the subtask's unstarted one (R10)."""
        vertex = self.vertex_of(execution)
        current = vertex.executions[execution.attempt_id.subtask_index]
        assert current.state is ExecutionState.CREATED, current.attempt_id
        self._replace(vertex, current, execution)
        self.accept(execution)

    @property
    def is_finished(self) -> bool:
        """True when every subtask of every vertex is FINISHED."""
        return all(vertex.is_finished for vertex in self.vertices.values())

    @property
    def has_outputs(self) -> bool:
        """True when a current attempt has written with `ctx.output_path()`."""
        vertices = (vertex for vertex in self.vertices.values() if vertex.has_output_directories)
        return any(execution.outputs for vertex in vertices for execution in vertex.executions)

    @property
    def is_stopped(self) -> bool:
        """True when no attempt runs, or will."""
        return not self.concurrent and all(count == 0 or state.is_terminal for state, count in self.counts.items())

    def task_counts(self) -> TaskCounts:
        """Subtasks by state, for summaries."""
        return TaskCounts(**{state.name.lower(): count for state, count in self.counts.items()})

    def check_invariants(self) -> None:
        """Raises AssertionError when counts differ from a recount. Linear in the number of subtasks."""
        total: dict[ExecutionState, int] = {}
        for vertex in self.vertices.values():
            recount: dict[ExecutionState, int] = {}
            for execution in vertex.executions:
                recount[execution.state] = recount.get(execution.state, 0) + 1
                total[execution.state] = total.get(execution.state, 0) + 1
            assert recount == {state: count for state, count in vertex.counts.items() if count}, vertex.id
            assert vertex.is_decided or vertex.vertex.is_auto, vertex.id
            unaccepted = sum(not execution.is_accepted for execution in vertex.executions)
            assert unaccepted == vertex.unaccepted, (vertex.id, unaccepted, vertex.unaccepted)
        assert total == {state: count for state, count in self.counts.items() if count}, self.job_id
        for execution in self.concurrent:
            assert not execution.state.is_terminal, execution.attempt_id
            assert not self.vertex_of(execution).is_exclusive, execution.attempt_id
            assert self.current(execution).attempt_id != execution.attempt_id, execution.attempt_id
