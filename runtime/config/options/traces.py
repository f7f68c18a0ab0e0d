"""Options of traces and their reporters (D-114)."""

from __future__ import annotations

from runtime.config.option import ConfigOption, float_option, parse_words
from runtime.config.options.otlp import OTLP_EXTRA, OTLP_PACKAGES, otlp_endpoint, otlp_service

TRACES_REPORTERS: ConfigOption[tuple[str, ...]] = ConfigOption(
    "traces.reporters",
    parse_words("otlp"),
    (),
    f"Who is told the traces of jobs: otlp sends them to an OpenTelemetry collector. It takes the packages "
    f"{OTLP_PACKAGES} ({OTLP_EXTRA}). Without a reporter no job has a trace.",
    "List",
    "(none)",
)
_OTLP = "traces.reporter.otlp"
TRACES_ENDPOINT = otlp_endpoint(_OTLP, "/v1/traces")
TRACES_SERVICE = otlp_service(_OTLP)
TRACES_RATIO = float_option(
    "traces.sample-ratio",
    1.0,
    "Share of the jobs without a trace of their caller that get one. Jobs with one are sampled as their caller is.",
    low=0.0,
    high=1.0,
)
