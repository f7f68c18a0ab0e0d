"""How the command line finds its cluster: options, environment, then the local installation with its configuration."""

from __future__ import annotations

import os
import sys
from pathlib import Path

from airflow_flinklike.client import ClientTls, FlinklikeClient, find_credential, find_tls
from airflow_flinklike.client.retrying import Attempts, needs_tls
from airflow_flinklike.client.token import NO_TOKEN, is_without_token, local_addresses, local_ca
from airflow_flinklike.exceptions import AuthenticationError
from runtime.common.printable import printable
from runtime.config.configuration import Configuration
from runtime.config.layout import Layout
from runtime.config.loading import load
from runtime.config.options.history import HISTORY_ADDRESS, HISTORY_PORT
from runtime.config.options.jobmanager import REST_ADDRESS, REST_ADDRESSES, REST_PORT
from runtime.config.options.security import (
    SECURITY_AUTHENTICATION,
    SECURITY_TOKEN_FILE,
    SSL_REST_CA,
    SSL_REST_CERT,
    SSL_REST_ENABLED,
    SSL_REST_KEY,
)

_SILENT_SECONDS = 1.5
"""A shorter absence, such as a change of leaders, is not worth a word."""


def connect(
    address: str | None, token_file: Path | None, *, retry_for: float = 20.0, is_quiet: bool = False
) -> FlinklikeClient:
    """A client. `address` may list several addresses, separated by commas. Raises InvalidConfigurationError.

    It says on stderr that no JobManager answers, or cannot do yet what it is asked for, unless `is_quiet`.

    With a certificate of `--cert` or FLINKLIKE_CERT, the client shows a token only if options or environment name one.
    """
    addresses = (address or os.environ.get("FLINKLIKE_ADDRESS") or local_address()).split(",")
    if token_file and is_without_token():
        message = f"--token-file names a token, and --no-token (or {NO_TOKEN}) says to show none"
        raise AuthenticationError(message)
    named = os.environ.get("FLINKLIKE_CERT", "") if needs_tls(addresses) else ""
    installed = None if token_file or named or is_without_token() else _configured_token_file()
    token = find_credential(token_file=str(token_file) if token_file else None, installed=installed, certificate=named)
    on_retry = None if is_quiet else _Waiting().note
    return FlinklikeClient(addresses, token, retry_for=retry_for, tls=_tls(), on_retry=on_retry)


class _Waiting:
    """Says once, for each request, what is missing and that the command tries again."""

    def __init__(self) -> None:
        self._told: Attempts | None = None

    def note(self, attempts: Attempts) -> None:
        """Write to stderr when a request has waited for a second or two."""
        if attempts.spent < _SILENT_SECONDS or self._told is attempts:
            return
        self._told = attempts
        sentence = f"{attempts.words} ({attempts.trouble}); trying for {attempts.budget:.0f} s"
        sys.stderr.write(f"flinklike: {printable(sentence)}\n")


def local_address() -> str:
    """The REST addresses of this installation: those of its running JobManagers, then those in conf/."""
    configuration = _configuration(Layout.from_environment(os.environ))
    scheme = "https" if configuration.get(SSL_REST_ENABLED) else "http"
    named = [f"{scheme}://{one}" for one in configuration.get(REST_ADDRESSES)]
    known = [one for one in (*local_addresses().split(","), *named) if one]
    return (
        ",".join(dict.fromkeys(known)) or f"{scheme}://{configuration.get(REST_ADDRESS)}:{configuration.get(REST_PORT)}"
    )


def local_history() -> str:
    """The address of this host's history server, else the one in conf/."""
    configuration = _configuration(Layout.from_environment(os.environ))
    scheme = "https" if configuration.get(SSL_REST_ENABLED) else "http"
    configured = f"{scheme}://{configuration.get(HISTORY_ADDRESS)}:{configuration.get(HISTORY_PORT)}"
    return local_addresses(process="historyserver").partition(",")[0] or configured


def _tls() -> ClientTls:
    """The files of options and environment, else those of conf/, of which other users can read the CA only."""
    configuration = _configuration(Layout.from_environment(os.environ))
    tls = find_tls(local_ca=local_ca())
    if not configuration.get(SSL_REST_ENABLED):
        return tls
    ca = tls.ca if os.environ.get("FLINKLIKE_CA") else configuration.get(SSL_REST_CA) or tls.ca
    cert, key = configuration.get(SSL_REST_CERT), configuration.get(SSL_REST_KEY)
    if tls.cert or not os.access(key, os.R_OK):
        return ClientTls(ca, tls.cert, tls.key)
    return ClientTls(ca, cert, key)


def _configured_token_file() -> str | None:
    """The token file of conf/; None when the environment names a token, or conf/ names no file."""
    if os.environ.get("FLINKLIKE_TOKEN") or os.environ.get("FLINKLIKE_TOKEN_FILE"):
        return None
    layout = Layout.from_environment(os.environ)
    configuration = _configuration(layout)
    if not configuration.get(SECURITY_TOKEN_FILE) or configuration.get(SECURITY_AUTHENTICATION) == "none":
        return None
    return str(layout.token_file(configuration))


def _configuration(layout: Layout) -> Configuration:
    """The configuration of conf/ and the environment; without conf/ the defaults."""
    directory = layout.conf if (layout.conf / "config.yaml").exists() else None
    return load(directory, environment=os.environ, check=False)
