"""Whether others accept what this process shows: tried at its start, by a handshake with itself (R46).

What a process shows at an address that its certificate does not name, or of a CA that the cluster does not trust, is
refused by each of its peers, who tell it in their logs: at the start somebody is there who can mend it.
"""

from __future__ import annotations

import ssl

from runtime.common.errors import InvalidInputError
from runtime.security.tls_files import TlsFiles

_STEPS_MAX = 20


def check_own_certificate(files: TlsFiles, host: str, option: str, *, is_mutual: bool) -> None:
    """`host`: what others are told by that option. `is_mutual`: they are shown the same when this process dials them.

    Raises InvalidInputError with what is wrong. Blocking, for some milliseconds.
    """
    try:
        server, client = _contexts(files, is_mutual=is_mutual)
        _shake_hands(server, client, host)
    except ssl.SSLCertVerificationError as error:
        message = (
            f"{files.prefix}.cert: others would not accept the certificate in {files.cert} at {host} ({option}): "
            f"{error.verify_message}. `flinklike certs issue <directory> --host {host}` makes one for it, and prints "
            f"its CA, which belongs into {files.prefix}.ca on all hosts"
        )
        raise InvalidInputError(message) from error
    except (OSError, ValueError) as error:
        message = f"{files.prefix}: the files {files.cert}, {files.key} and {files.ca} do not go together: {error}"
        raise InvalidInputError(message) from error


def _contexts(files: TlsFiles, *, is_mutual: bool) -> tuple[ssl.SSLContext, ssl.SSLContext]:
    server, client = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER), ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    server.load_cert_chain(files.cert, files.key, password=lambda: b"")
    client.load_verify_locations(files.ca)
    if is_mutual:
        client.load_cert_chain(files.cert, files.key, password=lambda: b"")
        server.load_verify_locations(files.ca)
        server.verify_mode = ssl.CERT_REQUIRED
    return server, client


def _shake_hands(server: ssl.SSLContext, client: ssl.SSLContext, host: str) -> None:
    to_server, to_client = ssl.MemoryBIO(), ssl.MemoryBIO()
    ends = (
        client.wrap_bio(to_client, to_server, server_hostname=host),
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
    # In TLS 1.3 a server looks at a client's certificate after the client's handshake is done.
    try:
        ends[0].read(1)
    except ssl.SSLWantReadError:
        return
