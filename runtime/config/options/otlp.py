"""Options that every reporter by OTLP has, whatever it reports."""

from __future__ import annotations

from runtime.config.option import ConfigOption, matching

OTLP_PACKAGES = "opentelemetry-sdk and opentelemetry-exporter-otlp-proto-http"
OTLP_EXTRA = "pip install 'airflow-flinklike[traces]'"


def otlp_endpoint(prefix: str, path: str) -> ConfigOption[str]:
    """`<prefix>.exporter.endpoint`: the collector, by default on this host."""
    expected = f"a URL without a user, such as http://collector:4318{path} (tokens: OTEL_EXPORTER_OTLP_HEADERS)"
    return ConfigOption(
        f"{prefix}.exporter.endpoint",
        matching(r"https?://[^/\s@]+(/\S*)?", expected),
        f"http://127.0.0.1:4318{path}",
        "URL of the collector, which speaks OTLP over HTTP (protobuf). Headers and certificates are those of "
        "OTEL_EXPORTER_OTLP_HEADERS and OTEL_EXPORTER_OTLP_CERTIFICATE in the environment of the processes.",
        "String",
    )


def otlp_service(prefix: str) -> ConfigOption[str]:
    """`<prefix>.service.name`."""
    return ConfigOption(
        f"{prefix}.service.name",
        matching(r"\S(.{0,253}\S)?", "a name of up to 255 characters, such as nightly; without the option: flinklike"),
        "flinklike",
        "Name of the service in the collector: one for each cluster.",
        "String",
    )
