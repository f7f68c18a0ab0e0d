"""The metrics of a process, as its configuration asks for them (D-110)."""

from __future__ import annotations

import logging
from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from runtime.aio.clock import SystemClock
from runtime.aio.scope import Scope
from runtime.common.clock import Clock
from runtime.common.errors import InvalidInputError
from runtime.common.ids import Incarnation
from runtime.config.configuration import Configuration
from runtime.config.options import metrics as m
from runtime.entrypoint.otlp import COMPONENTS, otlp_resource, without_otlp
from runtime.metrics.reporting import NO_REPORTING, Exposition, Reporting

if TYPE_CHECKING:
    from runtime.metrics.counted import CountedMetrics

logger = logging.getLogger(__name__)


def process_reporting(name: str, configuration: Configuration, incarnation: Incarnation) -> Reporting:
    """Counters, and the reporters: a port that listens, who sends; `NO_REPORTING`, which loads nothing, without one.

    Raises InvalidInputError without the library, UnavailableError when the port is taken.
    """
    reporters = configuration.get(m.METRICS_REPORTERS)
    if not reporters:
        return NO_REPORTING
    from runtime.metrics.counted import CountedMetrics  # noqa: PLC0415 - only where metrics are on
    from runtime.metrics.process_figures import ProcessFigures, watch_loop_lag  # noqa: PLC0415

    component = COMPONENTS.get(name, name)
    clock = SystemClock()
    registry = CountedMetrics(configuration.get(m.METRICS_MAX_SERIES))
    registry.read("process", ProcessFigures(component, clock))
    send = None
    if "otlp" in reporters:
        resource = otlp_resource(name, configuration.get(m.METRICS_OTLP_SERVICE), incarnation)
        send = _otlp(resource, configuration, registry, clock)
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
        if error.name is None or error.name.partition(".")[0] != "prometheus_client":
            raise
        message = (
            f"{m.METRICS_REPORTERS.key}: prometheus takes the package prometheus-client, which is not installed here: "
            "pip install 'airflow-flinklike[metrics]' (or prometheus-client), or remove the option"
        )
        raise InvalidInputError(message) from error
    from runtime.metrics.http_port import MetricsPort, bind_port  # noqa: PLC0415 - as the library

    exposition = Exposition(prometheus.PrometheusText(registry.families, clock), prometheus.CONTENT_TYPE)
    ports, address = configuration.get(m.METRICS_PORT), configuration.get(m.METRICS_BIND_ADDRESS)
    if configuration.get(m.METRICS_ALLOW_UNAUTHENTICATED):
        logger.warning("%s: everybody who reaches this host reads its metrics", m.METRICS_ALLOW_UNAUTHENTICATED.key)
    listener = bind_port(address, range(ports.first, ports.last + 1))
    port = MetricsPort(listener, exposition.render, exposition.content_type)
    return _Served(exposition, address, port.port, port.run, listener.close)


def _otlp(
    resource: dict[str, str], configuration: Configuration, registry: CountedMetrics, clock: Clock
) -> Callable[[], Coroutine[Any, Any, None]]:
    try:
        from runtime.metrics.otlp import OtlpMetrics  # noqa: PLC0415 - an optional library
    except ModuleNotFoundError as error:
        raise without_otlp(error, m.METRICS_REPORTERS.key) from error
    endpoint, interval = configuration.get(m.METRICS_OTLP_ENDPOINT), configuration.get(m.METRICS_OTLP_INTERVAL)
    logger.info("metrics are sent to %s", endpoint)
    seconds = interval.total_seconds()
    return OtlpMetrics(registry.families, clock, endpoint=endpoint, interval=seconds, resource=resource).run
