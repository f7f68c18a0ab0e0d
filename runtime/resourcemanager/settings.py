"""The settings of a ResourceManager."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class ResourceManagerSettings:
    """Times in seconds. Every `tick_period` goes out what can wait: which jobs have ended (R16), and reasons."""

    heartbeat_interval: float
    heartbeat_timeout: float
    tick_period: float = 1.0
    task_managers_max: int = 10_000
