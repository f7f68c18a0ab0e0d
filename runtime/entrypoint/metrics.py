"""The metrics of a process, as its configuration asks for them (D-110)."""

from __future__ import annotations

import logging

from runtime.aio.clock import SystemClock
from runtime.aio.scope import Scope
from runtime.common.clock import Clock
from runtime.common.errors import InvalidInputError
from runtime.config.configuration import Configuration
from runtime.config.options import metrics as m
from runtime.metrics.reporting import NO_REPORTING, Exposition, Reporting

logger = logging.getLogger(__name__)

_COMPONENTS = {"local cluster": "local", "TaskManager": "taskmanager"}
"""By the name of the process; the others are called as they are."""


def process_reporting(name: str, configuration: Configuration) -> Reporting:
    """Counters, and a port that listens; `NO_REPORTING`, which loads nothing, without a reporter.

    Raises InvalidInputError without the library, UnavailableError when the port is taken.
    """
    if "prometheus" not in configuration.get(m.METRICS_REPORTERS):
        return NO_REPORTING
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
    from runtime.metrics.counted import CountedMetrics  # noqa: PLC0415 - as the library, only where it is used
    from runtime.metrics.http_port import MetricsPort, bind_port  # noqa: PLC0415
    from runtime.metrics.process_figures import ProcessFigures, watch_loop_lag  # noqa: PLC0415

    clock = SystemClock()
    registry = CountedMetrics(configuration.get(m.METRICS_MAX_SERIES))
    registry.read("process", ProcessFigures(_COMPONENTS.get(name, name), clock))
    exposition = Exposition(prometheus.PrometheusText(registry.families, clock), prometheus.CONTENT_TYPE)
    ports, address = configuration.get(m.METRICS_PORT), configuration.get(m.METRICS_BIND_ADDRESS)
    if configuration.get(m.METRICS_ALLOW_UNAUTHENTICATED):
        logger.warning("%s: everybody who reaches this host reads its metrics", m.METRICS_ALLOW_UNAUTHENTICATED.key)
    listener = bind_port(address, range(ports.first, ports.last + 1))
    port = MetricsPort(listener, exposition.render, exposition.content_type)

    async def run(loop_clock: Clock) -> None:
        async with Scope("metrics") as scope:
            scope.spawn_eternal("loop-lag", watch_loop_lag(registry, loop_clock))
            scope.spawn_eternal("port", port.run())

    return Reporting(registry, exposition, address, port.port, run, listener.close)
