"""FlinklikePlugin registers the job link and the listener. Every Airflow process loads it, so it imports little."""

from __future__ import annotations

from typing import Any

from airflow_flinklike.airflow_version import AirflowPlugin
from airflow_flinklike.links.job import FlinklikeJobLink
from airflow_flinklike.listeners import job as listener


class FlinklikePlugin(AirflowPlugin):
    """The plugin behind the entry point `airflow.plugins`."""

    name: str | None = "flinklike"
    operator_extra_links: list[Any] = [FlinklikeJobLink()]  # noqa: RUF012 - declared so by Airflow
    listeners: list[Any] = [listener]  # noqa: RUF012 - the same

    @classmethod
    def on_load(cls, *args: Any, **kwargs: Any) -> None:
        """Airflow calls this once in each process."""
        del args, kwargs
        listener.watch_deletions()
