"""Splits of one vertex whose subtasks take them one after the other: which attempt has which (R12).

Invariants: a split belongs to the attempt to which it was handed out last; an attempt that a later one has taken a
split from is superseded, and counts no more, under any owner; a split that no attempt has which counts is free.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType

from runtime.common.ids import ExecutionAttemptId


@dataclass(frozen=True, slots=True)
class SplitCounts:
    """Of a vertex: how many splits there are, how many attempts have that have finished, and that run."""

    total: int
    finished: int
    running: int

    @property
    def left(self) -> int:
        """How many nobody has yet, or any more."""
        return self.total - self.finished - self.running


class HandedSplits:
    """What was handed out, durable or not. `total`: None until the splits are known."""

    __slots__ = ("_by_attempt", "_holders", "total")

    def __init__(self) -> None:
        self._by_attempt: dict[ExecutionAttemptId, list[int]] = {}
        self._holders: dict[int, ExecutionAttemptId] = {}
        self.total: int | None = None

    @property
    def by_attempt(self) -> Mapping[ExecutionAttemptId, Sequence[int]]:
        """The splits that each attempt was given, in their order."""
        return MappingProxyType(self._by_attempt)

    def of(self, attempt_id: ExecutionAttemptId) -> Sequence[int]:
        """The splits that an attempt was given, in their order."""
        return self._by_attempt.get(attempt_id, ())

    def add(self, attempt_id: ExecutionAttemptId, split: int) -> None:
        """The next split of an attempt."""
        self._by_attempt.setdefault(attempt_id, []).append(split)
        self._holders[split] = attempt_id

    def is_superseded(self, attempt_id: ExecutionAttemptId) -> bool:
        """True for an attempt that must not be accepted: another one reads one of its splits again."""
        return any(self._holders[split] != attempt_id for split in self.of(attempt_id))

    def free(self, counted: Collection[ExecutionAttemptId]) -> Iterator[int]:
        """What can be handed out: first what nobody has had, then what attempts have had that do not count.

        Splits are handed out in their order, so that those which nobody has had are the last ones.
        """
        total = self.total or 0
        yield from range(len(self._holders), total)
        for attempt_id, splits in self._by_attempt.items():
            if attempt_id not in counted:
                yield from (one for one in splits if self._holders[one] == attempt_id and one < total)

    def held_by(self, attempts: Collection[ExecutionAttemptId]) -> int:
        """How many splits belong to these attempts."""
        found = (split for attempt_id in attempts for split in self.of(attempt_id))
        return sum(self._holders[split] in attempts for split in found)
