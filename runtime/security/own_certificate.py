"""A process tries at its start, by a handshake with itself, whether its peers would accept its certificate (R46).

Peers refuse a certificate that does not name the process's address, or whose CA the cluster does not trust. They would
say so in their own logs only; at the start the operator reads the message. A certificate that only some peers would
refuse passes: gRPC accepts wildcards, intermediate CAs and weak keys that other libraries do not.
"""

from __future__ import annotations

import ssl

from cryptography import x509
from cryptography.x509.oid import NameOID

from runtime.common.errors import InvalidInputError
from runtime.security.tls_files import TlsFiles

_STEPS_MAX = 20
_WEAK_KEYS_TOO = "DEFAULT@SECLEVEL=0"


def check_own_certificate(files: TlsFiles, host: str, option: str, *, is_mutual: bool) -> None:
    """Raises InvalidInputError with the problem. Blocking, for some milliseconds.

    `files` are those that `read_tls` has accepted. `host`: the address that others dial, from the option `option`.
    `is_mutual`: this process shows the certificate also when it dials others.
    """
    try:
        server, client = _contexts(files, is_mutual=is_mutual)
        _shake_hands(server, client)
    except ssl.SSLCertVerificationError as error:
        raise _refused(files, host, option, error.verify_message) from error
    except (OSError, ValueError) as error:
        message = f"{files.prefix}: the files {files.cert}, {files.key} and {files.ca} do not go together: {error}"
        raise InvalidInputError(message) from error
    names = _names_in(files.cert.read_bytes())
    if not any(_names(name, host) for name in names):
        raise _refused(files, host, option, f"it names {', '.join(names) or 'nothing'}")


def _refused(files: TlsFiles, host: str, option: str, why: str) -> InvalidInputError:
    message = (
        f"{files.prefix}.cert: others would not accept the certificate in {files.cert} at {host} ({option}): {why}. "
        f"`flinklike certs issue <directory> --host {host}` makes one for it, and prints its CA, which belongs into "
        f"{files.prefix}.ca on all hosts"
    )
    return InvalidInputError(message)


def _names_in(pem: bytes) -> list[str]:
    certificate = x509.load_pem_x509_certificates(pem)[0]
    try:
        found = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    except x509.ExtensionNotFound:
        return [str(one.value) for one in certificate.subject.get_attributes_for_oid(NameOID.COMMON_NAME)]
    return [*found.get_values_for_type(x509.DNSName), *map(str, found.get_values_for_type(x509.IPAddress))]


def _names(name: str, host: str) -> bool:
    name, host = name.lower().rstrip("."), host.lower().rstrip(".").strip("[]")
    return name == host or (name.startswith("*.") and host.partition(".")[2] == name[2:])


def _contexts(files: TlsFiles, *, is_mutual: bool) -> tuple[ssl.SSLContext, ssl.SSLContext]:
    server, client = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER), ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    for context in (server, client):
        context.set_ciphers(_WEAK_KEYS_TOO)
        context.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN
    client.check_hostname = False  # the caller compares the names
    server.load_cert_chain(files.cert, files.key, password=lambda: b"")
    client.load_verify_locations(files.ca)
    if is_mutual:
        client.load_cert_chain(files.cert, files.key, password=lambda: b"")
        server.load_verify_locations(files.ca)
        server.verify_mode = ssl.CERT_REQUIRED
    return server, client


def _shake_hands(server: ssl.SSLContext, client: ssl.SSLContext) -> None:
    to_server, to_client = ssl.MemoryBIO(), ssl.MemoryBIO()
    ends = (
        client.wrap_bio(to_client, to_server),
        server.wrap_bio(to_server, to_client, server_side=True),
    )
    open_ends = list(ends)
    for _ in range(_STEPS_MAX):
        for end in list(open_ends):
            try:
                end.do_handshake()
            except ssl.SSLWantReadError:
                continue
            open_ends.remove(end)
        if not open_ends:
            break
    # In TLS 1.3 a server verifies the client's certificate after the client's handshake is done.
    try:
        ends[0].read(1)
    except ssl.SSLWantReadError:
        return
