"""A server of TLS whose answers arrive damaged: the handshake is good, the record after the request is not."""

from __future__ import annotations

import socket
import ssl
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress

from tests.kit.services.certificates import KeyPair

_RECORD = b"\x17\x03\x03\x00\x40" + b"\x00" * 64
"""Of application data, as its head says, and of no key."""


@contextmanager
def damaging(shown: KeyPair) -> Iterator[int]:
    """Its port at 127.0.0.1."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(shown.cert, shown.key)
    listening = socket.create_server(("127.0.0.1", 0))

    def serve() -> None:
        while True:
            try:
                plain, _ = listening.accept()
            except OSError:
                return  # it was closed
            with suppress(OSError):
                tls = context.wrap_socket(plain, server_side=True)
                _ = tls.recv(65536)
                with socket.socket(fileno=tls.detach()) as bare:
                    bare.sendall(_RECORD)
                    _ = bare.recv(65536)  # until the other end closes

    thread = threading.Thread(target=serve)
    thread.start()
    try:
        yield int(listening.getsockname()[1])
    finally:
        listening.shutdown(socket.SHUT_RDWR)
        thread.join()
        listening.close()
