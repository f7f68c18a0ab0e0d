"""What the task in this process counts: `ctx.counter(name).add(n)`, and `task_counter(name)` for scripts without a ctx.

Invariants: an attempt has at most ACCUMULATORS_MAX names, each of one kind; a value that cannot be counted is refused
where it is given, with what to do. Thread-safe. What a process counts that the task has forked is lost with it.
"""

from __future__ import annotations

import math
import operator
import threading
from collections.abc import Callable
from typing import SupportsFloat, SupportsIndex, TypeVar

from runtime.common.accumulators import (
    ACCUMULATORS_MAX,
    COUNT_MAX,
    AccumulatorKind,
    UserAccumulator,
    problem_of_name,
)


class Counter:
    """A sum that only rises. Of the subtasks of a job, the sums of those attempts that have finished are added."""

    __slots__ = ("_count", "_name", "_of")

    def __init__(self, name: str, of: TaskAccumulators) -> None:
        self._name = name
        self._of = of
        self._count = 0

    @property
    def value(self) -> int:
        """What this attempt has counted."""
        return self._count

    def add(self, number: int = 1) -> None:
        """Add a whole number, at least 0. Raises ValueError for another one."""
        given, number = number, _whole(number)
        if number < 0:
            message = (
                f"counter {self._name!r}: {_shown(given)} cannot be added, only whole numbers from 0 on; "
                "a gauge or a histogram takes any number"
            )
            raise ValueError(message)
        with self._of.lock:
            if self._count + number > COUNT_MAX:
                message = f"counter {self._name!r}: the sum would be above {COUNT_MAX}"
                raise ValueError(message)
            self._count += number
        self._of.changed()

    def as_message(self) -> UserAccumulator:
        """As it is now."""
        return UserAccumulator(self._name, AccumulatorKind.COUNTER, self._count)


def _whole(number: object) -> int:
    """As a plain int, also that of NumPy; -1 for what is no whole number."""
    if isinstance(number, bool) or not isinstance(number, SupportsIndex):
        return -1
    return int(operator.index(number))


def _shown(value: object) -> str:
    try:
        return str(value)[:80]
    except ValueError:  # an int of too many digits
        return f"a {type(value).__name__}"


class _Values:
    """Numbers of which it keeps what adds up."""

    __slots__ = ("_name", "_numbers", "_of")

    def __init__(self, name: str, of: TaskAccumulators) -> None:
        self._name = name
        self._of = of
        self._numbers: tuple[int, float, float, float] | None = None

    def _finite(self, value: object) -> float:
        try:
            number = float(value) if isinstance(value, SupportsFloat) else math.nan
        except OverflowError:
            number = math.inf
        if not math.isfinite(number):
            message = f"{self._name!r}: {_shown(value)!r} is no finite number"
            raise ValueError(message)
        return number


class Gauge(_Values):
    """The latest value of this attempt. Of several subtasks the result has count, sum, lowest and highest."""

    __slots__ = ()

    def set(self, value: float) -> None:
        """Replace the value. Raises ValueError for what is no finite number."""
        number = self._finite(value)
        with self._of.lock:
            self._numbers = (1, number, number, number)
        self._of.changed()

    def as_message(self) -> UserAccumulator | None:
        """As it is now; None before the first value."""
        return self._numbers and UserAccumulator(self._name, AccumulatorKind.GAUGE, *self._numbers)


class Histogram(_Values):
    """Measured values: their number, sum, lowest and highest."""

    __slots__ = ()

    def record(self, value: float) -> None:
        """Take a value. Raises ValueError for what is no finite number, and for a sum that is none."""
        number = self._finite(value)
        with self._of.lock:
            count, total, least, most = self._numbers or (0, 0.0, number, number)
            if not math.isfinite(total + number):
                message = f"{self._name!r}: the sum of its values would not be finite"
                raise ValueError(message)
            self._numbers = (count + 1, total + number, min(least, number), max(most, number))
        self._of.changed()

    def as_message(self) -> UserAccumulator | None:
        """As it is now; None before the first value."""
        return self._numbers and UserAccumulator(self._name, AccumulatorKind.HISTOGRAM, *self._numbers)


_T = TypeVar("_T", Counter, Gauge, Histogram)


def _nothing() -> None:
    """Nobody wants to hear of changes."""


class TaskAccumulators:
    """Those of one attempt. `changed` is called after each change, on the thread that counts: it returns at once."""

    def __init__(self, changed: Callable[[], None] = _nothing) -> None:
        self.lock = threading.Lock()
        self.changed = changed
        self._known: dict[str, Counter | Gauge | Histogram] = {}

    def counter(self, name: str) -> Counter:
        """The counter of that name, made at its first use. Raises ValueError."""
        return self._named(name, Counter)

    def gauge(self, name: str) -> Gauge:
        """The gauge of that name, as above."""
        return self._named(name, Gauge)

    def histogram(self, name: str) -> Histogram:
        """The histogram of that name, as above."""
        return self._named(name, Histogram)

    def snapshot(self) -> tuple[UserAccumulator, ...]:
        """What is counted now; a counter from its first use on, the others from their first value on."""
        with self.lock:
            told = [one.as_message() for one in self._known.values()]
        return tuple(one for one in told if one is not None)

    def _named(self, name: str, kind: type[_T]) -> _T:
        with self.lock:
            found = self._known.get(name)
            if found is None:
                found = self._known[name] = self._new(name, kind)
        if not isinstance(found, kind):
            message = f"{name!r} is a {type(found).__name__.lower()} of this task already: choose another name"
            raise ValueError(message)  # noqa: TRY004 - the name is what is wrong
        return found

    def _new(self, name: str, kind: type[_T]) -> _T:
        if problem := problem_of_name(name):
            raise ValueError(problem)
        if len(self._known) >= ACCUMULATORS_MAX:
            message = (
                f"{name!r}: this task counts under {ACCUMULATORS_MAX} names already, which is the most. A name says "
                "what is counted, not what for: leave ids and dates out of names"
            )
            raise ValueError(message)
        return kind(name, self)


class _Running:
    accumulators = TaskAccumulators()


def enter_task(accumulators: TaskAccumulators) -> TaskAccumulators:
    """Called when a task begins in this process: `task_counter` and the others count in these from now on."""
    _Running.accumulators = accumulators
    return accumulators


def task_counter(name: str) -> Counter:
    """`ctx.counter(name)` for code without a ctx. Outside of a task it counts for nobody. Raises ValueError."""
    return _Running.accumulators.counter(name)


def task_gauge(name: str) -> Gauge:
    """`ctx.gauge(name)`, as above."""
    return _Running.accumulators.gauge(name)


def task_histogram(name: str) -> Histogram:
    """`ctx.histogram(name)`, as above."""
    return _Running.accumulators.histogram(name)
