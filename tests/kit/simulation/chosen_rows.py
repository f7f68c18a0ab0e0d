"""What attempts read of jobs whose parallelism the cluster chooses (R66): each row once, however many they are.

A subtask of such a vertex tells what it has read: (producer, subpartition), or a part of one. What reads its result
joins what all subtasks tell, so the value of the job is the same for every parallelism, as long as nothing is read
twice and nothing is left out.
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterable

from runtime.gateways.task import InputGate, PartitionFile, ResultPartitionSpec

SUBPARTITIONS = 6
_MIB = 1 << 20


def files_of(producer: int, spec: ResultPartitionSpec) -> tuple[PartitionFile, ...]:
    """What a producer writes for a dynamic edge: a file for each subpartition, the first far larger than others."""
    sizes = [
        8 * _MIB * (1 + (producer + index) % 3) if index else 96 * _MIB for index in range(spec.consumer_parallelism)
    ]
    return tuple(PartitionFile(f"p/{index}", size, 1, index) for index, size in enumerate(sizes))


def rows_read(gate: InputGate, values: Iterable[tuple[str, list[int]]]) -> str:
    """What a subtask has read over a dynamic edge. `values`: of each producer, and which subpartitions of it."""
    share = gate.share
    assert share is not None, gate
    found = [
        [value, index, share.part, share.parts]
        for value, subpartitions in values
        for index in subpartitions
        if share.first <= index < share.end
    ]
    return json.dumps({"rows": sorted(found)})


def tells_rows(value: str) -> bool:
    """True for what a subtask of a vertex with a chosen parallelism tells."""
    return value.startswith('{"rows"')


def joined(values: Iterable[str]) -> str | None:
    """What all subtasks of a vertex with a chosen parallelism have read together; None for values of other vertices.

    A subpartition of which each part was read once counts as read once.
    """
    parts: defaultdict[tuple[str, int], list[tuple[int, int]]] = defaultdict(list)
    for value in values:
        if not tells_rows(value):
            return None
        for producer, index, part, count in json.loads(value)["rows"]:
            parts[producer, index].append((part, count))
    rows = []
    for (producer, index), read in parts.items():
        count = read[0][1]
        is_whole = sorted(read) == [(part, count) for part in range(count)]
        rows.append([producer, index, 0, 1] if is_whole else [producer, index, *sorted(read)])
    return json.dumps({"rows": sorted(rows)})


def expected_rows(producers: Iterable[str]) -> str:
    """What they have to have read together."""
    found = [[producer, index, 0, 1] for producer in producers for index in range(SUBPARTITIONS)]
    return json.dumps({"rows": sorted(found)})
