"""A log file that is rotated by its size, which is counted: the library's handler formats each line twice and asks the
operating system four times where the end is."""

from __future__ import annotations

import logging
import os
import stat
from io import TextIOWrapper
from logging.handlers import RotatingFileHandler


class RotatingLogHandler(RotatingFileHandler):
    """Implements RotatingFileHandler for a file that this process alone writes. What is no regular file is not rotated.

    A line is in the file when `emit` returns. Who truncates it meanwhile has it rotated earlier.
    """

    _size = 0
    _is_rotated = True

    def emit(self, record: logging.LogRecord) -> None:
        """Write a record. What goes wrong goes to `handleError`."""
        try:
            self.write(self.format(record))
        except Exception:  # noqa: BLE001 - as logging's handlers: a log that cannot be written ends no work
            self.handleError(record)

    def write(self, text: str) -> None:
        """A line, by who holds the handler's lock or is alone. Raises OSError."""
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
        """With `delay` a file is made with its first line."""
        self.stream = self._open()
        return self.stream

    def _open(self) -> TextIOWrapper:
        stream = super()._open()
        found = os.fstat(stream.fileno())
        self._size, self._is_rotated = found.st_size, stat.S_ISREG(found.st_mode)
        return stream
