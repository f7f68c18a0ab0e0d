"""Attempts that run beside the current ones of their subtasks (Flink's concurrent executions): speculative ones, and
those that a speculative one has outrun, until they have ended.

Invariants (R67): each attempt of a subtask is its current one, or here, or earlier than both; what is here is not
terminal between two events; the numbers and ids of all attempts of a subtask differ.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from runtime.common.ids import ExecutionAttemptId, VertexId
from runtime.common.states import ExecutionState
from runtime.executiongraph.core.execution import Execution

Subtask = tuple[VertexId, int]

_ON_THEIR_WAY = frozenset({ExecutionState.DEPLOYING, ExecutionState.INITIALIZING, ExecutionState.RUNNING})


def subtask_of(execution: Execution) -> Subtask:
    """The subtask of an attempt."""
    return execution.attempt_id.vertex_id, execution.attempt_id.subtask_index


class ConcurrentExecutions:
    """Those of one job. Empty for a job without speculative execution."""

    __slots__ = ("_beside", "_newest")

    def __init__(self) -> None:
        self._beside: dict[Subtask, list[Execution]] = {}
        self._newest: dict[Subtask, tuple[int, ExecutionAttemptId | None]] = {}

    def __iter__(self) -> Iterator[Execution]:
        return (execution for beside in self._beside.values() for execution in beside)

    def __len__(self) -> int:
        return sum(map(len, self._beside.values()))

    def of(self, subtask: Subtask) -> Sequence[Execution]:
        """The attempts beside the current one, oldest first."""
        return self._beside.get(subtask, ())

    def find(self, attempt_id: ExecutionAttemptId) -> Execution | None:
        """The attempt with that id, if it is here."""
        beside = self._beside.get((attempt_id.vertex_id, attempt_id.subtask_index), ())
        return next((execution for execution in beside if execution.attempt_id == attempt_id), None)

    def add(self, execution: Execution) -> None:
        """An attempt is here from now on."""
        subtask = subtask_of(execution)
        self._beside.setdefault(subtask, []).append(execution)
        self.note(execution)

    def remove(self, execution: Execution) -> None:
        """It is current, or it has ended."""
        subtask = subtask_of(execution)
        beside = self._beside[subtask]
        beside.remove(execution)
        if not beside:
            del self._beside[subtask]

    def note(self, execution: Execution) -> None:
        """Later attempts of the subtask get higher numbers and other ids than this one."""
        self.note_number(subtask_of(execution), execution.ordinal, execution.attempt_id)

    def note_number(self, subtask: Subtask, ordinal: int, attempt_id: ExecutionAttemptId | None = None) -> None:
        """An attempt with this number was started. Its id is None if an earlier owner has started it."""
        known = self._newest.get(subtask)
        if known is None or known[0] < ordinal:
            self._newest[subtask] = ordinal, attempt_id

    def newest_number(self, current: Execution) -> int:
        """The highest number of an attempt of the subtask."""
        return max(current.ordinal, self._newest.get(subtask_of(current), (0, None))[0])

    def ids(self, current: Execution) -> Iterator[ExecutionAttemptId]:
        """The ids of the attempts of the subtask that the next one must not have."""
        yield current.attempt_id
        _, newest = self._newest.get(subtask_of(current), (0, None))
        if newest is not None:
            yield newest

    def rivals(self, current: Execution, execution: Execution) -> list[Execution]:
        """The other attempts of the subtask that run, or wait in a slot."""
        all_of_them = (current, *self.of(subtask_of(current)))
        return [one for one in all_of_them if one is not execution and one.state in _ON_THEIR_WAY]
