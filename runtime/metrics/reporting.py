"""Reporting: the metrics of a process with the reporters that its configuration names.

Every process loads this, and what reports only where it is on.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from typing import Any

from runtime.common.clock import Clock
from runtime.metrics.registry import NO_METRICS, MetricRegistry


@dataclass(frozen=True, slots=True)
class Exposition:
    """The text of all metrics now, and its content type."""

    render: Callable[[], bytes]
    content_type: str


def _nothing() -> None:
    """There is no port."""


@dataclass(frozen=True, slots=True)
class Reporting:
    """What a process has for its components, and what it runs (eternal, by its clock). Without a reporter:
    `NO_REPORTING`."""

    registry: MetricRegistry = NO_METRICS
    exposition: Exposition | None = None
    bind_address: str = ""
    port: int = 0
    run: Callable[[Clock], Coroutine[Any, Any, None]] | None = None
    close: Callable[[], None] = _nothing
    """Gives the port back, where `run` was never started."""

    def address(self, host: str) -> str:
        """host:port where others scrape this process, whose own host name is `host`; "" where they cannot."""
        if not self.port:
            return ""
        shown = (host if _is_any(self.bind_address) else self.bind_address).strip("[]")
        return f"[{shown}]:{self.port}" if ":" in shown else f"{shown}:{self.port}"


NO_REPORTING = Reporting()


def _is_any(address: str) -> bool:
    try:
        return ipaddress.ip_address(address.strip("[]")).is_unspecified
    except ValueError:
        return False
