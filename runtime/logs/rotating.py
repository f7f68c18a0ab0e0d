"""A log file that is rotated by its size. The handler counts the size itself: logging's own handler formats each line
twice and makes four system calls to find the end of the file."""

from __future__ import annotations

import logging
import os
import stat
from io import TextIOWrapper
from logging.handlers import RotatingFileHandler


class RotatingLogHandler(RotatingFileHandler):
    """A RotatingFileHandler for a file that only this process writes. Only regular files are rotated.

    A line is in the file when `emit` returns. When another program truncates the file, it is rotated too early.
    """

    _size = 0
    _is_rotated = True

    def emit(self, record: logging.LogRecord) -> None:
        """Write a record. Errors go to `handleError`."""
        try:
            self.write(self.format(record))
        except Exception:  # noqa: BLE001 - as logging's handlers: a log that cannot be written ends no work
            self.handleError(record)

    def write(self, text: str) -> None:
        """Write a line. The caller holds the handler's lock, or is the only user. Raises OSError."""
        line = text + self.terminator
        size = len(line) if line.isascii() else len(line.encode(errors="replace"))
        stream = self.stream or self._opened()
        if self._is_rotated and self._size + size >= self.maxBytes > 0:
            self.doRollover()
            stream = self.stream or self._opened()
        stream.write(line)
        stream.flush()
        self._size += size

    def _opened(self) -> TextIOWrapper:
        """Open the file: with `delay` it is made with its first line."""
        self.stream = self._open()
        return self.stream

    def _open(self) -> TextIOWrapper:
        stream = super()._open()
        found = os.fstat(stream.fileno())
        self._size, self._is_rotated = found.st_size, stat.S_ISREG(found.st_mode)
        return stream
