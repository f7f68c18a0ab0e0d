"""Logging of a process: to the file that its script names, rotated; to stderr without a file or in the foreground."""

from __future__ import annotations

import json
import logging
import os
import re
import socket
import sys
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path

from runtime.common.printable import printable
from runtime.entrypoint.control.daemon import LOG_CONSOLE_VARIABLE, LOG_FILE_VARIABLE
from runtime.logs.rotating import RotatingLogHandler
from runtime.logs.traces import trace_of

FORMAT = "%(asctime)s %(levelname)-7s %(name)s: %(message)s"
FILE_SIZE_MAX = 100 * 1024 * 1024
_ATTEMPT = re.compile(r"\b([0-9a-f]{32})_([0-9a-f]{32})_[0-9]+_[0-9]+_[0-9]+\b")
_JOB = re.compile(r"\bjob ([0-9a-f]{32})\b", re.IGNORECASE)
_CHATTY = ("asyncio", "grpc", "httpx", "uvicorn", "fsspec")


class PrintableFormatter(logging.Formatter):
    """Escapes control characters: log lines hold names and texts of jobs (R41)."""

    def format(self, record: logging.LogRecord) -> str:
        """The line, or lines, of a record."""
        return printable(super().format(record))


class JsonFormatter(logging.Formatter):
    """One JSON object a line, in ASCII, so that nothing in it steers a terminal. `process`: its kind."""

    def __init__(self, process: str) -> None:
        super().__init__()
        self._process = {"process": process, "pid": os.getpid(), "host": socket.gethostname()}

    def format(self, record: logging.LogRecord) -> str:
        """The line of a record."""
        message = record.getMessage()
        document: dict[str, object] = {
            "time": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
            "level": record.levelname,
            "logger": record.name,
            **self._process,
            "message": message,
            **_named_in(message),
        }
        if record.exc_info:
            document["exception"] = self.formatException(record.exc_info)
        return json.dumps(document, separators=(",", ":"))


def _named_in(message: str) -> dict[str, str]:
    """The job, and the vertex and the attempt, that a message is about; nothing of one that names several."""
    attempts = {found[0]: found for found in _ATTEMPT.finditer(message)}
    if len(attempts) == 1:
        ((attempt, found),) = attempts.items()
        return {"job": found[1], "vertex": found[2], "attempt": attempt, **_trace(found[1])}
    jobs = {found[1] for found in (*_JOB.finditer(message), *attempts.values())}
    if len(jobs) != 1:
        return {}
    (job,) = jobs
    return {"job": job, **_trace(job)}


def _trace(job: str) -> dict[str, str]:
    """As OpenTelemetry names it in logs."""
    trace_id = trace_of(job)
    return {"trace_id": trace_id} if trace_id else {}


def set_up_logging(environment: Mapping[str, str], *, level: str, files_max: int, formatter: logging.Formatter) -> None:
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
        handler.setFormatter(formatter)
        root.addHandler(handler)
    root.setLevel(level)
    for name in _CHATTY:
        logging.getLogger(name).setLevel(logging.WARNING)


def _file_handler(log_file: Path, files_max: int) -> logging.Handler:
    log_file.parent.mkdir(parents=True, exist_ok=True)
    return RotatingLogHandler(log_file, maxBytes=FILE_SIZE_MAX, backupCount=files_max - 1, encoding="utf-8")
