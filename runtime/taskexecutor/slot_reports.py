"""The reports to the ResourceManager about this TaskManager's slots, and whether the TaskManager serves."""

from __future__ import annotations

from typing import Any, Protocol

from runtime.aio.watch import Watch
from runtime.gateways.resource_manager import SlotReport
from runtime.taskexecutor.core.task_executor import TaskExecutorCore
from runtime.taskexecutor.core.tenancy import RENEWS
from runtime.taskexecutor.slot_pool import SlotPool, SparkState


class RegisteredLeader(Protocol):
    """The part of the ResourceManagerConnection that slot reports need."""

    @property
    def is_registered(self) -> bool:
        """True while this TaskManager is registered with a leader."""

    def send(self, message: Any, /) -> None:
        """Send a message to the leader; dropped when there is none."""


class SlotReports:
    """Slot reports of one TaskManager. `report` and `note_serving` follow any change of what they read."""

    def __init__(
        self, core: TaskExecutorCore, pool: SlotPool, spark: SparkState | None, leader: RegisteredLeader
    ) -> None:
        self._core = core
        self._pool = pool
        self._spark = spark
        self._leader = leader
        self._reported: SlotReport | None = None
        self.is_stopping = False
        """Once true, no slot is usable any more."""
        self.is_serving: Watch[bool] = Watch(False)  # noqa: FBT003 - a Watch has one argument
        """True while registered with slots that can take tasks."""

    @property
    def are_slots_usable(self) -> bool:
        """True while slots can take tasks."""
        is_ready = self._pool.readiness.value and not self._core.tenancy.is_renewing
        return is_ready and not self.is_stopping and not self._core.withdrawn.drain

    def forget_reported(self) -> None:
        """Send the next report in any case: to the next leader, or to one that has forgotten this TaskManager."""
        self._reported = None

    def report(self) -> None:
        """Send a complete report, if it says something new."""
        if not self._leader.is_registered:
            return
        usable = self.are_slots_usable
        slots = tuple(status for status in self._core.statuses() if usable or status.allocation_id is not None)
        is_warm, problem = (self._spark.is_warm, self._spark.problem) if self._spark is not None else (False, "")
        is_draining = bool(self._core.withdrawn.drain)
        tenancy = self._core.tenancy
        problem = problem or (RENEWS if tenancy.is_renewing else "")
        environments = self._spark.statuses() if self._spark is not None else ()
        report = SlotReport(slots, is_warm, self._core.running, is_draining, problem, tenancy.tenant, environments)
        if report != self._reported:
            self._reported = report
            self._leader.send(report)

    def note_serving(self) -> None:
        """Set `is_serving` to what holds now."""
        is_serving = self._leader.is_registered and self.are_slots_usable
        if is_serving != self.is_serving.value:
            self.is_serving.set(is_serving)
