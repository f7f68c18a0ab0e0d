"""The metrics of a process, as its configuration asks for them (D-110)."""

from __future__ import annotations

import logging
import os
import socket
from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from runtime.aio.clock import SystemClock
from runtime.aio.scope import Scope
from runtime.common.clock import Clock
from runtime.common.errors import InvalidInputError
from runtime.common.version import VERSION
from runtime.config.configuration import Configuration
from runtime.config.options import metrics as m
from runtime.metrics.reporting import NO_REPORTING, Exposition, Reporting

if TYPE_CHECKING:
    from runtime.metrics.counted import CountedMetrics

logger = logging.getLogger(__name__)

_COMPONENTS = {"local cluster": "local", "TaskManager": "taskmanager"}
"""By the name of the process; the others are called as they are."""
_LIBRARIES = ("prometheus_client", "opentelemetry", "requests")


def process_reporting(name: str, configuration: Configuration) -> Reporting:
    """Counters, and the reporters: a port that listens, who sends; `NO_REPORTING`, which loads nothing, without one.

    Raises InvalidInputError without the library, UnavailableError when the port is taken.
    """
    reporters = configuration.get(m.METRICS_REPORTERS)
    if not reporters:
        return NO_REPORTING
    from runtime.metrics.counted import CountedMetrics  # noqa: PLC0415 - only where metrics are on
    from runtime.metrics.process_figures import ProcessFigures, watch_loop_lag  # noqa: PLC0415

    component = _COMPONENTS.get(name, name)
    clock = SystemClock()
    registry = CountedMetrics(configuration.get(m.METRICS_MAX_SERIES))
    registry.read("process", ProcessFigures(component, clock))
    send = _otlp(component, configuration, registry, clock) if "otlp" in reporters else None
    served = _prometheus(configuration, registry, clock) if "prometheus" in reporters else None

    async def run(loop_clock: Clock) -> None:
        async with Scope("metrics") as scope:
            scope.spawn_eternal("loop-lag", watch_loop_lag(registry, loop_clock))
            if send is not None:
                scope.spawn_eternal("otlp", send())
            if served is not None:
                scope.spawn_eternal("port", served.run())

    if served is None:
        return Reporting(registry, run=run)
    return Reporting(registry, served.exposition, served.address, served.port, run, served.close)


@dataclass(frozen=True, slots=True)
class _Served:
    exposition: Exposition
    address: str
    port: int
    run: Callable[[], Coroutine[Any, Any, None]]
    close: Callable[[], None]


def _prometheus(configuration: Configuration, registry: CountedMetrics, clock: Clock) -> _Served:
    try:
        from runtime.metrics import prometheus  # noqa: PLC0415 - an optional library
    except ModuleNotFoundError as error:
        raise _missing(error, "prometheus", "prometheus-client", "metrics") from error
    from runtime.metrics.http_port import MetricsPort, bind_port  # noqa: PLC0415 - as the library

    exposition = Exposition(prometheus.PrometheusText(registry.families, clock), prometheus.CONTENT_TYPE)
    ports, address = configuration.get(m.METRICS_PORT), configuration.get(m.METRICS_BIND_ADDRESS)
    if configuration.get(m.METRICS_ALLOW_UNAUTHENTICATED):
        logger.warning("%s: everybody who reaches this host reads its metrics", m.METRICS_ALLOW_UNAUTHENTICATED.key)
    listener = bind_port(address, range(ports.first, ports.last + 1))
    port = MetricsPort(listener, exposition.render, exposition.content_type)
    return _Served(exposition, address, port.port, port.run, listener.close)


def _otlp(
    component: str, configuration: Configuration, registry: CountedMetrics, clock: Clock
) -> Callable[[], Coroutine[Any, Any, None]]:
    try:
        from runtime.metrics.otlp import OtlpMetrics  # noqa: PLC0415 - an optional library
    except ModuleNotFoundError as error:
        raise _missing(error, "otlp", "opentelemetry-exporter-otlp-proto-http", "traces") from error
    resource = {
        "service.name": configuration.get(m.METRICS_OTLP_SERVICE),
        "service.version": VERSION,
        "service.instance.id": f"{socket.gethostname()}-{os.getpid()}",
        "flinklike.process": component,
    }
    endpoint, interval = configuration.get(m.METRICS_OTLP_ENDPOINT), configuration.get(m.METRICS_OTLP_INTERVAL)
    logger.info("metrics are sent to %s", endpoint)
    seconds = interval.total_seconds()
    return OtlpMetrics(registry.families, clock, endpoint=endpoint, interval=seconds, resource=resource).run


def _missing(error: ModuleNotFoundError, reporter: str, package: str, extra: str) -> Exception:
    if error.name is None or error.name.partition(".")[0] not in _LIBRARIES:
        return error
    return InvalidInputError(
        f"{m.METRICS_REPORTERS.key}: {reporter} takes the package {package}, which is not installed here: "
        f"pip install 'airflow-flinklike[{extra}]' (or {package}), or remove the option"
    )
