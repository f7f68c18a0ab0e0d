"""Reporting: the metrics of a process with the reporters that its configuration names."""

from __future__ import annotations

import ipaddress
from collections.abc import Callable
from dataclasses import dataclass

from runtime.aio.scope import Scope
from runtime.common.clock import Clock
from runtime.metrics.http_port import MetricsPort
from runtime.metrics.process_figures import watch_loop_lag
from runtime.metrics.registry import NO_METRICS, MetricRegistry


@dataclass(frozen=True, slots=True)
class Exposition:
    """The text of all metrics now, and its content type."""

    render: Callable[[], bytes]
    content_type: str


@dataclass(frozen=True, slots=True)
class Reporting:
    """What a process has for its components, and what it runs. Without a reporter: `NO_REPORTING`."""

    registry: MetricRegistry = NO_METRICS
    exposition: Exposition | None = None
    port: MetricsPort | None = None
    bind_address: str = ""

    def address(self, host: str) -> str:
        """host:port where others scrape this process, whose own host name is `host`; "" where they cannot."""
        if self.port is None:
            return ""
        shown = host if _is_any(self.bind_address) else self.bind_address
        shown = shown.strip("[]")
        return f"[{shown}]:{self.port.port}" if ":" in shown else f"{shown}:{self.port.port}"

    async def run(self, clock: Clock) -> None:
        """Serve until cancelled."""
        async with Scope("metrics") as scope:
            scope.spawn_eternal("loop-lag", watch_loop_lag(self.registry, clock))
            if self.port is not None:
                scope.spawn_eternal("port", self.port.run())


NO_REPORTING = Reporting()


def _is_any(address: str) -> bool:
    try:
        return ipaddress.ip_address(address.strip("[]")).is_unspecified
    except ValueError:
        return False
