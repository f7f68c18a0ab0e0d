"""What Airflow's ProvidersManager learns about this distribution."""

from __future__ import annotations

from typing import Any

from runtime.common.version import VERSION

_INTEGRATION = "Flinklike"


def get_provider_info() -> dict[str, Any]:
    """The provider's metadata, in the form of Airflow's provider_info.schema.json."""
    return {
        "package-name": "airflow-flinklike",
        "name": "Flinklike",
        "description": "PySpark jobs on a session cluster with warm slots",
        "versions": [VERSION],
        "integrations": [{"integration-name": _INTEGRATION, "external-doc-url": "", "tags": ["software"]}],
        "operators": [_modules("airflow_flinklike.operators.submit")],
        "sensors": [_modules("airflow_flinklike.sensors.job")],
        "hooks": [_modules("airflow_flinklike.hooks.flinklike")],
        "triggers": [_modules("airflow_flinklike.triggers.job")],
        "connection-types": [_connection_type()],
        "extra-links": ["airflow_flinklike.links.FlinklikeJobLink"],
        "task-decorators": [
            {"name": "flinklike", "class-name": "airflow_flinklike.decorators.flinklike.flinklike_task"}
        ],
        "plugins": [{"name": "flinklike", "plugin-class": "airflow_flinklike.plugin.FlinklikePlugin"}],
    }


def _modules(module: str) -> dict[str, Any]:
    return {"integration-name": _INTEGRATION, "python-modules": [module]}


def _connection_type() -> dict[str, Any]:
    return {
        "connection-type": "flinklike",
        "hook-class-name": "airflow_flinklike.hooks.flinklike.FlinklikeHook",
        "hook-name": "Flinklike",
        "ui-field-behaviour": {
            "hidden-fields": ["login"],
            "relabeling": {"password": "Token", "schema": "Scheme"},
            "placeholders": {
                "host": "127.0.0.1, or jm1:8081,jm2:8081",
                "port": "8081",
                "schema": "http",
                "password": "the content of run/token on the cluster",
            },
        },
        "conn-fields": {
            "token_file": {
                "label": "Token file",
                "description": "File on the workers that holds the cluster's token; used when Token is empty",
                "schema": {"type": ["string", "null"]},
            },
            "verify": {
                "label": "Verify TLS",
                "description": "true, false, or the path of a CA file; for https only",
                "schema": {"type": ["string", "null"], "default": "true"},
            },
            "ui_url": {
                "label": "URL for browsers",
                "description": "Where the job links lead; default: the first address",
                "schema": {"type": ["string", "null"]},
            },
        },
    }
