"""What surfaces that are whole servers have in common: one connection for each input, and an ear on the log."""

from __future__ import annotations

import logging
import socket
import struct

AS_IT_IS = 255
"""The first byte of an input that is said as it is; others choose a request, of which the rest is the body."""
PATIENCE = 30.0
_HEARD_MAX = 4096
_NOW = struct.pack("ii", 1, 0)


class Ear(logging.Handler):
    """What a server says with a traceback is a mistake of ours: nobody else's bytes may cause one."""

    def __init__(self) -> None:
        super().__init__(logging.WARNING)
        self._said: list[str] = []
        logging.getLogger().addHandler(self)

    def emit(self, record: logging.LogRecord) -> None:
        """From the server's thread."""
        if record.exc_info or record.levelno >= logging.ERROR:
            self._said.append(self.format(record))

    def check(self) -> None:
        """Raises AssertionError with what was said since the last time."""
        said, self._said = self._said, []
        assert not said, said[0]


def connected(port: int) -> socket.socket:
    """A connection, which leaves nothing behind in the kernel when it is closed: there are many."""
    made = socket.create_connection(("127.0.0.1", port), timeout=PATIENCE)
    made.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _NOW)
    return made


def asked(port: int, data: bytes, *, is_all: bool) -> bytes:
    """Say `data`, `is_all` that will ever be said. The beginning of what is heard until the server closes. Raises
    TimeoutError when it does not."""
    heard = b""
    with connected(port) as connection:
        try:
            connection.sendall(data)
            if is_all:
                connection.shutdown(socket.SHUT_WR)
            while piece := connection.recv(1 << 16):
                heard = (heard + piece)[:_HEARD_MAX]
        except TimeoutError:
            raise
        except OSError:
            pass  # it has closed, while we said something or before
    return heard
