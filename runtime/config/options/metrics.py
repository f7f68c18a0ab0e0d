"""Options of metrics and their reporters (D-110)."""

from __future__ import annotations

from runtime.config.option import (
    ConfigOption,
    PortRange,
    bool_option,
    duration_option,
    host_option,
    int_option,
    parse_port_range,
    parse_words,
)
from runtime.config.options.otlp import OTLP_EXTRA, OTLP_PACKAGES, otlp_endpoint, otlp_service

METRICS_REPORTERS: ConfigOption[tuple[str, ...]] = ConfigOption(
    "metrics.reporters",
    parse_words("prometheus", "otlp"),
    (),
    "Who is told the metrics of each process: prometheus serves them in Prometheus' text format, and takes the package "
    "prometheus-client (pip install 'airflow-flinklike[metrics]'); otlp sends them to an OpenTelemetry collector, and "
    f"takes {OTLP_PACKAGES} ({OTLP_EXTRA}). "
    "Without a reporter nothing is counted.",
    "List",
    "(none)",
)
METRICS_PORT: ConfigOption[PortRange] = ConfigOption(
    "metrics.prometheus.port",
    parse_port_range,
    PortRange(0, 0),
    "Port on which each process serves its metrics, without TLS and sign-in; 0 picks a free one, a range such as "
    "9250-9270 the first that is free, so that many processes of a host have ports that a firewall knows. GET "
    "/metrics/targets of REST lists them for Prometheus.",
    "Port or range",
)
METRICS_BIND_ADDRESS = host_option(
    "metrics.prometheus.bind-address", "127.0.0.1", "Interface on which each process serves its metrics."
)
METRICS_ALLOW_UNAUTHENTICATED = bool_option(
    "metrics.prometheus.allow-unauthenticated",
    "Serve metrics beyond loopback: everybody who reaches the port reads how many jobs there are, how busy processes "
    "are, and what fails.",
    default=False,
)
METRICS_MAX_SERIES = int_option(
    "metrics.max-series",
    1000,
    "Series that one metric has in one process at most. Further ones are left out, and counted in "
    "flinklike_metrics_dropped_samples_total.",
    low=100,
    high=100_000,
)
_OTLP = "metrics.reporter.otlp"
METRICS_OTLP_ENDPOINT = otlp_endpoint(_OTLP, "/v1/metrics")
METRICS_OTLP_INTERVAL = duration_option(
    "metrics.reporter.otlp.interval", "10 s", "How often each process sends its metrics.", low="1 s"
)
METRICS_OTLP_SERVICE = otlp_service(_OTLP)
