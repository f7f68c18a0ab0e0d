"""How the rows of an edge reach the consumer's subtasks (semantics.md, Pipeline API)."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

AUTO_PARALLELISM = -1
"""The parallelism of a vertex that its scheduler chooses while the job runs. Flink shows it so, too."""


class ExchangeMode(Enum):
    """Shared by the JobGraph, the scheduler and the slots."""

    FORWARD = "FORWARD"
    HASH = "HASH"
    REBALANCE = "REBALANCE"
    BROADCAST = "BROADCAST"
    GATHER = "GATHER"

    @property
    def divides(self) -> bool:
        """True where each row reaches one subtask, and which one depends on how many there are."""
        return self in {ExchangeMode.HASH, ExchangeMode.REBALANCE}


@dataclass(frozen=True, slots=True)
class InputShare:
    """What a subtask of a vertex with a chosen parallelism reads of its divided inputs (Flink's IndexRange).

    Subpartitions from `first` to before `end`. With `parts` above 1, of the input `split_input` only the rows of part
    number `part`, and all rows of the other inputs: a subpartition that is far larger than the others has several
    subtasks.
    """

    first: int
    end: int
    part: int = 0
    parts: int = 1
    split_input: int = -1
