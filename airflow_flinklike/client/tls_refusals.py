"""What a failed TLS handshake means, in one sentence that says what to do (R46)."""

from __future__ import annotations

import ssl
from collections.abc import Iterator

NAME_CA = "`flinklike --ca`, FLINKLIKE_CA, or `verify` of the Airflow connection"
NAME_CERTIFICATE = "`flinklike --cert`, FLINKLIKE_CERT, or `cert` of the Airflow connection"

_VERIFY = {
    9: "its certificate is not valid yet: do the clocks differ?",
    10: "its certificate has expired: `flinklike certs renew` makes a new one",
    62: "its certificate does not name this address: ask by one that it names, or issue one with `--host` of this",
    64: "its certificate does not name this address: ask by one that it names, or issue one with `--ip` of this",
    **dict.fromkeys((18, 19, 20, 21), f"its certificate is of no CA that is trusted here: name its CA by {NAME_CA}"),
}
"""Verify code of OpenSSL -> sentence."""
_NO_TLS = "it speaks no TLS: ask it by http://, or set security.ssl.rest.enabled: true there"
_REASONS = {
    "WRONG_VERSION_NUMBER": _NO_TLS,
    "RECORD_LAYER_FAILURE": _NO_TLS,
    "HTTP_REQUEST": _NO_TLS,
    "TLSV13_ALERT_CERTIFICATE_REQUIRED": f"it asks for a client certificate: name its file by {NAME_CERTIFICATE}",
    "TLSV1_ALERT_UNKNOWN_CA": "it does not accept our certificate: it is of no CA in its security.ssl.rest.ca",
    "SSLV3_ALERT_CERTIFICATE_EXPIRED": "it does not accept our certificate: it has expired, or is not valid yet",
    "SSLV3_ALERT_BAD_CERTIFICATE": "it does not accept our certificate",
    "SSLV3_ALERT_UNSUPPORTED_CERTIFICATE": "it does not accept our certificate: it is not for clients",
    "TLSV1_ALERT_PROTOCOL_VERSION": "it speaks another version of TLS than this client: 1.2 or later is needed",
}


def tls_refusal(error: BaseException) -> str | None:
    """One sentence about a failed handshake, whose subject is the server (R46); None for other errors."""
    for one in _causes(error):
        if isinstance(one, ssl.SSLCertVerificationError):
            return _VERIFY.get(one.verify_code, f"its certificate is not accepted here: {one.verify_message}")
        if isinstance(one, ssl.SSLError) and one.reason in _REASONS:
            return _REASONS[one.reason]
    return None


def _causes(error: BaseException | None) -> Iterator[BaseException]:
    seen: set[int] = set()
    while error is not None and id(error) not in seen:
        seen.add(id(error))
        yield error
        error = error.__cause__ or error.__context__
