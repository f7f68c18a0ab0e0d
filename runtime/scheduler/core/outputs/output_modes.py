"""Which directories a job writes into, and in which mode: two that contradict each other are refused.

Invariants: a base has one mode in a job; if one base lies within another, the job appends to both, because a commit
that replaces the outer base would take the files of the inner one for old files.
"""

from __future__ import annotations

from collections.abc import Iterable

from runtime.common.ids import VertexId
from runtime.executiongraph.core.execution import Execution
from runtime.executiongraph.core.graph import ExecutionGraph
from runtime.gateways.task import APPEND, OutputDirectory, one_spelling, outer_bases


class OutputModes:
    """The modes of one job."""

    __slots__ = ("_graph", "_modes", "_within")

    def __init__(self, graph: ExecutionGraph) -> None:
        self._graph = graph
        self._modes: dict[str, tuple[str, VertexId]] = {}
        self._within: dict[str, str] = {}
        for execution in graph.executions():
            self.conflict(execution, execution.outputs)

    def conflict(self, execution: Execution, outputs: Iterable[OutputDirectory]) -> str:
        """Why these outputs contradict those of other attempts; "" if they do not: then they are remembered."""
        for output in outputs:
            base = one_spelling(output.base)
            if problem := self._problem(base, output):
                return problem
        for output in outputs:
            base = one_spelling(output.base)
            self._modes.setdefault(base, (output.mode, execution.attempt_id.vertex_id))
            for outer in outer_bases(base):
                self._within.setdefault(outer, base)
        return ""

    def _problem(self, base: str, output: OutputDirectory) -> str:
        same = self._modes.get(base)
        if same is not None and same[0] != output.mode:
            return (
                f"{self._name(same[1])} writes {base} with mode={same[0]!r}, and this task with mode={output.mode!r}:"
                " use one mode for a directory"
            )
        others = [outer for outer in outer_bases(base) if outer in self._modes]
        if base in self._within:
            others.append(self._within[base])
        for other in others:
            if {self._modes[other][0], output.mode} != {APPEND}:
                return self._nested(base, other, output)
        return ""

    def _nested(self, base: str, other: str, output: OutputDirectory) -> str:
        mode, vertex_id = self._modes[other]
        inner, outer = sorted((base, other), key=len, reverse=True)
        return (
            f"{self._name(vertex_id)} writes {other} with mode={mode!r}, and this task writes {base} with"
            f" mode={output.mode!r}: {inner} lies within {outer}, so one would delete what the other wrote. Write into"
            f" directories that do not lie within each other, as {outer}/a and {outer}/b, or use mode='append' for both"
        )

    def _name(self, vertex_id: VertexId) -> str:
        return repr(self._graph.vertices[vertex_id].vertex.name)
