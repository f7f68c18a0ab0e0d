"""A ResourceManager behind the REST application that says what a test puts into it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from runtime.common.errors import NotFoundError
from runtime.common.ids import AllocationId, Incarnation, JobId
from runtime.common.shares import QueueStatus
from runtime.common.spark_environments import SparkOffer
from runtime.common.waiting import NOT_WAITING, Waiting
from runtime.gateways.delegation_tokens import DelegationTokenStatus
from runtime.gateways.overview import WorkersStatus
from runtime.gateways.resource_manager import (
    RegisterTaskManager,
    ResourceProfile,
    SlotStatus,
    SparkEnvironmentStatus,
    TaskManagerInfo,
)

JOB = JobId("a" * 32)
"""The job that has a slot."""


class FakeResourceManager:
    """ResourceManagerView with one TaskManager."""

    offers: Sequence[SparkOffer] = ()
    is_draining = False
    queue_statuses: Sequence[QueueStatus] = ()
    waiting: Mapping[JobId, Waiting] = {}
    worker_statuses: Sequence[WorkersStatus] = ()

    async def drain_task_manager(self, task_manager_id: str, /, *, is_draining: bool) -> None:
        """Done at once."""
        if task_manager_id != "tm-1":
            raise NotFoundError(f"TaskManager {task_manager_id} not found")
        self.is_draining = is_draining

    def task_managers(self) -> Sequence[TaskManagerInfo]:
        """A TaskManager with two slots, one of which is taken."""
        registration = RegisterTaskManager(
            Incarnation("c" * 32), "tm-1", "127.0.0.1:1", "127.0.0.1:9", "boot", "0.1.0", 1, 2,
            ResourceProfile(1.0, 1 << 30, "sql", ("gpu=a100",)), True, b'{"spark.master": "local[*]"}', 2, 8 << 30, "",
            "4.3.0", not_enforced=("users", "pids"),
        )  # fmt: skip
        slots = (SlotStatus(0, AllocationId("d" * 32), JOB), SlotStatus(1, None, None))
        environments = (SparkEnvironmentStatus("e" * 16, 2 << 30, 1), SparkEnvironmentStatus("f" * 16, 1 << 30, 0))
        return [TaskManagerInfo(registration, 1, True, 1, 5, slots, self.is_draining, environments=environments)]

    def slot_counts(self) -> tuple[int, int]:
        """Two, one free."""
        return 2, 1

    def queues(self) -> Sequence[QueueStatus]:
        """What the test says."""
        return self.queue_statuses

    def waiting_of(self, job_id: JobId, /) -> Waiting:
        """What the test says."""
        return self.waiting.get(job_id, NOT_WAITING)

    def workers(self) -> Sequence[WorkersStatus]:
        """What the test says."""
        return self.worker_statuses

    def delegation_tokens(self) -> Sequence[DelegationTokenStatus]:
        """One provider that fails."""
        return [DelegationTokenStatus("vault", 1_800_000_000_000, 2, "vault ended with code 1")]

    def spark_offers(self) -> Sequence[SparkOffer]:
        """What the test says."""
        return self.offers
