"""How the command line finds its cluster: options, environment, then the local installation and its configuration."""

from __future__ import annotations

import os
from pathlib import Path

from airflow_flinklike.client import FlinklikeClient, find_token
from airflow_flinklike.client.token import local_addresses
from runtime.config.configuration import Configuration, load
from runtime.config.layout import Layout
from runtime.config.options.cluster import SECURITY_AUTHENTICATION, SECURITY_TOKEN_FILE
from runtime.config.options.jobmanager import REST_ADDRESS, REST_ADDRESSES, REST_PORT


def connect(address: str | None, token_file: Path | None, *, retry_for: float = 20.0) -> FlinklikeClient:
    """A client. `address` may list several addresses separated by commas. Raises InvalidConfigurationError."""
    addresses = (address or os.environ.get("FLINKLIKE_ADDRESS") or local_address()).split(",")
    token = find_token(token_file=str(token_file) if token_file else _configured_token_file())
    return FlinklikeClient(addresses, token, retry_for=retry_for)


def local_address() -> str:
    """REST of the installation that this command belongs to: what its JobManagers said, and what conf/ says."""
    configuration = _configuration(Layout.from_environment(os.environ))
    named = [f"http://{one}" for one in configuration.get(REST_ADDRESSES)]
    known = [one for one in (*local_addresses().split(","), *named) if one]
    return ",".join(dict.fromkeys(known)) or f"http://{configuration.get(REST_ADDRESS)}:{configuration.get(REST_PORT)}"


def _configured_token_file() -> str | None:
    """None when the environment says more, or conf/ says nothing: then the client's own rules hold."""
    if os.environ.get("FLINKLIKE_TOKEN") or os.environ.get("FLINKLIKE_TOKEN_FILE"):
        return None
    layout = Layout.from_environment(os.environ)
    configuration = _configuration(layout)
    if not configuration.get(SECURITY_TOKEN_FILE) or configuration.get(SECURITY_AUTHENTICATION) == "none":
        return None
    return str(layout.token_file(configuration))


def _configuration(layout: Layout) -> Configuration:
    """What conf/ and the environment say; the defaults where there is no conf/."""
    directory = layout.conf if (layout.conf / "config.yaml").exists() else None
    return load(directory, environment=os.environ, check=False)
