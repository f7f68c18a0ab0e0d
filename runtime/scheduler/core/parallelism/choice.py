"""The choice of a parallelism by what a vertex is going to read: pure, and the same for the same sizes.

Flink's VertexParallelismAndInputInfosDecider: enough subtasks that each reads about `bytes_per_task`, each a contiguous
range of subpartitions, the ranges about equally large. A subpartition that alone is more than a share, since one key
has many rows, is divided between several subtasks where its edge is splittable.

Invariants (R66): each subpartition of each divided input is read once, or in parts that together are the whole; shares
are in the order of subpartitions; a parallelism that is `required` is met exactly.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from statistics import median

from runtime.common.exchange import InputShare
from runtime.common.size_text import size_text
from runtime.scheduler.core.parallelism.settings import AdaptiveSettings


@dataclass(frozen=True, slots=True)
class InputSize:
    """What finished producers have written for one input: bytes and rows of each subpartition.

    An input whose rows are not divided has one entry, which each subtask reads. `broadcast_below`: in bytes.
    """

    input_index: int
    source_name: str
    sizes: tuple[int, ...]
    rows: int
    is_divided: bool
    is_splittable: bool = False
    broadcast_below: int | None = None
    splits: int | None = None
    """Of an input that brings the splits of a source: how many these are."""

    @property
    def bytes(self) -> int:
        """All of it."""
        return sum(self.sizes)


@dataclass(frozen=True, slots=True)
class Choice:
    """One share for each subtask. `broadcast`: divided inputs of which each subtask reads all rows instead."""

    shares: tuple[InputShare, ...]
    broadcast: tuple[int, ...]
    reason: str


def choose(
    inputs: Sequence[InputSize],
    settings: AdaptiveSettings,
    *,
    subpartitions: int,
    rows_per_task: int | None = None,
    required: int | None = None,
    most: int | None = None,
) -> Choice:
    """The parallelism of a vertex with these inputs. `required`: that of its forward group, which has been chosen.

    `most`: what its forward group allows; None: as many as there are subpartitions.
    """
    most = subpartitions if most is None else min(most, subpartitions)
    divided = [one for one in inputs if one.is_divided]
    broadcast = _broadcast(divided) if settings.is_enabled else []
    divided = [one for one in divided if one not in broadcast]
    reason = _sizes_text(divided)
    beside = f"; {', '.join(repr(one.source_name) for one in broadcast)} broadcast, being small" if broadcast else ""
    names = tuple(one.input_index for one in broadcast)
    fixed, why = _fixed(inputs, divided, settings, most=most, required=required)
    totals = [sum(one.sizes[index] for one in divided) for index in range(subpartitions)]
    if fixed is not None:
        shares = _exactly(totals, fixed) if divided else (InputShare(0, subpartitions),) * fixed
        return Choice(shares, names, f"{fixed} for {reason}; {why}{beside}" if divided else f"{fixed}: {why}")
    wanted, each = _wanted(divided, settings, most, rows_per_task)
    split = _splittable(divided, is_alone=len(divided) == 1 and bool(broadcast))
    shares = tuple(_shares(totals, wanted, split, settings.skew_factor, min(settings.parallelism_max, most)))
    parts = sum(share.parts > 1 for share in shares)
    skew = f"; {parts} of them share keys with many rows" if parts else ""
    return Choice(shares, names, f"{len(shares)} for {reason}, one for each {each}{skew}{beside}")


def _fixed(
    inputs: Sequence[InputSize],
    divided: Sequence[InputSize],
    settings: AdaptiveSettings,
    *,
    most: int,
    required: int | None,
) -> tuple[int | None, str]:
    """A parallelism that does not follow from sizes, and why; None where it does."""
    splits = next((one.splits for one in inputs if one.splits is not None), None)
    if required is not None:
        return required, "forward edges dictate it"
    if splits is not None:
        return max(1, min(splits, most)), f"{splits} splits, one each"
    if not divided:
        return 1, "each subtask would read the same"
    if not settings.is_enabled:
        return min(settings.parallelism_default, most), "parallelism.default"
    return None, ""


def _broadcast(divided: Sequence[InputSize]) -> list[InputSize]:
    """The inputs that have turned out small enough; one at least stays divided, or rows would be read twice."""
    small = [one for one in divided if one.broadcast_below is not None and one.bytes < one.broadcast_below]
    if len(small) == len(divided):
        small = [one for one in small if one is not max(small, key=lambda one: one.bytes)]
    return small


def _wanted(
    divided: Sequence[InputSize], settings: AdaptiveSettings, most: int, rows_per_task: int | None
) -> tuple[int, str]:
    size, rows = sum(one.bytes for one in divided), sum(one.rows for one in divided)
    by_bytes = math.ceil(size / settings.bytes_per_task)
    by_rows = math.ceil(rows / rows_per_task) if rows_per_task else 0
    most = min(settings.parallelism_max, most)
    wanted = max(min(max(by_bytes, by_rows, settings.parallelism_min), most), 1)
    return wanted, f"{rows_per_task} rows" if by_rows > by_bytes else size_text(settings.bytes_per_task)


def _sizes_text(divided: Sequence[InputSize]) -> str:
    return f"{size_text(sum(one.bytes for one in divided))} and {sum(one.rows for one in divided)} rows"


def _splittable(divided: Sequence[InputSize], *, is_alone: bool) -> list[InputSize]:
    """`is_alone`: all other inputs are broadcast, so that the rows of this one may go anywhere."""
    return [one for one in divided if one.is_splittable or is_alone]


def _shares(
    totals: Sequence[int], wanted: int, splittable: Sequence[InputSize], skew_factor: float, most: int
) -> list[InputShare]:
    target = max(sum(totals) / wanted, 1.0)
    usual = median(totals) * skew_factor
    parts: dict[int, tuple[int, int]] = {}
    for index, total in enumerate(totals):
        largest = max(splittable, key=lambda one: one.sizes[index], default=None)
        own = largest.sizes[index] if largest is not None else 0
        if largest is not None and own > target and total > usual:
            parts[index] = (min(math.ceil(own / target), wanted), largest.input_index)
    while parts and sum(count for count, _ in parts.values()) + len(_segments(parts, len(totals))) > most:
        _shrink(parts)
    split = sum(count for count, _ in parts.values())
    segments = _segments(parts, len(totals))
    # A range ends where a divided subpartition lies, so those beside it may be many for what is left of `wanted`.
    enough = sum(max(1, round(sum(totals[begin:end]) / target)) for begin, end in segments)
    shares = _ranges(segments, totals, max(1, wanted - split, min(enough, most - split)))
    for index, (count, input_index) in parts.items():
        shares += [InputShare(index, index + 1, part, count, input_index) for part in range(count)]
    return sorted(shares, key=lambda share: (share.first, share.part))


def _segments(parts: Collection[int], end: int) -> list[tuple[int, int]]:
    """What lies between the subpartitions that are divided."""
    segments, first = [], 0
    for index in [*parts, end]:
        if first < index:
            segments.append((first, index))
        first = index + 1
    return segments


def _shrink(parts: dict[int, tuple[int, int]]) -> None:
    """One part less, of what has most of them; what has one part left is not divided."""
    index = max(parts, key=lambda one: parts[one][0])
    count, input_index = parts[index]
    if count > 2:
        parts[index] = (count - 1, input_index)
    else:
        del parts[index]


def _ranges(segments: Sequence[tuple[int, int]], totals: Sequence[int], count: int) -> list[InputShare]:
    """At most `count` contiguous ranges that cover the segments, or one for each where there are more of those.

    The largest of them is as small as it can be.
    """
    covered = [totals[index] for begin, end in segments for index in range(begin, end)]
    low, high = max(covered, default=0), sum(covered)
    while low < high:
        middle = (low + high) // 2
        if len(_packed(segments, totals, middle)) <= count:
            high = middle
        else:
            low = middle + 1
    return _packed(segments, totals, high)


def _packed(segments: Sequence[tuple[int, int]], totals: Sequence[int], capacity: int) -> list[InputShare]:
    shares = []
    for begin, end in segments:
        first, filled = begin, 0
        for index in range(begin, end):
            if filled and filled + totals[index] > capacity:
                shares.append(InputShare(first, index))
                first, filled = index, 0
            filled += totals[index]
        shares.append(InputShare(first, end))
    return shares


def _exactly(totals: Sequence[int], count: int) -> tuple[InputShare, ...]:
    """`count` ranges, the last of them empty where there are fewer subpartitions with rows."""
    end = len(totals)
    ranges = _ranges([(0, end)], totals, count)
    return (*ranges, *(InputShare(end, end) for _ in range(count - len(ranges))))
