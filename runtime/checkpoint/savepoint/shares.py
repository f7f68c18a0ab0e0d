"""Which subtask of a savepoint a subtask of the job goes on from, where the splits are others than before (R60).

State belongs to the splits that it was read from. So a subtask goes on from the one that had exactly its splits,
whatever its number was; a subtask whose splits are all new begins; splits that had one state together stay together.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from runtime.checkpoint.savepoint.savepoint_form import SavepointQuery
from runtime.common.errors import InvalidInputError
from runtime.jobgraph.splits import share_of

_SHOWN_MAX = 10


@dataclass(frozen=True, slots=True)
class QueryShape:
    """A query of the job. `splits`: the names of all of them, in their order; empty for a query without."""

    parallelism: int
    splits: tuple[str, ...] = ()

    def share(self, subtask_index: int) -> Sequence[str]:
        """The splits of a subtask."""
        return share_of(self.splits, subtask_index, self.parallelism)


def shapes_of(parallelism: Mapping[str, int], splits: Mapping[str, tuple[str, ...]]) -> dict[str, QueryShape]:
    """The queries of a job by their uids."""
    return {uid: QueryShape(number, splits.get(uid, ())) for uid, number in parallelism.items()}


def matched(
    saved: Sequence[SavepointQuery], shape: QueryShape, *, allow_non_restored_state: bool
) -> dict[int, SavepointQuery]:
    """For each subtask of a query, the one that it goes on from; no entry for one that begins.

    `saved`: all subtasks of its uid. Raises InvalidInputError where state would be lost or would meet other splits.
    """
    by_share = {frozenset(query.splits): query for query in saved if query.splits}
    if not shape.splits or len(by_share) != len(saved):
        return _by_number(saved, shape)
    found = {}
    for index in range(shape.parallelism):
        query = by_share.pop(frozenset(shape.share(index)), None)
        if query is not None:
            found[index] = query
    for left in by_share.values():
        _check_left(left, shape, allow_non_restored_state=allow_non_restored_state)
    return found


def _by_number(saved: Sequence[SavepointQuery], shape: QueryShape) -> dict[int, SavepointQuery]:
    """Where subtasks cannot be told apart by their splits, each one goes on from the one of its number."""
    if saved and saved[0].parallelism != shape.parallelism:
        message = (
            f"the savepoint has {saved[0].uid!r} with parallelism {saved[0].parallelism}, and the job has "
            f"{shape.parallelism}: its state belongs to no splits that could be told apart, so run the query with the "
            "parallelism of the savepoint"
        )
        raise InvalidInputError(message)
    return {query.subtask_index: query for query in saved}


def _check_left(left: SavepointQuery, shape: QueryShape, *, allow_non_restored_state: bool) -> None:
    """No subtask of the job has exactly the splits of this one."""
    kept = sorted(set(left.splits) & set(shape.splits))
    if kept:
        owner = shape.splits.index(kept[0]) % shape.parallelism
        message = (
            f"the savepoint has state of {left.uid!r} for the splits {_listed(left.splits)} together, and subtask "
            f"{owner} of the job has {_listed(shape.share(owner))}: one state can neither be parted nor joined. Splits "
            "that a subtask had alone may go to any subtask, alone; others have to stay together"
        )
        raise InvalidInputError(message)
    if not allow_non_restored_state:
        message = (
            f"the savepoint has state of {left.uid!r} for the splits {_listed(left.splits)}, which the job does not "
            "have. Give them to the query, or allow non-restored state (--allow-non-restored-state, "
            "allowNonRestoredState)"
        )
        raise InvalidInputError(message)


def _listed(names: Iterable[str]) -> str:
    every = sorted(names)
    shown = ", ".join(every[:_SHOWN_MAX])
    return f"{shown} and {len(every) - _SHOWN_MAX} more" if len(every) > _SHOWN_MAX else shown or "(none)"
