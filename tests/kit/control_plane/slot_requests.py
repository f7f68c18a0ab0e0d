"""A SlotManager with two TaskManagers and one owner, and short words for its events."""

from __future__ import annotations

import itertools
import json
from collections.abc import Mapping, Sequence
from typing import Any

from runtime.common.ids import AllocationId, Incarnation, JobId
from runtime.common.shares import JobShare, QueueSettings
from runtime.gateways.resource_manager import (
    JobRequirements,
    RegisterTaskManager,
    RequestSlot,
    ResourceProfile,
    ResourceRequirement,
    SlotReport,
    SlotRequestRefused,
    SlotStatus,
    SparkEnvironmentStatus,
)
from runtime.resourcemanager.core import events as ev
from runtime.resourcemanager.core.slot_manager import SlotManager
from runtime.resourcemanager.core.worker_profiles import WorkerProfile, slots_in

ANY_PROFILE = (WorkerProfile("", 1000, ResourceProfile()),)
"""A driver that starts large TaskManagers without labels, whose slots have no memory of their own."""
T1, T2 = Incarnation("a" * 32), Incarnation("b" * 32)
OWNER = Incarnation("c" * 32)
DEFAULT = ResourceProfile()


def job(number: int) -> JobId:
    return JobId(f"{number:032x}")


class Cluster:
    """A SlotManager with short words for its events."""

    def __init__(
        self,
        queues: Mapping[str, QueueSettings] | None = None,
        preemption_timeout: float | None = None,
        profiles: Sequence[WorkerProfile] = (),
    ) -> None:
        ids = itertools.count(1)
        self.shares: dict[JobId, JobShare] = {}
        """Of jobs that are not in the default queue with priority 0."""
        self.manager = SlotManager(
            lambda: AllocationId(f"{next(ids):032x}"),
            self.is_owner,
            share_of=lambda job_id: self.shares.get(job_id, JobShare()),
            queues=queues or {},
            request_timeout=10.0,
            round_seconds=2.0,
            preemption_timeout=preemption_timeout,
            profiles=profiles,
        )
        self.owners: dict[JobId, int] = {}
        """Epochs, where they are others than what was declared."""
        self.at = 100.0

    def is_owner(self, job_id: JobId, incarnation: Incarnation, epoch: int) -> bool:
        return incarnation == OWNER and self.owners.get(job_id, epoch) == epoch

    def handle(self, event: ev.SlotManagerEvent) -> list[Any]:
        return list(self.manager.handle(event, self.at))

    def lacking_slots(self) -> int:
        """All slots of the demand."""
        return sum(slots_in(requests) for requests in self.manager.demand().values())

    def tick(self, seconds: float) -> list[Any]:
        self.at += seconds
        return self.handle(ev.Ticked())

    def register(
        self,
        incarnation: Incarnation,
        slots: int,
        profile: ResourceProfile = DEFAULT,
        spark_conf: dict[str, str] | None = None,
        environment_bytes: int = 0,
        environment_accounts: int = 0,
        worker_id: str = "",
    ) -> list[Any]:
        """`spark_conf` None: a TaskManager without Spark."""
        has_spark, conf = spark_conf is not None, json.dumps(spark_conf or {}).encode()
        registration = RegisterTaskManager(
            incarnation,
            "tm",
            "h:1",
            "h:2",
            "boot",
            "v",
            1,
            slots,
            profile,
            has_spark,
            conf,
            2,
            0,
            environment_bytes=environment_bytes,
            environment_accounts=environment_accounts,
            worker_id=worker_id,
        )
        return [*self.handle(ev.TaskManagerRegistered(registration)), *self.report(incarnation, [None] * slots)]

    def report(
        self,
        incarnation: Incarnation,
        slots: Sequence[tuple[AllocationId, JobId] | None],
        *environments: SparkEnvironmentStatus,
    ) -> list[Any]:
        statuses = tuple(
            SlotStatus(index, None if held is None else held[0], None if held is None else held[1])
            for index, held in enumerate(slots)
        )
        return self.handle(ev.SlotsReported(incarnation, SlotReport(statuses, True, 0, environments=environments)))

    def declare(
        self,
        number: int,
        count: int,
        profile: ResourceProfile = DEFAULT,
        epoch: int = 5,
        unreachable: tuple[Incarnation, ...] = (),
        static_conf: bytes = b"",
        needs_spark: bool = False,
        script_conf: bytes = b"",
        shunned: tuple[Incarnation, ...] = (),
        without: tuple[Incarnation, ...] = (),
    ) -> list[Any]:
        needs = (ResourceRequirement(profile, count, without),) if count else ()
        declared = JobRequirements(
            job(number),
            epoch,
            needs,
            unreachable,
            static_conf,
            needs_spark,
            script_conf,
            shunned=shunned,
        )
        return self.handle(ev.RequirementsDeclared(declared, OWNER, "owner:1"))


def requests(effects: list[Any]) -> list[tuple[Incarnation, RequestSlot]]:
    return [(effect.incarnation, effect.message) for effect in effects if isinstance(effect, ev.SendRequestSlot)]


def refusal(
    peer: Incarnation, request: RequestSlot, *, is_slot_free: bool = False, is_owner_unreachable: bool = False
) -> ev.AllocationRefused:
    return ev.AllocationRefused(
        peer, SlotRequestRefused(request.allocation_id, request.slot_index, "", is_slot_free, is_owner_unreachable)
    )


def reasons(effects: list[Any]) -> dict[JobId, str]:
    return {effect.job_id: effect.waiting.reason for effect in effects if isinstance(effect, ev.NotifyJob)}


def kinds(effects: list[Any]) -> dict[JobId, str]:
    return {effect.job_id: effect.waiting.kind.value for effect in effects if isinstance(effect, ev.NotifyJob)}
