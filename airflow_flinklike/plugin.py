"""FlinklikePlugin registers the job link, the listener and the views. Every Airflow process loads it, so it imports
little."""

from __future__ import annotations

from typing import Any

from airflow_flinklike.airflow_version import AirflowPlugin, conf
from airflow_flinklike.links.job import FlinklikeJobLink
from airflow_flinklike.listeners import job as listener
from airflow_flinklike.views.plugin_views import external_views, fastapi_apps


def _has_views() -> bool:
    """Airflow 3.0 has none: nothing is shown, and nothing is mounted."""
    return hasattr(AirflowPlugin, "external_views")


class FlinklikePlugin(AirflowPlugin):
    """The plugin behind the entry point `airflow.plugins`."""

    name: str | None = "flinklike"
    operator_extra_links: list[Any] = [FlinklikeJobLink()]  # noqa: RUF012 - declared so by Airflow
    listeners: list[Any] = [listener]  # noqa: RUF012 - the same
    fastapi_apps: list[Any] = fastapi_apps() if _has_views() else []
    external_views: list[Any] = external_views(conf.get("api", "base_url", fallback="") or "") if _has_views() else []

    @classmethod
    def on_load(cls, *args: Any, **kwargs: Any) -> None:
        """Airflow calls this once in each process."""
        del args, kwargs
        listener.watch_deletions()
