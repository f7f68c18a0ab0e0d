"""How far a reader has come in the logs of a job's attempts. The position is small, because each request carries it.

An attempt that is read to its end is a number in a range of subtasks; an attempt that may still write has an offset for
each stream. So the size follows the attempts that run now, not all attempts of the job.
"""

from __future__ import annotations

import re
from bisect import bisect_right, insort
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any, Self

from runtime.common.errors import InvalidInputError

STREAMS = ("stdout", "stderr", "log")
SUBTASK_MAX = (1 << 16) - 1
OFFSET_MAX = (1 << 63) - 1
_ENTRIES_MAX = 10_000
_RANGE = re.compile(r"([0-9]{1,5})(?:-([0-9]{1,5}))?")


@dataclass(frozen=True, slots=True, order=True)
class AttemptKey:
    """One attempt of one subtask, by the numbers that users see."""

    vertex_id: str
    subtask: int
    attempt: int


class LogPosition:
    """How much of each log has been read. `live` counts the attempts that are not read to their end.

    Its memory is bounded by the length of its text, whatever numbers a client writes into that text (R52).
    """

    __slots__ = ("_drained", "_offsets")

    def __init__(self) -> None:
        self._offsets: dict[AttemptKey, list[int]] = {}
        self._drained: dict[tuple[str, int], list[_Range]] = {}

    @property
    def live(self) -> int:
        """Attempts that have been read in part."""
        return len(self._offsets)

    def is_drained(self, key: AttemptKey) -> bool:
        """True when the attempt is read to its end."""
        ranges = self._drained.get((key.vertex_id, key.attempt), [])
        at = bisect_right(ranges, key.subtask, key=_first)
        return at > 0 and key.subtask <= ranges[at - 1][1]

    def offset(self, key: AttemptKey, stream: str) -> int:
        """The byte at which reading of that stream goes on."""
        offsets = self._offsets.get(key)
        return offsets[STREAMS.index(stream)] if offsets is not None else 0

    def move(self, key: AttemptKey, stream: str, offset: int) -> None:
        """A stream has been read up to `offset`."""
        if offset or key in self._offsets:
            self._offsets.setdefault(key, [0] * len(STREAMS))[STREAMS.index(stream)] = offset

    def drain(self, key: AttemptKey) -> None:
        """The attempt has ended and is read to its end."""
        self._offsets.pop(key, None)
        if not self.is_drained(key):
            ranges = self._drained.setdefault((key.vertex_id, key.attempt), [])
            insort(ranges, (key.subtask, key.subtask))
            at = bisect_right(ranges, key.subtask, key=_first)
            ranges[max(0, at - 2) : at + 1] = _joined(ranges[max(0, at - 2) : at + 1])

    def to_json(self) -> dict[str, Any]:
        """As JSON; `{}` when nothing has been read."""
        live = [[key.vertex_id, key.subtask, key.attempt, *offsets] for key, offsets in sorted(self._offsets.items())]
        drained = [[vertex, attempt, _text(them)] for (vertex, attempt), them in sorted(self._drained.items())]
        return {name: value for name, value in (("live", live), ("drained", drained)) if value}

    @classmethod
    def from_json(cls, document: Any) -> Self:
        """The inverse of `to_json`. Raises InvalidInputError."""
        found = cls()
        try:
            live, drained = document.get("live", []), document.get("drained", [])
            if len(live) + len(drained) > _ENTRIES_MAX:
                message = f"a log position has at most {_ENTRIES_MAX} entries"
                raise InvalidInputError(message)
            for vertex, subtask, attempt, *offsets in live:
                key = AttemptKey(_name(vertex), _number(subtask, SUBTASK_MAX), _number(attempt))
                for stream, offset in zip(STREAMS, offsets, strict=True):
                    found.move(key, stream, _number(offset))
            for vertex, attempt, ranges in drained:
                found._drained[_name(vertex), _number(attempt)] = _joined(sorted(_ranges(ranges)))
        except (AttributeError, TypeError, ValueError) as error:
            message = "a log position is not as it was given out"
            raise InvalidInputError(message) from error
        return found


_Range = tuple[int, int]
"""The first and the last number."""


def _first(one: _Range) -> int:
    return one[0]


def _name(value: Any) -> str:
    if not isinstance(value, str):
        message = "a vertex is named by a text"
        raise TypeError(message)
    return value


def _number(value: Any, highest: int = OFFSET_MAX) -> int:
    """A number that fits into the 64 bits of the message to a TaskManager. Raises ValueError."""
    if type(value) is not int or not 0 <= value <= highest:
        message = f"a number in it is none from 0 to {highest}"
        raise ValueError(message)
    return value


def _joined(ranges: Iterable[_Range]) -> list[_Range]:
    """Merge ranges that touch each other. `ranges` is sorted."""
    found: list[_Range] = []
    for first, last in ranges:
        if found and first <= found[-1][1] + 1:
            found[-1] = (found[-1][0], max(found[-1][1], last))
        else:
            found.append((first, last))
    return found


def _text(ranges: Iterable[_Range]) -> str:
    """[(0, 2), (5, 5)] -> "0-2,5"."""
    return ",".join(str(first) if first == last else f"{first}-{last}" for first, last in ranges)


def _ranges(text: str) -> Iterator[_Range]:
    for part in text.split(","):
        match = _RANGE.fullmatch(part)
        low, high = (int(match[1]), int(match[2] or match[1])) if match else (1, 0)
        if not low <= high <= SUBTASK_MAX:
            message = f"{part[:80]!r} is no range of subtasks"
            raise ValueError(message)
        yield low, high
