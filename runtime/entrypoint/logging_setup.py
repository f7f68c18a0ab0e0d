"""Logging of a process: to the file that its script names, rotated; to stderr without a file or in the foreground."""

from __future__ import annotations

import logging
import sys
from collections.abc import Mapping
from pathlib import Path

from runtime.common.printable import printable
from runtime.entrypoint.control.daemon import LOG_CONSOLE_VARIABLE, LOG_FILE_VARIABLE
from runtime.logs.rotating import RotatingLogHandler

FORMAT = "%(asctime)s %(levelname)-7s %(name)s: %(message)s"
FILE_SIZE_MAX = 100 * 1024 * 1024
_CHATTY = ("asyncio", "grpc", "httpx", "uvicorn", "fsspec")


class PrintableFormatter(logging.Formatter):
    """Escapes control characters: log lines hold names and texts of jobs (R41)."""

    def format(self, record: logging.LogRecord) -> str:
        """The line, or lines, of a record."""
        return printable(super().format(record))


def set_up_logging(environment: Mapping[str, str], *, level: str, files_max: int) -> None:
    """Replace the root logger's handlers."""
    root = logging.getLogger()
    for handler in list(root.handlers):
        root.removeHandler(handler)
        handler.close()
    log_file = environment.get(LOG_FILE_VARIABLE)
    handlers: list[logging.Handler] = [_file_handler(Path(log_file), files_max)] if log_file else []
    if not log_file or environment.get(LOG_CONSOLE_VARIABLE):
        handlers.append(logging.StreamHandler(sys.stderr))
    for handler in handlers:
        handler.setFormatter(PrintableFormatter(FORMAT))
        root.addHandler(handler)
    root.setLevel(level)
    for name in _CHATTY:
        logging.getLogger(name).setLevel(logging.WARNING)


def _file_handler(log_file: Path, files_max: int) -> logging.Handler:
    log_file.parent.mkdir(parents=True, exist_ok=True)
    return RotatingLogHandler(log_file, maxBytes=FILE_SIZE_MAX, backupCount=files_max - 1, encoding="utf-8")
