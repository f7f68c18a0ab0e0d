"""Airflow connections for tests. Not in a conftest, since an import would run that a second time."""

from __future__ import annotations

import json

from tests.kit.rest.fake_cluster import TOKEN


def connection_json(url: str, *, token: str | None = TOKEN, **extra: str) -> str:
    """An Airflow connection of our type."""
    host, _, port = url.removeprefix("http://").partition(":")
    return json.dumps(
        {"conn_type": "flinklike", "host": host, "port": int(port), "password": token, "extra": extra or {}}
    )
