"""The settings of a ResourceManager."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from runtime.common.shares import QueueSettings
from runtime.resourcemanager.core.workers import WorkerSettings


@dataclass(frozen=True, slots=True)
class ResourceManagerSettings:
    """Times in seconds. Every `tick_period` goes out what can wait: which jobs have ended (R16), and reasons.

    `workers`: of TaskManagers that a driver starts; None without one.
    """

    heartbeat_interval: float
    heartbeat_timeout: float
    tick_period: float = 1.0
    task_managers_max: int = 10_000
    workers: WorkerSettings | None = None
    queues: Mapping[str, QueueSettings] = field(default_factory=dict)
    """Those with options (D-128)."""
    preemption_timeout: float | None = None
    """How long a queue waits with less than its share before slots are taken from others (D-130); None: for ever."""
