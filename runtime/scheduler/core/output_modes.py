"""Which directories a job writes into, and in which mode: two that contradict each other are refused.

Invariants: a base has one mode in a job; of two bases of which one lies within the other both are appended to, because
what replaces the outer one would take the inner one's files for old.
"""

from __future__ import annotations

import posixpath
from collections.abc import Iterable, Iterator

from runtime.common.ids import VertexId
from runtime.executiongraph.core.execution import Execution
from runtime.executiongraph.core.graph import ExecutionGraph
from runtime.gateways.task import APPEND, OutputDirectory, one_spelling


class OutputModes:
    """Of one job."""

    __slots__ = ("_graph", "_modes", "_within")

    def __init__(self, graph: ExecutionGraph) -> None:
        self._graph = graph
        self._modes: dict[str, tuple[str, VertexId]] = {}
        self._within: dict[str, str] = {}
        for execution in graph.executions():
            self.conflict(execution, execution.outputs)

    def conflict(self, execution: Execution, outputs: Iterable[OutputDirectory]) -> str:
        """What is wrong with them beside those of the others, "" if nothing is: then they are remembered."""
        for output in outputs:
            base = one_spelling(output.base)
            if problem := self._problem(base, output):
                return problem
        for output in outputs:
            base = one_spelling(output.base)
            self._modes.setdefault(base, (output.mode, execution.attempt_id.vertex_id))
            for outer in _outer(base):
                self._within.setdefault(outer, base)
        return ""

    def _problem(self, base: str, output: OutputDirectory) -> str:
        same = self._modes.get(base)
        if same is not None and same[0] != output.mode:
            return self._both(base, base, output)
        others = [outer for outer in _outer(base) if outer in self._modes]
        if base in self._within:
            others.append(self._within[base])
        for other in others:
            if {self._modes[other][0], output.mode} != {APPEND}:
                return self._both(base, other, output)
        return ""

    def _both(self, base: str, other: str, output: OutputDirectory) -> str:
        mode, vertex_id = self._modes[other]
        name = self._graph.vertices[vertex_id].vertex.name
        where = base if base == other else f"{other}, and here {base} is one of two directories within each other,"
        return (
            f"the job writes {where} in two modes that contradict each other: {name!r} with mode={mode!r},"
            f" this task with mode={output.mode!r}. Use one mode for a directory, and only 'append' for directories"
            " within each other"
        )


def _outer(base: str) -> Iterator[str]:
    """The directories that it lies in, nearest first."""
    scheme, separator, path = base.rpartition("://")
    while (outer := posixpath.dirname(path)) not in {path, ""}:
        path = outer
        yield f"{scheme}{separator}{path}"
