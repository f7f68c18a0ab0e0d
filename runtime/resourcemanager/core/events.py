"""What happens to the SlotManager (events) and what its ResourceManager then sends (effects)."""

from __future__ import annotations

from dataclasses import dataclass

from runtime.common.ids import Incarnation, JobId
from runtime.gateways.resource_manager import (
    JobRequirements,
    RegisterTaskManager,
    RequestSlot,
    SlotReport,
    SlotRequestRefused,
    SlotsFreed,
)


@dataclass(frozen=True, slots=True)
class TaskManagerRegistered:
    """A TaskManager opened a stream (again); its slots are unknown until its first report."""

    registration: RegisterTaskManager


@dataclass(frozen=True, slots=True)
class SlotsReported:
    """A complete report."""

    incarnation: Incarnation
    report: SlotReport


@dataclass(frozen=True, slots=True)
class AllocationsFreed:
    """Allocations ended; their slots are ready again."""

    incarnation: Incarnation
    freed: SlotsFreed


@dataclass(frozen=True, slots=True)
class AllocationRefused:
    """The TaskManager did not allocate a slot, or cannot offer it."""

    incarnation: Incarnation
    refusal: SlotRequestRefused


@dataclass(frozen=True, slots=True)
class TaskManagerDisconnected:
    """The stream ended: nothing new is allocated there, what is allocated stays counted."""

    incarnation: Incarnation


@dataclass(frozen=True, slots=True)
class TaskManagerLost:
    """The TaskManager was silent for too long: its slots are gone (R18: that fails no attempt)."""

    incarnation: Incarnation


@dataclass(frozen=True, slots=True)
class RequirementsDeclared:
    """The complete requirement set of a job, from the owner that the leader knows (R7)."""

    requirements: JobRequirements
    owner: Incarnation
    owner_address: str


@dataclass(frozen=True, slots=True)
class JobsFinished:
    """Jobs with a stored result need nothing any more; their slots come back by SlotsFreed."""

    jobs: tuple[JobId, ...]


@dataclass(frozen=True, slots=True)
class Ticked:
    """Time passed."""


SlotManagerEvent = (
    TaskManagerRegistered
    | SlotsReported
    | AllocationsFreed
    | AllocationRefused
    | TaskManagerDisconnected
    | TaskManagerLost
    | RequirementsDeclared
    | JobsFinished
    | Ticked
)


@dataclass(frozen=True, slots=True)
class SendRequestSlot:
    """Ask a TaskManager for one slot."""

    incarnation: Incarnation
    message: RequestSlot


@dataclass(frozen=True, slots=True)
class NotifyJob:
    """Tell a job's owner why its requirements are not fulfilled, "" when they are."""

    job_id: JobId
    reason: str


@dataclass(frozen=True, slots=True)
class OwnerCutOff:
    """The job's owner under that epoch has not reached what the job needs for long: another one may (R7)."""

    job_id: JobId
    epoch: int


SlotManagerEffect = SendRequestSlot | NotifyJob | OwnerCutOff
