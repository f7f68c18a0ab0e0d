"""FlinklikePlugin: registers the job link. Loaded everywhere, so it imports nothing else."""

from __future__ import annotations

from typing import Any

from airflow.sdk.plugins_manager import AirflowPlugin

from airflow_flinklike.links import FlinklikeJobLink


class FlinklikePlugin(AirflowPlugin):
    """What Airflow finds through the entry point `airflow.plugins`."""

    name: str | None = "flinklike"
    operator_extra_links: list[Any] = [FlinklikeJobLink()]  # noqa: RUF012 - declared so by Airflow
