"""The metadata that Airflow's ProvidersManager reads."""

from __future__ import annotations

from typing import Any

from airflow_flinklike.airflow_options import SECTION, config_section
from airflow_flinklike.connection_form import HIDDEN_FIELDS, PLACEHOLDERS, RELABELING
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
        "operators": [
            _modules(
                "airflow_flinklike.operators.submit",
                "airflow_flinklike.operators.sql",
                "airflow_flinklike.operators.application",
                "airflow_flinklike.operators.cancel",
                "airflow_flinklike.operators.savepoint",
            )
        ],
        "sensors": [
            _modules(
                "airflow_flinklike.sensors.job",
                "airflow_flinklike.sensors.cluster",
                "airflow_flinklike.sensors.stream",
            )
        ],
        "hooks": [_modules("airflow_flinklike.hooks.flinklike")],
        "triggers": [
            _modules(
                "airflow_flinklike.triggers.job",
                "airflow_flinklike.triggers.sensing",
                "airflow_flinklike.triggers.savepoint",
            )
        ],
        "connection-types": [_connection_type()],
        "config": {SECTION: config_section()},
        "extra-links": ["airflow_flinklike.links.job.FlinklikeJobLink"],
        "task-decorators": [
            {"name": "flinklike", "class-name": "airflow_flinklike.decorators.flinklike.flinklike_task"},
            {"name": "flinklike_branch", "class-name": "airflow_flinklike.decorators.branch.flinklike_branch_task"},
            {"name": "flinklike_sensor", "class-name": "airflow_flinklike.decorators.sensor.flinklike_sensor_task"},
        ],
        # The plugin is an entry point of the package: named here too, it would be found twice and shown as an error.
    }


def _modules(*modules: str) -> dict[str, Any]:
    return {"integration-name": _INTEGRATION, "python-modules": list(modules)}


def _connection_type() -> dict[str, Any]:
    return {
        "connection-type": "flinklike",
        "hook-class-name": "airflow_flinklike.hooks.flinklike.FlinklikeHook",
        "hook-name": "Flinklike",
        "ui-field-behaviour": {
            "hidden-fields": list(HIDDEN_FIELDS),
            "relabeling": dict(RELABELING),
            "placeholders": dict(PLACEHOLDERS),
        },
        "conn-fields": {
            "tls": _field("TLS", "Speak https to the cluster", "boolean", default=False),
            "verify": _field("Verify TLS", "true, false, or the path of a CA file", "string", default="true"),
            "cert": _field(
                "Client certificate",
                "Where the cluster asks for one: PEM file on the workers and the triggerer, with its key or beside Key",
                "string",
            ),
            "key": _field("Key", "PEM file of the client certificate's key", "string"),
            "addresses": _field("More JobManagers", "Asked when Host does not answer: jm-2:8081,jm-3:8081", "string"),
            "token_file": _field(
                "Token file",
                "On the workers and the triggerer: holds the cluster's token; used when Token is empty",
                "string",
            ),
            "ui_url": _field("URL for browsers", "Where the job links lead; default: the first address", "string"),
            "namespace": _field("Namespace", "Of the jobs that are submitted; default: that of the token", "string"),
            "conf": _field(
                "Default Spark conf",
                "Of scripts and functions; what a task sets itself wins",
                "object",
            ),
        },
    }


def _field(label: str, description: str, kind: str, **schema: Any) -> dict[str, Any]:
    """An optional field, stored in `extra` under its own name."""
    return {"label": label, "description": description, "schema": {"type": [kind, "null"], **schema}}
