"""Options of traces and their reporters (D-114)."""

from __future__ import annotations

from runtime.config.option import ConfigOption, float_option, matching, parse_words, string_option

TRACES_REPORTERS: ConfigOption[tuple[str, ...]] = ConfigOption(
    "traces.reporters",
    parse_words("otlp"),
    (),
    "Who is told the traces of jobs: otlp sends them to an OpenTelemetry collector. It takes the packages "
    "opentelemetry-sdk and opentelemetry-exporter-otlp-proto-http (pip install 'airflow-flinklike[traces]'). Without "
    "a reporter no job has a trace.",
    "List",
    "(none)",
)
TRACES_ENDPOINT: ConfigOption[str] = ConfigOption(
    "traces.reporter.otlp.exporter.endpoint",
    matching(
        r"https?://[^/\s@]+(/\S*)?",
        "a URL without a user, such as http://collector:4318/v1/traces (tokens: OTEL_EXPORTER_OTLP_HEADERS)",
    ),
    "http://127.0.0.1:4318/v1/traces",
    "URL of the collector, which speaks OTLP over HTTP (protobuf). Headers and certificates are those of "
    "OTEL_EXPORTER_OTLP_HEADERS and OTEL_EXPORTER_OTLP_CERTIFICATE in the environment of the processes.",
    "String",
)
TRACES_SERVICE = string_option(
    "traces.reporter.otlp.service.name", "flinklike", "Name of the service in the collector: one for each cluster."
)
TRACES_RATIO = float_option(
    "traces.sample-ratio",
    1.0,
    "Share of the jobs without a trace of their caller that get one. Jobs with one are sampled as their caller is.",
    low=0.0,
    high=1.0,
)
