"""Settings of a TaskManager's endpoint and connections. Durations in seconds; entry points fill them from options."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

from runtime.aio.retry import RetryPolicy
from runtime.gateways.resource_manager import RegisterTaskManager
from runtime.heartbeat.core.monitor import HeartbeatTiming
from runtime.taskexecutor.core.task_executor import TaskExecutorCore
from runtime.taskexecutor.unpacking.limits import UnpackLimits


@dataclass(frozen=True, slots=True)
class ConnectionSettings:
    """How this process keeps its streams."""

    connect_timeout: float = 5.0
    heartbeat: HeartbeatTiming = field(default_factory=lambda: HeartbeatTiming(interval=2.0, timeout=10.0))
    # First retries are quick: a restarted peer is back within a second; later ones spare a dead one.
    retry: RetryPolicy = field(default_factory=lambda: RetryPolicy(delay_initial=0.05, delay_max=2.0))


@dataclass(frozen=True, slots=True)
class TaskExecutorSettings:
    """How long a TaskExecutor waits and how much it keeps."""

    log_directory: Path
    secrets_directory: str = ""
    slot_timeout: float = 10.0
    registration_timeout: float = 300.0
    owner_timeout: float = 900.0
    drain_timeout: float = 20.0
    queue_max: int = 8
    reports_max: int = 20_000
    report_bytes_max: int = 64 << 20
    mailbox_max: int = 100_000
    connections: ConnectionSettings = field(default_factory=ConnectionSettings)
    archives: UnpackLimits = field(default_factory=UnpackLimits)

    def new_core(self, registration: RegisterTaskManager) -> TaskExecutorCore:
        """The core for one life of the TaskManager."""
        return TaskExecutorCore(
            registration.task_manager_id,
            slots=registration.slots,
            queue_max=self.queue_max,
            reports_max=self.reports_max,
            report_bytes_max=self.report_bytes_max,
            owner_timeout=self.owner_timeout,
            has_tenants=registration.has_tenants,
        )
