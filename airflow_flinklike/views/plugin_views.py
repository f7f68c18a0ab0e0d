"""What the plugin tells Airflow: where its application is mounted, and which views lead there.

Every process of Airflow loads this, and only the API server serves it: the application is made with the first request.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any
from urllib.parse import urlsplit

PREFIX = "/flinklike"
_Message = MutableMapping[str, Any]


class LazyApp:
    """An ASGI application that is imported and made when somebody asks it."""

    def __init__(self) -> None:
        self._app: Any = None

    async def __call__(
        self, scope: _Message, receive: Callable[[], Awaitable[_Message]], send: Callable[[_Message], Awaitable[None]]
    ) -> None:
        """One request."""
        if self._app is None:
            from airflow_flinklike.views.app import make_app  # noqa: PLC0415 - of the API server only

            self._app = make_app()
        await self._app(scope, receive, send)


def fastapi_apps() -> list[dict[str, Any]]:
    """The plugin's `fastapi_apps`."""
    return [{"app": LazyApp(), "url_prefix": PREFIX, "name": "Flinklike"}]


def external_views(base_url: str) -> list[dict[str, Any]]:
    """The plugin's `external_views`. `base_url` is that of Airflow, whose path is in front of ours."""
    place = urlsplit(base_url).path.rstrip("/") + PREFIX
    task = "dag={DAG_ID}&run={RUN_ID}&task={TASK_ID}&map={MAP_INDEX}"
    return [
        {
            "name": "Flinklike",
            "href": f"{place}/ui/jobs",
            "destination": "nav",
            "url_route": "flinklike",
            "icon": f"{place}/static/icon.svg",
        },
        {
            "name": "Flinklike job",
            "href": f"{place}/task?{task}",
            "destination": "task_instance",
            "url_route": "flinklike-job",
            "icon": f"{place}/static/icon.svg",
        },
    ]
