"""UserAccumulator: what the code of an attempt has counted under one name, and how that of several attempts adds up."""

from __future__ import annotations

import math
import sys
from collections.abc import Iterable
from dataclasses import dataclass
from enum import Enum

ACCUMULATORS_MAX = 100
"""Names that one attempt may count under: they travel in its report."""
NAME_LENGTH_MAX = 100
COUNT_MAX = (1 << 63) - 1
"""What one attempt may count to; the sum over attempts has no limit."""


_FLOAT_MAX = sys.float_info.max


class AccumulatorKind(Enum):
    """COUNTER: a sum. GAUGE: the latest value of each attempt. HISTOGRAM: values, of which it keeps what adds up."""

    COUNTER = "COUNTER"
    GAUGE = "GAUGE"
    HISTOGRAM = "HISTOGRAM"


@dataclass(frozen=True, slots=True)
class UserAccumulator:
    """`count` is the sum of a COUNTER, whose other numbers are 0; else the number of values, at least 1.

    `total` is their sum, `least` and `most` are the lowest and the highest of them.
    """

    name: str
    kind: AccumulatorKind
    count: int
    total: float = 0.0
    least: float = 0.0
    most: float = 0.0

    def plus(self, other: UserAccumulator) -> UserAccumulator:
        """Both together. They have one name and one kind."""
        assert (self.name, self.kind) == (other.name, other.kind), (self.name, other.name)
        return UserAccumulator(
            self.name,
            self.kind,
            self.count + other.count,
            max(-_FLOAT_MAX, min(self.total + other.total, _FLOAT_MAX)),
            min(self.least, other.least),
            max(self.most, other.most),
        )


def problem_of_name(name: object) -> str:
    """What is wrong with the name of an accumulator, in words; "" when nothing is."""
    if isinstance(name, str) and 0 < len(name) <= NAME_LENGTH_MAX and name.isprintable():
        return ""
    shown = str(name)[:NAME_LENGTH_MAX]
    return f"{shown!r} is no name: it has 1 to {NAME_LENGTH_MAX} printable characters"


def problem_of(accumulators: tuple[UserAccumulator, ...]) -> str:
    """What no attempt can have counted, in words; "" when nothing is wrong."""
    if len(accumulators) > ACCUMULATORS_MAX:
        return f"{len(accumulators)} accumulators, where {ACCUMULATORS_MAX} are the most"
    if len({one.name for one in accumulators}) < len(accumulators):
        return "two accumulators with one name"
    for one in accumulators:
        if problem := problem_of_name(one.name):
            return problem
        least = 0 if one.kind is AccumulatorKind.COUNTER else 1
        if not least <= one.count <= COUNT_MAX or not all(map(math.isfinite, (one.total, one.least, one.most))):
            return f"numbers of {one.name!r} that cannot be counted"
    return ""


def merged(attempts: Iterable[tuple[UserAccumulator, ...]]) -> tuple[UserAccumulator, ...]:
    """Those of all attempts, one for each name and kind, in the order of their names."""
    found: dict[tuple[str, str], UserAccumulator] = {}
    for attempt in attempts:
        for one in attempt:
            key = one.name, one.kind.value
            known = found.get(key)
            found[key] = one if known is None else known.plus(one)
    return tuple(found[key] for key in sorted(found))
