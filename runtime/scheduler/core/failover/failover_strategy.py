"""Which tasks restart with a failed one: Flink's RestartPipelinedRegionFailoverStrategy and RestartAllFailoverStrategy.

A region is the set of subtasks that pipelined edges join; while all edges are blocking, it is one subtask. With a
region restart the producers of those of its input partitions that are lost, and the consumers of partitions that are
written anew. A producer whose partition is there does not run again.

Invariants: a FINISHED exclusive subtask is never reset (R17); if its result is needed again, the job cannot go on, nor
when it has read its part of what is divided otherwise now (R12). The answer follows from the graph alone.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Mapping

from runtime.common.exchange import ExchangeMode
from runtime.common.ids import VertexId
from runtime.common.states import ExecutionState
from runtime.executiongraph.core.execution import Execution
from runtime.executiongraph.core.graph import ExecutionGraph, ExecutionJobVertex
from runtime.jobgraph.graph import JobEdge
from runtime.jobgraph.regions import is_pipelined, pipelined_regions


class RestartImpossibleError(Exception):
    """A result is lost, and its producer must not run a second time: the job ends."""


class FailoverStrategy:
    """Finds the tasks that restart. `is_full`: every task that has been started."""

    __slots__ = ("_graph", "_is_full", "_pipelined", "_region_of")

    def __init__(
        self, graph: ExecutionGraph, *, is_full: bool, pipelined: Callable[[JobEdge], bool] = is_pipelined
    ) -> None:
        self._graph = graph
        self._pipelined = pipelined
        self._is_full = is_full
        self._region_of: dict[VertexId, frozenset[VertexId]] | None = None

    def tasks_to_restart(self, failed: Iterable[Execution]) -> list[Execution]:
        """The current attempts that have to be replaced, in topological order. Raises RestartImpossibleError.

        Attempts that have not been started since their last reset are left out: they wait anyway.
        """
        search = _Search(self._graph, self._regions())
        search.add_all(failed)
        if self._is_full and search.has_found:
            search.add_all(self._graph.executions())
        search.run()
        return [execution for execution in self._graph.executions() if search.has(execution)]

    def _regions(self) -> dict[VertexId, frozenset[VertexId]]:
        """Vertices that share a region with others. Most jobs never fail: nothing is made before it is needed."""
        if self._region_of is None:
            assert self._graph.job_graph is not None, self._graph.job_id
            regions = pipelined_regions(self._graph.job_graph, pipelined=self._pipelined)
            several = [members for members in regions if len(members) > 1]
            self._region_of = {vertex_id: members for members in several for vertex_id in members}
        return self._region_of


def is_standing(vertex: ExecutionJobVertex, execution: Execution) -> bool:
    """True for a subtask that has ended for good."""
    return execution.state is ExecutionState.FINISHED and vertex.is_exclusive


class _Search:
    """Goes from what restarts to what must restart with it, until nothing is added."""

    __slots__ = ("_expanded", "_found", "_graph", "_queue", "_region_of")

    def __init__(self, graph: ExecutionGraph, region_of: Mapping[VertexId, frozenset[VertexId]]) -> None:
        self._graph = graph
        self._region_of = region_of
        self._found: dict[int, Execution] = {}
        self._queue: deque[Execution] = deque()
        self._expanded: set[int] = set()

    @property
    def has_found(self) -> bool:
        return bool(self._found)

    def has(self, execution: Execution) -> bool:
        return id(execution) in self._found

    def add(self, execution: Execution) -> None:
        is_fresh = execution.state is ExecutionState.CREATED
        if is_fresh or id(execution) in self._found or is_standing(self._graph.vertex_of(execution), execution):
            return
        self._found[id(execution)] = execution
        self._queue.append(execution)

    def add_all(self, executions: Iterable[Execution]) -> None:
        for execution in executions:
            self.add(execution)

    def run(self) -> None:
        while self._queue:
            execution = self._queue.popleft()
            for vertex_id in self._region_of.get(execution.attempt_id.vertex_id, ()):
                self.add_all(self._graph.vertices[vertex_id].executions)
            self._add_producers(execution)
            self._add_consumers(execution)

    def _add_producers(self, execution: Execution) -> None:
        """The producers of lost partitions. A partition that was never accepted is not lost: it is still to come."""
        for edge in self._graph.vertex_of(execution).inputs:
            if edge.is_complete or self._is_expanded(id(edge), edge.reads_all):
                continue
            source = self._graph.vertices[edge.source]
            for index in edge.producers_of(execution.attempt_id.subtask_index):
                producer = source.executions[index]
                if not producer.is_accepted or edge.has(index):
                    continue
                if is_standing(source, producer):
                    raise RestartImpossibleError(_impossible(source, producer))
                self.add(producer)

    def _add_consumers(self, execution: Execution) -> None:
        """The consumers of a producer that runs again, but for finished exclusive ones (R17)."""
        source = self._graph.vertex_of(execution)
        for edge in source.outputs:
            if self._is_expanded(-id(edge), edge.reads_all):
                continue
            target = self._graph.vertices[edge.target]
            consumers = target.executions
            if source.handed is not None and edge.mode is ExchangeMode.REBALANCE and _is_half_read(target):
                raise RestartImpossibleError(_divided_anew(source, target))
            for index in edge.consumers_of(execution.attempt_id.subtask_index):
                self.add(consumers[index])

    def _is_expanded(self, key: int, reads_all: bool) -> bool:  # noqa: FBT001
        """True if the edge was followed before: an all-to-all edge leads to the same subtasks each time."""
        if key in self._expanded:
            return True
        if reads_all:
            self._expanded.add(key)
        return False


def _is_half_read(target: ExecutionJobVertex) -> bool:
    """True when some subtasks have ended for good, and others still read."""
    standing = sum(is_standing(target, one) for one in target.executions)
    return 0 < standing < target.parallelism


def _divided_anew(source: ExecutionJobVertex, target: ExecutionJobVertex) -> str:
    """R12: rows that are dealt out by their places have others when an attempt reads other splits."""
    return (
        f"a result of {source.vertex.name} is written again, from other splits than before, so rebalance() divides its "
        f"rows otherwise, but subtasks of {target.vertex.name} have finished and must not run twice"
    )


def _impossible(vertex: ExecutionJobVertex, producer: Execution) -> str:
    subtask = f"{vertex.vertex.name} ({producer.attempt_id.subtask_index + 1}/{vertex.parallelism})"
    return f"the result of {subtask} is gone and needed again, but the subtask has finished and must not run twice"
