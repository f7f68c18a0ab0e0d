"""The inheritance of a later owner: durable events, and the answers of TaskManagers to its census (R6)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from runtime.common.ids import Incarnation
from runtime.executiongraph.core.execution import TaskManagerLocation
from runtime.gateways.job_master import HeldAttempt, SlotOffer
from runtime.scheduler.core import events as ev


@dataclass(slots=True)
class CensusAnswer:
    """The answer of one TaskManager: ACTIVE slots, attempts, and whether it moves the outputs of the job."""

    location: TaskManagerLocation
    slots: tuple[SlotOffer, ...] = ()
    attempts: list[HeldAttempt] = field(default_factory=list)
    is_complete: bool = False
    is_moving: bool = False


@dataclass(frozen=True, slots=True)
class Inheritance:
    """All of it, once the census is complete. The scheduler handles what is `kept` after the answers.

    `unheard`: TaskManagers that are there and have not answered, so that their slots are of no use to the job (R7).
    """

    read: ev.JobRead
    answers: Sequence[CensusAnswer]
    kept: Sequence[ev.TaskManagerSpoke]
    unheard: frozenset[Incarnation]
