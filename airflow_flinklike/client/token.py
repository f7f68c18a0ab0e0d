"""Where a client finds the cluster's address and token without being told: environment, then the local installation.

Processes of a cluster on this host say in its run directory where they listen: `pid/jobmanager-<n>.json`.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

from airflow_flinklike.exceptions import AuthenticationError

DEFAULT_ADDRESS = "http://127.0.0.1:8081"


def find_address(environment: Mapping[str, str] = os.environ) -> str:
    """FLINKLIKE_ADDRESS, else the JobManagers of this host, else the default. Several are separated by commas."""
    return environment.get("FLINKLIKE_ADDRESS") or local_addresses(environment) or DEFAULT_ADDRESS


def local_addresses(environment: Mapping[str, str] = os.environ) -> str:
    """What the JobManagers said that were started from the local run directory; empty when there is none."""
    addresses = []
    for file in sorted((_run_directory(environment) / "pid").glob("jobmanager-*.json")):
        with suppress(OSError, ValueError, TypeError, KeyError):
            addresses.append(f"http://{json.loads(file.read_text(encoding='utf-8'))['address']}")
    return ",".join(addresses)


def find_token(environment: Mapping[str, str] = os.environ, *, token_file: str | None = None) -> str | None:
    """The token of `token_file`, FLINKLIKE_TOKEN, FLINKLIKE_TOKEN_FILE, or the run directory's; None if there is none.

    Raises AuthenticationError when a file that was named cannot be read.
    """
    if token_file is None and environment.get("FLINKLIKE_TOKEN"):
        return environment["FLINKLIKE_TOKEN"]
    named = token_file or environment.get("FLINKLIKE_TOKEN_FILE")
    if named:
        try:
            return Path(named).read_text(encoding="utf-8").strip()
        except OSError as error:
            message = f"the token file {named} cannot be read: {error.strerror}"
            raise AuthenticationError(message) from error
        except UnicodeDecodeError as error:
            message = f"the token file {named} does not hold a token"
            raise AuthenticationError(message) from error
    try:
        return (_run_directory(environment) / "token").read_text(encoding="utf-8").strip()
    except (OSError, UnicodeDecodeError):
        return None


def _run_directory(environment: Mapping[str, str]) -> Path:
    home = environment.get("FLINKLIKE_HOME") or Path(__file__).resolve().parents[2]
    return Path(environment.get("FLINKLIKE_RUN_DIR") or Path(home) / "run")


def authorization(token: str | None) -> dict[str, str]:
    """The header of every request. Raises AuthenticationError for what cannot be a token."""
    if not token:
        return {}
    if not token.isascii() or not token.isprintable() or " " in token:
        message = "the cluster's token must be one word of ASCII characters: is the right file named?"
        raise AuthenticationError(message)
    return {"authorization": f"Bearer {token}"}
