"""TLS of clients: the CAs that a client trusts and the certificate that it shows, from files (R47)."""

from __future__ import annotations

import logging
import os
import ssl
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import httpx

from airflow_flinklike.client.tls_refusals import NAME_CERTIFICATE
from airflow_flinklike.exceptions import AuthenticationError
from runtime.common.watched import Watched

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class ClientTls:
    """`ca`: a PEM file of the trusted CAs, True for the CAs of the system, False to trust every server.

    `cert` is the PEM file of the client's certificate. It holds the private key too, unless `key` names the key file.
    """

    ca: bool | str = True
    cert: str = ""
    key: str = ""

    @property
    def files(self) -> tuple[str, ...]:
        """The files to read."""
        return tuple(one for one in (self.ca, self.cert, self.key) if isinstance(one, str) and one)


NO_FILES = ClientTls()


def find_tls(environment: Mapping[str, str] = os.environ, *, local_ca: str = "") -> ClientTls:
    """FLINKLIKE_CA, FLINKLIKE_CERT and FLINKLIKE_KEY of the environment; `local_ca` where the first is not set."""
    ca = environment.get("FLINKLIKE_CA") or local_ca
    return ClientTls(ca or True, environment.get("FLINKLIKE_CERT", ""), environment.get("FLINKLIKE_KEY", ""))


def watched_context(tls: ClientTls) -> Watched[ssl.SSLContext]:
    """The context for the next connection, made anew when its files change (R47). Raises AuthenticationError."""
    return Watched(
        "TLS context of this client",
        [Path(one) for one in tls.files],
        lambda: _new_context(tls),
        now=time.monotonic,  # noqa: TID251 - a client has no other clock
        log=logger,
        expected=AuthenticationError,
    )


def _new_context(tls: ClientTls) -> ssl.SSLContext:
    if isinstance(tls.ca, bool):
        context = httpx.create_ssl_context(verify=tls.ca, trust_env=False)
    else:
        try:
            is_directory = Path(tls.ca).is_dir()
            file, folder = (None, tls.ca) if is_directory else (tls.ca, None)
            context = ssl.create_default_context(cafile=file, capath=folder)
        except ssl.SSLError as error:
            message = f"the CA file {tls.ca} holds no certificate in PEM form"
            raise AuthenticationError(message) from error
        except OSError as error:
            message = f"the CA file {tls.ca} cannot be read: {error.strerror}"
            raise AuthenticationError(message) from error
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    if tls.cert:
        _load_certificate(context, tls)
    elif tls.key:
        message = f"the key file {tls.key} is of no use without its certificate: name that too ({NAME_CERTIFICATE})"
        raise AuthenticationError(message)
    return context


def _load_certificate(context: ssl.SSLContext, tls: ClientTls) -> None:
    files = " and ".join(one for one in (tls.cert, tls.key) if one)
    try:
        context.load_cert_chain(tls.cert, tls.key or None, password=lambda: b"")  # no prompt
    except ssl.SSLError as error:
        if error.reason == "KEY_VALUES_MISMATCH":
            message = f"{tls.key or tls.cert} is not the key of the certificate in {tls.cert}"
            raise AuthenticationError(message) from error
        message = f"{files}: no certificate with its key in PEM form, without a password ({error.reason or error})"
        raise AuthenticationError(message) from error
    except OSError as error:
        message = f"the certificate in {files} cannot be read: {error.strerror}"
        raise AuthenticationError(message) from error
