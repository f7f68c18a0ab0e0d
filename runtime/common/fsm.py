"""State machines as an enum plus a full table. An illegal transition raises an error with the object's story."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Mapping
from enum import Enum
from typing import Generic, TypeVar

from runtime.common.errors import BugError

StateT = TypeVar("StateT", bound=Enum)

STORY_LENGTH_MAX = 64


class IllegalTransitionError(BugError):
    """A state machine was asked for an arc that its table does not have."""


class TransitionTable(Generic[StateT]):
    """All legal arcs of one state machine. Every state has a row; an empty row is a terminal state."""

    def __init__(self, arcs: Mapping[StateT, frozenset[StateT]]) -> None:
        self._arcs = dict(arcs)
        states: type[StateT] = type(next(iter(self._arcs)))
        missing = [state.name for state in states if state not in self._arcs]
        assert not missing, f"states without a row: {missing}"

    def allows(self, source: StateT, target: StateT) -> bool:
        """True if the table has the arc source -> target."""
        return target in self._arcs[source]

    def is_terminal(self, state: StateT) -> bool:
        """True for a state that no arc leaves."""
        return not self._arcs[state]

    def arcs(self) -> Iterator[tuple[StateT, StateT]]:
        """Every legal arc, in the order of the enum: what the diagrams in docs/ are made from."""
        for source, targets in self._arcs.items():
            yield from ((source, target) for target in self._arcs if target in targets)

    def mermaid(self) -> str:
        """The machine as a mermaid state diagram."""
        lines = ["stateDiagram-v2"]
        lines += [f"    {source.name} --> {target.name}" for source, target in self.arcs()]
        lines += [f"    {state.name} --> [*]" for state in self._arcs if self.is_terminal(state)]
        return "\n".join(lines) + "\n"


class StateMachine(Generic[StateT]):
    """The current state of one object, changed only along its table's arcs, with a bounded story."""

    __slots__ = ("_name", "_story", "_table", "state")

    def __init__(self, name: str, table: TransitionTable[StateT], initial: StateT) -> None:
        self._name = name
        self._table = table
        self._story: deque[str] = deque([initial.name], maxlen=STORY_LENGTH_MAX)
        self.state = initial

    @property
    def is_terminal(self) -> bool:
        """True when no arc leaves the current state."""
        return self._table.is_terminal(self.state)

    def can(self, target: StateT) -> bool:
        """True if the arc from the current state to `target` exists."""
        return self._table.allows(self.state, target)

    def to(self, target: StateT, reason: str = "") -> None:
        """Take one arc. Raises IllegalTransitionError with the object's last transitions."""
        if not self._table.allows(self.state, target):
            story = " -> ".join(self._story)
            message = f"{self._name}: illegal transition {self.state.name} -> {target.name} ({story})"
            raise IllegalTransitionError(message)
        self.state = target
        self._story.append(f"{target.name} ({reason})" if reason else target.name)
