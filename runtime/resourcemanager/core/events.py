"""The events of the SlotManager, and its effects, which the ResourceManager sends."""

from __future__ import annotations

from dataclasses import dataclass

from runtime.common.ids import Incarnation, JobId
from runtime.common.waiting import Waiting
from runtime.gateways.resource_manager import (
    JobRequirements,
    PreemptionRefused,
    PreemptSlots,
    RegisterTaskManager,
    RequestSlot,
    SlotReport,
    SlotRequestRefused,
    SlotsFreed,
)


@dataclass(frozen=True, slots=True)
class TaskManagerRegistered:
    """A TaskManager has opened a stream (again); its slots are unknown until its first report."""

    registration: RegisterTaskManager


@dataclass(frozen=True, slots=True)
class SlotsReported:
    """A TaskManager has reported all its slots."""

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
class SlotsKept:
    """A TaskManager does not give slots back that it was asked for."""

    incarnation: Incarnation
    refusal: PreemptionRefused


@dataclass(frozen=True, slots=True)
class TaskManagerDisconnected:
    """The stream of a TaskManager has ended: it gets no new allocations and keeps those that it has."""

    incarnation: Incarnation


@dataclass(frozen=True, slots=True)
class TaskManagerLost:
    """A TaskManager is lost, or dead: its slots are not there any more (R18: that fails no attempt)."""

    incarnation: Incarnation


@dataclass(frozen=True, slots=True)
class RequirementsDeclared:
    """The owner of a job, as the leader knows it, has declared all that the job needs (R7)."""

    requirements: JobRequirements
    owner: Incarnation
    owner_address: str


@dataclass(frozen=True, slots=True)
class JobsFinished:
    """Jobs have a stored result and need nothing any more; SlotsFreed gives their slots back."""

    jobs: tuple[JobId, ...]


@dataclass(frozen=True, slots=True)
class AdviceChanged:
    """What is to be done without a TaskManager: who starts one, or why none starts.

    `coming`: what jobs are told that wait for slots in use, "" when nothing is coming.
    """

    advice: str
    coming: str = ""


@dataclass(frozen=True, slots=True)
class Ticked:
    """Time passed. `is_more_coming`: a driver starts TaskManagers, or would for jobs that wait."""

    is_more_coming: bool = False


SlotManagerEvent = (
    TaskManagerRegistered
    | SlotsReported
    | AllocationsFreed
    | AllocationRefused
    | SlotsKept
    | TaskManagerDisconnected
    | TaskManagerLost
    | RequirementsDeclared
    | JobsFinished
    | AdviceChanged
    | Ticked
)


@dataclass(frozen=True, slots=True)
class SendRequestSlot:
    """Ask a TaskManager for one slot."""

    incarnation: Incarnation
    message: RequestSlot


@dataclass(frozen=True, slots=True)
class NotifyJob:
    """Tell a job's owner why its requirements are not fulfilled, or that they are."""

    job_id: JobId
    waiting: Waiting


@dataclass(frozen=True, slots=True)
class OwnerCutOff:
    """The owner under that epoch could not reach what the job needs for too long: another owner may (R7)."""

    job_id: JobId
    epoch: int


@dataclass(frozen=True, slots=True)
class SendPreemptSlots:
    """Have a TaskManager give slots back for a queue that holds less than its share."""

    incarnation: Incarnation
    message: PreemptSlots


SlotManagerEffect = SendRequestSlot | NotifyJob | OwnerCutOff | SendPreemptSlots
