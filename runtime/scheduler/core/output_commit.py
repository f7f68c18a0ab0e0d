"""The outputs of sinks: moved into place when every attempt of the sink is accepted, and before the job's result.

Invariants: the move is asked for only after acceptance of all attempts is durable (so a repeated move moves the same
files); one TaskManager is asked at a time, and another one when that one is lost: the move is idempotent.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator

from runtime.common.ids import Incarnation, VertexId
from runtime.executiongraph.core.graph import ExecutionGraph, ExecutionJobVertex
from runtime.gateways.task import OutputDirectory


class OutputCommits:
    """The moves of one job: asked for, and done."""

    __slots__ = ("_asked", "_done", "_graph")

    def __init__(self, graph: ExecutionGraph) -> None:
        self._graph = graph
        self._asked: dict[VertexId, Incarnation] = {}
        self._done: set[VertexId] = set()

    @property
    def is_complete(self) -> bool:
        """True when no vertex has outputs that are still to be moved. Meaningful once every vertex is FINISHED."""
        return all(vertex.id in self._done for vertex in self._with_outputs())

    def due(self) -> list[ExecutionJobVertex]:
        """Vertices whose outputs are accepted and not asked to be moved yet."""
        return [
            vertex
            for vertex in self._with_outputs()
            if vertex.is_accepted and vertex.id not in self._asked and vertex.id not in self._done
        ]

    def _with_outputs(self) -> Iterator[ExecutionJobVertex]:
        return (vertex for vertex in self._graph.vertices.values() if vertex.has_output_directories)

    def ask(self, vertex: ExecutionJobVertex, known: Collection[Incarnation]) -> Incarnation | None:
        """The TaskManager that is asked from now on to move the outputs of a vertex: one that wrote some, if it is
        known, else any. None if there is none.
        """
        writers = [one.location.incarnation for one in vertex.executions if one.outputs and one.location is not None]
        candidates = [incarnation for incarnation in reversed(writers) if incarnation in known] or list(known)
        if not candidates:
            return None
        self._asked[vertex.id] = candidates[0]
        return candidates[0]

    def done(self, vertex_id: VertexId) -> bool:
        """The outputs are in place. False if nobody was asked: a late answer."""
        if self._asked.pop(vertex_id, None) is None:
            return False
        self._done.add(vertex_id)
        return True

    def is_asked(self, vertex_id: VertexId) -> bool:
        """True while an answer is awaited."""
        return vertex_id in self._asked

    def asked_of(self, incarnation: Incarnation) -> list[VertexId]:
        """Whose answers are awaited from that one."""
        return [vertex_id for vertex_id, one in self._asked.items() if one == incarnation]

    def task_manager_gone(self, incarnation: Incarnation) -> None:
        """Whatever that one was asked for is due again."""
        self._asked = {vertex_id: one for vertex_id, one in self._asked.items() if one != incarnation}


def outputs_of(vertex: ExecutionJobVertex) -> tuple[OutputDirectory, ...]:
    """What the accepted attempts of a vertex have written with `ctx.output_path()`."""
    return tuple(output for execution in vertex.executions for output in execution.outputs)
