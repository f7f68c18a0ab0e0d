"""Reads and checks an Airflow connection of type `flinklike`. The only file that it reads is the token file.

host (or several `host:port` separated by commas), port, password (the cluster's token). In extra: tls, verify (a CA
file), cert and key (files of a client certificate), addresses (further JobManagers), token_file, ui_url (the address
for browsers), conf (default Spark conf of jobs), namespace (of submitted jobs; default that of the token).
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from airflow_flinklike.client import ClientTls, find_credential, find_tls, local_ca
from airflow_flinklike.client.retrying import needs_tls
from airflow_flinklike.client.token import Credential, token_of
from airflow_flinklike.exceptions import JobRefusedError
from runtime.common.spark_conf import conf_text

if TYPE_CHECKING:
    from airflow.sdk import Connection

DEFAULT_PORT = 8081


@dataclass(frozen=True, slots=True)
class ClusterAccess:
    """Access to a cluster, as a connection describes it."""

    addresses: tuple[str, ...]
    token: str | None
    tls: ClientTls
    ui_url: str
    conf: Mapping[str, str] = field(default_factory=dict)
    namespace: str = ""
    credential: Credential = None
    """The token, or a token file, which is read again."""

    def job_url(self, job_id: str) -> str:
        """The address of a job's page."""
        return f"{self.ui_url}/ui/jobs/{job_id}"


def parse_connection(connection: Connection) -> ClusterAccess:
    """Read a connection. The token is its password, else that of token_file, else that of `find_credential`.

    Raises JobRefusedError for an invalid value, AuthenticationError for a token file that cannot be read.
    """
    _check_type(connection)
    extra: Mapping[str, Any] = connection.extra_dejson
    scheme = "https" if _switch("tls", extra.get("tls")) else connection.schema or "http"
    hosts = [*_listed(connection.host), *_listed(extra.get("addresses"))] or ["127.0.0.1"]
    addresses = tuple(dict.fromkeys(_address(host, scheme, connection.port or DEFAULT_PORT) for host in hosts))
    token_file = str(extra.get("token_file") or "") or None
    tls = _tls(extra)
    credential = connection.password or find_credential(
        token_file=token_file, certificate=tls.cert if needs_tls(addresses) else ""
    )
    ui_url = str(extra.get("ui_url") or addresses[0]).rstrip("/")
    namespace = str(extra.get("namespace") or "")
    return ClusterAccess(addresses, token_of(credential), tls, ui_url, _conf(extra.get("conf")), namespace, credential)


def _check_type(connection: Connection) -> None:
    """Connections of Spark and others have hosts that are no JobManagers."""
    kind = connection.conn_type or "flinklike"
    if kind not in {"flinklike", "http", "https", "generic"}:
        message = (
            f"connection {connection.conn_id!r} to {connection.host or 'no host'} is of type {kind!r}: expected one of "
            "type 'flinklike', whose host is a JobManager"
        )
        raise JobRefusedError(message)


def _listed(given: str | Iterable[str] | None) -> list[str]:
    parts = given.split(",") if isinstance(given, str) else given or ()
    return [stripped for one in parts if (stripped := str(one).strip())]


def _address(host: str, scheme: str, port: int) -> str:
    head, separator, rest = host.partition("://")
    if not separator:
        head, rest = scheme, host
    rest = rest.rstrip("/")
    if rest.count(":") > 1 and not rest.startswith("["):
        rest = f"[{rest}]"  # an IPv6 address without brackets cannot have a port
    has_port = rest.rpartition(":")[2].isdecimal() and not rest.endswith("]")
    return f"{head}://{rest}" if has_port else f"{head}://{rest}:{port}"


def _switch(name: str, value: Any) -> bool:
    text = str(value if value is not None else "").strip().lower()
    if text not in {"", "true", "false"}:
        message = f"the connection's extra {name!r} is {value!r}, expected true or false"
        raise JobRefusedError(message)
    return text == "true"


def _tls(extra: Mapping[str, Any]) -> ClientTls:
    """The TLS files of the connection; `find_tls` finds those that it does not name."""
    found = find_tls(local_ca=local_ca())
    verify, cert = extra.get("verify"), str(extra.get("cert") or "")
    ca = found.ca if verify is None or verify == "" else _verify(verify)
    return ClientTls(ca, cert, str(extra.get("key") or "")) if cert else ClientTls(ca, found.cert, found.key)


def _verify(value: Any) -> bool | str:
    """True, False, or the path of a CA file."""
    if value is None or isinstance(value, bool):
        return value is not False
    text = str(value).strip()
    return text.lower() != "false" if text.lower() in {"true", "false", ""} else text


def _conf(value: Any) -> dict[str, str]:
    """A JSON object, also as text, since some tools store it so."""
    if isinstance(value, str) and value.strip():
        try:
            value = json.loads(value)
        except ValueError as error:
            message = f"the connection's extra 'conf' is not JSON: {error}"
            raise JobRefusedError(message) from error
    if not value:
        return {}
    if not isinstance(value, Mapping):
        message = f"the connection's extra 'conf' is a {type(value).__name__}, expected an object of Spark's keys"
        raise JobRefusedError(message)
    return {str(key): conf_text(one) for key, one in value.items()}
