"""What will happen to whom, drawn from the seed. Pure: the same seed draws the same misfortunes."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import Enum
from random import Random
from typing import TypeVar

T = TypeVar("T")


class FaultKind(Enum):
    """A kind of misfortune: `<role>-<what>`."""

    JOBMASTER_KILL = "jobmaster-kill"
    JOBMASTER_FREEZE = "jobmaster-freeze"
    JOBMASTER_TERMINATE = "jobmaster-terminate"
    JOBMANAGER_KILL = "jobmanager-kill"
    JOBMANAGER_FREEZE = "jobmanager-freeze"
    JOBMANAGER_TERMINATE = "jobmanager-terminate"
    TASKMANAGER_KILL = "taskmanager-kill"
    TASKMANAGER_FREEZE = "taskmanager-freeze"
    TASKMANAGER_TERMINATE = "taskmanager-terminate"
    MAIN_KILL = "main-kill"
    MAIN_FREEZE = "main-freeze"
    GUARD_KILL = "guard-kill"
    TEMPLATE_KILL = "template-kill"
    SLOT_KILL = "slot-kill"
    SPARK_KILL = "spark-kill"
    ETCD_KILL = "etcd-kill"
    ETCD_FREEZE = "etcd-freeze"

    @property
    def role(self) -> str:
        """Of the process that it happens to. `taskmanager` is its watcher, `main` its main process, without guards."""
        return self.value.partition("-")[0]

    @property
    def step(self) -> str:
        """What happens to it."""
        return self.value.partition("-")[2]


CONTROL_PLANE = frozenset(kind for kind in FaultKind if kind.role in {"jobmaster", "jobmanager", "etcd"})
"""These may restart no task."""

_TWICE = frozenset({FaultKind.JOBMASTER_KILL, FaultKind.JOBMANAGER_KILL, FaultKind.TASKMANAGER_KILL})
_FREEZE_SECONDS = {
    FaultKind.JOBMASTER_FREEZE: (0.5, 15.0),
    FaultKind.JOBMANAGER_FREEZE: (0.5, 15.0),
    FaultKind.TASKMANAGER_FREEZE: (0.5, 14.0),
    FaultKind.MAIN_FREEZE: (0.5, 30.0),
    FaultKind.ETCD_FREEZE: (0.5, 8.0),
}
"""A whole TaskManager, guard included, may not outlast the isolation timeout: nobody could end its exclusive tasks."""


@dataclass(frozen=True, slots=True)
class Fault:
    """One misfortune: after `pause` seconds, to the process that `choice` (0 to 1) picks among those of the role.

    A frozen process wakes after `duration`, one that has ended is started again after `absence` seconds.
    """

    kind: FaultKind
    pause: float
    choice: float
    duration: float
    absence: float

    def pick(self, members: Sequence[T]) -> T:
        """The one that it happens to."""
        return members[min(len(members) - 1, int(self.choice * len(members)))]


def faults(seed: int, every: float, kinds: Sequence[FaultKind]) -> Iterator[Fault]:
    """Without end, one every `every` seconds on average: deck after deck, so that a short run has something of all."""
    random = Random(f"{seed}-fate")
    ordered = [kind for kind in FaultKind if kind in kinds]
    while ordered:
        deck = [*ordered, *(kind for kind in ordered if kind in _TWICE)]
        random.shuffle(deck)
        for kind in deck:
            low, high = _FREEZE_SECONDS.get(kind, (0.0, 0.0))
            yield Fault(
                kind,
                pause=every * random.uniform(0.5, 1.5),
                choice=random.random(),
                duration=random.uniform(low, high),
                absence=random.uniform(0.0, 4.0),
            )
