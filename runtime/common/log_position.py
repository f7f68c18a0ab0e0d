"""How far a reader has come in the logs of a job's attempts, in little space: it travels with every look.

An attempt that is read to its end is a number in a range of subtasks; one that may still write has an offset for each
stream. So the size follows the attempts that run now, not those of the job.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any, Self

from runtime.common.errors import InvalidInputError

STREAMS = ("stdout", "stderr", "log")
_SUBTASK_MAX = 1 << 16
_ENTRIES_MAX = 10_000


@dataclass(frozen=True, slots=True, order=True)
class AttemptKey:
    """One attempt of one subtask, by the numbers that users see."""

    vertex_id: str
    subtask: int
    attempt: int


class LogPosition:
    """What has been read. `live` counts the attempts that are not read to their end."""

    __slots__ = ("_drained", "_offsets")

    def __init__(self) -> None:
        self._offsets: dict[AttemptKey, list[int]] = {}
        self._drained: dict[tuple[str, int], set[int]] = {}

    @property
    def live(self) -> int:
        """Attempts that have been read in part."""
        return len(self._offsets)

    def is_drained(self, key: AttemptKey) -> bool:
        """True when nothing of it is left to read."""
        return key.subtask in self._drained.get((key.vertex_id, key.attempt), ())

    def offset(self, key: AttemptKey, stream: str) -> int:
        """Where to go on."""
        offsets = self._offsets.get(key)
        return offsets[STREAMS.index(stream)] if offsets is not None else 0

    def move(self, key: AttemptKey, stream: str, offset: int) -> None:
        """A stream has been read up to `offset`."""
        if offset or key in self._offsets:
            self._offsets.setdefault(key, [0] * len(STREAMS))[STREAMS.index(stream)] = offset

    def drain(self, key: AttemptKey) -> None:
        """The attempt has ended and is read to its end."""
        self._offsets.pop(key, None)
        self._drained.setdefault((key.vertex_id, key.attempt), set()).add(key.subtask)

    def to_json(self) -> dict[str, Any]:
        """As JSON; `{}` when nothing has been read."""
        live = [[key.vertex_id, key.subtask, key.attempt, *offsets] for key, offsets in sorted(self._offsets.items())]
        drained = [[vertex, attempt, _ranges(them)] for (vertex, attempt), them in sorted(self._drained.items())]
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
                for stream, offset in zip(STREAMS, offsets, strict=True):
                    found.move(AttemptKey(str(vertex), int(subtask), int(attempt)), stream, int(offset))
            for vertex, attempt, ranges in drained:
                found._drained[str(vertex), int(attempt)] = set(_numbers(ranges))
        except (AttributeError, TypeError, ValueError) as error:
            message = "a log position is not as it was given out"
            raise InvalidInputError(message) from error
        return found


def _ranges(numbers: Iterable[int]) -> str:
    """{0, 1, 2, 5} -> "0-2,5"."""
    parts: list[tuple[int, int]] = []
    for number in sorted(numbers):
        if parts and parts[-1][1] == number - 1:
            parts[-1] = (parts[-1][0], number)
        else:
            parts.append((number, number))
    return ",".join(str(first) if first == last else f"{first}-{last}" for first, last in parts)


def _numbers(ranges: str) -> Iterator[int]:
    for part in ranges.split(","):
        first, _, last = part.partition("-")
        low, high = int(first), int(last or first)
        if not 0 <= low <= high < _SUBTASK_MAX:
            message = f"{part!r} is no range of subtasks"
            raise ValueError(message)
        yield from range(low, high + 1)
