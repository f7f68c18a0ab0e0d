"""How the command line finds its cluster: options, environment, then the local installation's configuration."""

from __future__ import annotations

import os
from pathlib import Path

from airflow_flinklike.client import FlinklikeClient, find_token
from runtime.config.configuration import InvalidConfigurationError, load
from runtime.config.layout import Layout
from runtime.config.options.jobmanager import REST_ADDRESS, REST_PORT


def connect(address: str | None, token_file: Path | None, *, retry_for: float = 20.0) -> FlinklikeClient:
    """A client. `address` may list several addresses separated by commas."""
    addresses = (address or os.environ.get("FLINKLIKE_ADDRESS") or local_address()).split(",")
    token = find_token(token_file=str(token_file) if token_file else None)
    return FlinklikeClient(addresses, token, retry_for=retry_for)


def local_address() -> str:
    """REST of the installation that this command belongs to, from its conf/ (or the defaults without one)."""
    layout = Layout.from_environment(os.environ)
    directory = layout.conf if (layout.conf / "config.yaml").exists() else None
    try:
        configuration = load(directory, environment=os.environ, check=False)
    except InvalidConfigurationError:
        configuration = load(None, environment={}, check=False)
    return f"http://{configuration.get(REST_ADDRESS)}:{configuration.get(REST_PORT)}"
