"""TLS of the links between processes: both ends show a certificate of the cluster's CA (R46).

gRPC asks for the server's certificate at each handshake, so the next connection gets a renewed one. New channels are
made when this process's own certificate, or the CAs that it trusts, have changed; calls on old channels go on (R47).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import grpc

from runtime.common.watched import Watched
from runtime.security.tls_files import TlsMaterial


class ServerTls:
    """The listening end. A thread of gRPC calls `on_handshake` at the beginning of each handshake."""

    def __init__(self, source: Watched[TlsMaterial], on_handshake: Callable[[], None]) -> None:
        self._source = source
        self._shown = source.value
        self._on_handshake = on_handshake

    def credentials(self) -> grpc.ServerCredentials:
        """Credentials that require a client certificate."""
        fetch: Any = self._fetch  # the stubs do not know that None is an answer
        return grpc.dynamic_ssl_server_credentials(
            _configuration(self._shown), fetch, require_client_authentication=True
        )

    def _fetch(self) -> grpc.ServerCertificateConfiguration | None:
        """The present certificates, None when they have not changed."""
        self._on_handshake()
        material = self._source.value
        if material is self._shown:
            return None
        self._shown = material
        return _configuration(material)


def _configuration(material: TlsMaterial) -> grpc.ServerCertificateConfiguration:
    return grpc.ssl_server_certificate_configuration([(material.key, material.certificates)], material.ca)


class ClientTls:
    """The dialling end."""

    def __init__(self, source: Watched[TlsMaterial]) -> None:
        self._source = source
        self._made_of: TlsMaterial | None = None
        self._credentials: grpc.ChannelCredentials | None = None

    def credentials(self) -> grpc.ChannelCredentials:
        """The credentials: another object once the files have changed."""
        material = self._source.value
        if self._credentials is None or material is not self._made_of:
            self._made_of = material
            self._credentials = grpc.ssl_channel_credentials(material.ca, material.key, material.certificates)
        return self._credentials
