"""Where a client finds the cluster's address and token without being told: environment, then the local installation."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

from airflow_flinklike.exceptions import AuthenticationError

DEFAULT_ADDRESS = "http://127.0.0.1:8081"


def find_address(environment: Mapping[str, str] = os.environ) -> str:
    """FLINKLIKE_ADDRESS, else this host's default."""
    return environment.get("FLINKLIKE_ADDRESS") or DEFAULT_ADDRESS


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
    home = environment.get("FLINKLIKE_HOME") or str(Path(__file__).resolve().parents[2])
    run = environment.get("FLINKLIKE_RUN_DIR") or str(Path(home) / "run")
    try:
        return (Path(run) / "token").read_text(encoding="utf-8").strip()
    except (OSError, UnicodeDecodeError):
        return None


def authorization(token: str | None) -> dict[str, str]:
    """The header of every request. Raises AuthenticationError for what cannot be a token."""
    if not token:
        return {}
    if not token.isascii() or not token.isprintable() or " " in token:
        message = "the cluster's token must be one word of ASCII characters: is the right file named?"
        raise AuthenticationError(message)
    return {"authorization": f"Bearer {token}"}
