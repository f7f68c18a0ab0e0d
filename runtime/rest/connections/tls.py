"""TLS of REST: the certificate of a JobManager towards clients and the leader, and the names of clients (R46).

Each use of a context looks at its files, so that the next connection has a renewed
certificate, and running connections go on (R47).
"""

from __future__ import annotations

import logging
import os
import ssl
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Any
from urllib.parse import quote, unquote

from cryptography import x509
from cryptography.x509.oid import NameOID
from starlette.types import Scope

from runtime.common.clock import Clock
from runtime.common.errors import InvalidInputError
from runtime.common.watched import Watched
from runtime.rest.forwarding.forward_seal import FORWARDED, FORWARDED_NAME, told_by_stand_by
from runtime.security.tls_files import TlsFiles, TlsMaterial, read_tls

logger = logging.getLogger(__name__)

_SHOWN = "flinklike.shown"


class RestTls:
    """Both ends of REST in one process: it listens to clients, and dials the leader while it stands by.

    `asks_clients`: a client without a certificate of `security.ssl.rest.ca` is not let in.
    """

    def __init__(self, source: Watched[TlsMaterial], *, asks_clients: bool) -> None:
        self._source = source
        self._asks_clients = asks_clients
        self._contexts: dict[Callable[[TlsMaterial], ssl.SSLContext], tuple[TlsMaterial, ssl.SSLContext]] = {}
        _ = self.server_context(), self.client_context()  # a file that cannot be used ends the start

    @classmethod
    def of_files(cls, files: TlsFiles, clock: Clock, *, asks_clients: bool) -> RestTls:
        """The certificate in files that are looked at again. Raises InvalidInputError when they cannot be used.

        A new content that OpenSSL would refuse is not taken: the content before stays in use (R47).
        """
        paths = (files.cert, files.key, files.ca)
        source = Watched(
            f"certificate of {files.prefix}", paths, lambda: _loadable(files, clock), now=clock.monotonic, log=logger
        )
        return cls(source, asks_clients=asks_clients)

    def server_context(self) -> ssl.SSLContext:
        """For the next client that comes."""
        return self._current(self._new_server_context)

    def client_context(self) -> ssl.SSLContext:
        """For the next connection to the leader; another object once the files hold something else."""
        return self._current(_new_client_context)

    def _current(self, make: Callable[[TlsMaterial], ssl.SSLContext]) -> ssl.SSLContext:
        material = self._source.value
        made = self._contexts.get(make)
        if made is None or made[0] is not material:
            try:
                made = self._contexts[make] = (material, make(material))
            except OSError as error:  # it was loaded when it was read: no descriptor is left, for instance
                if made is None:
                    raise
                logger.warning("the renewed certificate of REST cannot be loaded now, the next one tries: %s", error)
        return made[1]

    def _new_server_context(self, material: TlsMaterial) -> ssl.SSLContext:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        if self._asks_clients:
            context.verify_mode = ssl.CERT_REQUIRED
        return _loaded(context, material)


def _loadable(files: TlsFiles, clock: Clock) -> TlsMaterial:
    material = read_tls(files, clock)
    try:
        _ = _new_client_context(material)
    except OSError as error:
        reason = error.reason if isinstance(error, ssl.SSLError) else error.strerror
        said = (reason or str(error)).lower().replace("_", " ")
        message = f"{files.prefix}.cert: OpenSSL loads no TLS of {files.cert}, its key and {files.ca} ({said})"
        raise InvalidInputError(message) from error
    return material


def _new_client_context(material: TlsMaterial) -> ssl.SSLContext:
    return _loaded(ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT), material)


def _loaded(context: ssl.SSLContext, material: TlsMaterial) -> ssl.SSLContext:
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.options |= ssl.OP_NO_RENEGOTIATION
    both = material.key if material.certificates == material.key else material.certificates + b"\n" + material.key
    with _as_file(both) as path:
        context.load_cert_chain(path)
    with _as_file(material.ca) as path:
        context.load_verify_locations(path)
    return context


@contextmanager
def _as_file(data: bytes) -> Iterator[str]:
    """The data as a file in memory: the ssl module takes paths only. It loads what was checked, and nothing newer."""
    descriptor = os.memfd_create("tls", os.MFD_CLOEXEC)
    with os.fdopen(descriptor, "wb") as file:
        file.write(data)
        file.flush()
        yield f"/proc/self/fd/{descriptor}"


def with_shown(state: dict[str, Any], certificate: bytes) -> dict[str, Any]:
    """The state of each request of a connection whose client has shown that certificate, which was verified."""
    return {**state, _SHOWN: _name_in(x509.load_der_x509_certificate(certificate))}


def _name_in(certificate: x509.Certificate) -> str:
    """The common name of a certificate, else its first other name."""
    names = [str(one.value) for one in certificate.subject.get_attributes_for_oid(NameOID.COMMON_NAME)]
    with suppress(x509.ExtensionNotFound):
        others = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
        for kind in (x509.RFC822Name, x509.DNSName, x509.UniformResourceIdentifier):
            names += others.get_values_for_type(kind)
    return next((one for one in names if one), "")


def client_name_of(scope: Scope) -> str:
    """The name in the verified certificate of the client, also behind a stand-by; "" without one."""
    if told_by_stand_by(scope, FORWARDED):
        return unquote(told_by_stand_by(scope, FORWARDED_NAME))
    return str(scope.get("state", {}).get(_SHOWN, ""))


def forwarded_name(scope: Scope) -> list[tuple[bytes, bytes]]:
    """The header by which a stand-by tells it to the leader, under its seal."""
    name = client_name_of(scope)
    return [(FORWARDED_NAME, quote(name).encode())] if name else []


def told_name(scope: Scope) -> dict[str, str]:
    """The field of the audit log with the client's name, where there is one."""
    name = client_name_of(scope)
    return {"client_name": name} if name else {}
