"""Gives the state of a restored query another number of partitions, before the query has its directory (R60).

Spark does it: it writes a batch behind the last one, which reads nothing, has the state in its new partitions, and is
committed. What is here decides whether there is anything to do, checks what Spark has left, and deletes partitions
that are none any more.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from runtime.checkpoint.savepoint.file_tree import FileTree, sync_directory
from runtime.checkpoint.savepoint.savepoint_form import SavepointQuery
from runtime.common.deletion import delete_tree
from runtime.common.errors import InvalidInputError
from runtime.common.json_text import parse_json
from runtime.common.stream_progress import NO_BATCH

_ENTRY_BYTES_MAX = 16 * 1024 * 1024
_OWN_NUMBER = "spark.sql.streaming.internal.stateStore.partitions"
_NUMBERS = (_OWN_NUMBER, "spark.sql.shuffle.partitions")
"""Where an entry of `offsets` has the number of partitions; before Spark 4.1 it had one for state and shuffles."""


@dataclass(frozen=True, slots=True)
class Partitions:
    """`wanted`: how many the state is to have. `is_named`: it was asked for this query, not for all that have state.

    `repartition`: has Spark do it, for a directory and a number; it returns when that is committed. `note_batch`: has
    Spark note in the log of a file sink that a batch has written no files.
    """

    wanted: int
    is_named: bool
    repartition: Callable[[Path, int], None]
    note_batch: Callable[[Path, int], None]


@dataclass(frozen=True, slots=True)
class PartitionsChange:
    """How many partitions the state had and has; `before` is 0 for a query without state. `batch_id`: the last one."""

    before: int
    after: int
    batch_id: int

    @property
    def is_done(self) -> bool:
        """True if there was something to do."""
        return self.before != self.after


def change_partitions(part: Path, found: SavepointQuery, partitions: Partitions) -> PartitionsChange:
    """Have the state in `part`, which holds what the savepoint has of a query, in the wanted number of partitions.

    Raises InvalidInputError where it was asked for a query that has no state, where the number that there is cannot be
    read, where Spark would lose state, and where Spark has not done it; and what `repartition` raises.
    """
    batch_id, wanted = found.snapshot.batch_id, partitions.wanted
    if batch_id == NO_BATCH or not FileTree(part).listing("state").directories:
        if partitions.is_named:
            message = f"the query {found.uid!r} has no state in the savepoint whose partitions could be {wanted}"
            raise InvalidInputError(message)
        return PartitionsChange(0, 0, batch_id)
    before = partitions_of(part, batch_id)
    if before == wanted:
        return PartitionsChange(before, wanted, batch_id)
    _refuse_lone_partitions(part, found.uid, before)
    partitions.repartition(part, wanted)
    batch_id += 1
    if not (part / "commits" / str(batch_id)).is_file() or partitions_of(part, batch_id) != wanted:
        message = f"Spark has not written batch {batch_id} with the state of {found.uid!r} in {wanted} partitions"
        raise InvalidInputError(message)
    _delete_partitions(part, wanted)
    return PartitionsChange(before, wanted, batch_id)


def partitions_of(directory: Path, batch_id: int) -> int:
    """How many partitions the state of a query has in a batch, from its offsets. Raises InvalidInputError."""
    try:
        lines = FileTree(directory).read(f"offsets/{batch_id}", _ENTRY_BYTES_MAX).decode(errors="replace").split("\n")
        told = parse_json(lines[1])
    except (FileNotFoundError, IndexError, ValueError) as error:
        message = (
            f"offsets of batch {batch_id} in {directory} cannot be read, so nobody knows the partitions of its state"
        )
        raise InvalidInputError(message) from error
    conf = told.get("conf") if isinstance(told, dict) else None
    numbers = [str(conf[key]) for key in _NUMBERS if key in conf] if isinstance(conf, dict) else []
    if not numbers or not (numbers[0].isascii() and numbers[0].isdigit()):
        message = f"offsets of batch {batch_id} in {directory} do not say how many partitions its state has"
        raise InvalidInputError(message)
    return int(numbers[0])


def _refuse_lone_partitions(part: Path, uid: str, number: int) -> None:
    """Spark keeps the state of an aggregation without keys in partition 0, whatever the number, and reads it there.

    Its repartition would put that state where the hash of no keys leads: the next batch would begin with nothing. Of
    state in one partition nobody can tell whether it is of that kind.
    """
    tree = FileTree(part)
    for operator in tree.listing("state").directories:
        at = f"state/{operator}"
        there = {name for name in tree.listing(at).directories if name.isdigit() and tree.below(f"{at}/{name}")}
        if number == 1 or there != {str(index) for index in range(number)}:
            message = (
                f"the state of {uid!r} keeps its partitions: operator {operator} has it in {len(there)} of {number}, "
                "as of an aggregation without keys or a limit, and Spark would lose it when they become others. Start "
                "the job without state partitions for this query"
            )
            raise InvalidInputError(message)


def _delete_partitions(part: Path, number: int) -> None:
    """State of partitions that are none any more: no later batch has a version of it."""
    tree = FileTree(part)
    for operator in tree.listing("state").directories:
        for name in tree.listing(f"state/{operator}").directories:
            gone = part / "state" / operator / name
            if name.isascii() and name.isdigit() and int(name) >= number and (failures := delete_tree(gone)):
                raise failures[0]
        sync_directory(part / "state" / operator)
