"""Streams that never fail: the job of a command runs on when its stdout or stderr cannot be written."""

from __future__ import annotations

import io
import os
import select
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING, TextIO

if TYPE_CHECKING:
    from _typeshed import ReadableBuffer


class LastingStream(io.RawIOBase):
    """A stream on a descriptor that accepts all data, and drops it after the first error.

    `refused` gets that error, except that of a closed pipe (`| head`). `close` leaves the descriptor open.
    """

    def __init__(self, descriptor: int, refused: Callable[[OSError], None]) -> None:
        super().__init__()
        self._descriptor = descriptor
        self._refused = refused
        self._is_lost = False

    def writable(self) -> bool:
        return True

    def fileno(self) -> int:
        return self._descriptor

    def isatty(self) -> bool:
        return os.isatty(self._descriptor)

    def write(self, data: ReadableBuffer, /) -> int:
        size = memoryview(data).nbytes
        while not self._is_lost:
            try:
                return os.write(self._descriptor, data)
            except BlockingIOError:
                _ = select.select([], [self._descriptor], [])
            except BrokenPipeError:
                self._is_lost = True
            except OSError as error:
                self._is_lost = True
                self._refused(error)
        return size


@contextmanager
def lasting_streams() -> Iterator[None]:
    """Within the block no write to stdout or stderr fails; each stream reports the first error of the other.

    Streams without a descriptor, as in tests, stay as they are.
    """
    with ExitStack() as undo:
        for name, other in (("stdout", "stderr"), ("stderr", "stdout")):
            stream: TextIO = getattr(sys, name)
            try:
                descriptor = stream.fileno()
            except (AttributeError, OSError):
                continue
            stream.flush()
            lasting = io.TextIOWrapper(
                io.BufferedWriter(LastingStream(descriptor, _teller(name, other))),
                encoding=stream.encoding,
                errors=stream.errors,
                line_buffering=name == "stderr" or os.isatty(descriptor),
            )
            undo.callback(setattr, sys, name, stream)
            undo.callback(lasting.flush)
            setattr(sys, name, lasting)
        yield


def _teller(name: str, other: str) -> Callable[[OSError], None]:
    def tell(error: OSError) -> None:
        reason = error.strerror or error
        getattr(sys, other).write(
            f"flinklike: {name} cannot be written ({reason}); what follows is lost, the job goes on\n"
        )

    return tell
