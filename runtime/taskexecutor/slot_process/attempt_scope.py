"""What a slot process changes in itself for one attempt, and puts back: streams, logging, directory, path, environment.

stdout and stderr are redirected as file descriptors, so C code and child processes write to the attempt's files too.
What belongs to the job rather than to the attempt (path, environment, directory) stays until another job comes.
"""

from __future__ import annotations

import importlib
import io
import json
import logging
import os
import sys
import time
import warnings
from types import TracebackType
from typing import Any, Self, TextIO

from runtime.system import linux
from runtime.taskexecutor.slot_process.static_conf import StaticConfWarning
from runtime.taskexecutor.slot_protocol.wire import WorkOrder

_OPEN_FLAGS = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC
LOG_FORMAT = "%(asctime)s %(levelname)-5s %(name)s - %(message)s"
USER_LOGGER = "task"
OWN_LOGGER = "flinklike"
PY4J_LOGGER = logging.getLogger("py4j")
_PY4J = f"{os.sep}py4j{os.sep}"


class StreamRedirection:
    """Where descriptors 1 and 2 lead: to the TaskManager's until the first attempt, to nowhere between attempts.

    R50: once user code has run nothing in this process leads to the TaskManager's file, which it could forge.
    """

    def __init__(self) -> None:
        self._nowhere = os.open(os.devnull, os.O_WRONLY | os.O_CLOEXEC)
        self._stdout, self._stderr = sys.stdout, sys.stderr
        for stream in (self._stdout, self._stderr):
            # Line by line, so that Python's output keeps its place among that of C code and child processes.
            if isinstance(stream, io.TextIOWrapper):
                stream.reconfigure(encoding="utf-8", errors="backslashreplace", line_buffering=True)

    def to_files(self, directory: str) -> None:
        """Append to `stdout` and `stderr` in `directory`."""
        for name, descriptor in (("stdout", 1), ("stderr", 2)):
            opened = os.open(f"{directory}/{name}", _OPEN_FLAGS, 0o600)
            os.dup2(opened, descriptor)
            os.close(opened)
        sys.stdout, sys.stderr = self._stdout, self._stderr

    def leave_files(self) -> None:
        """Flush everything and lead both nowhere."""
        for stream in (sys.stdout, sys.stderr, self._stdout, self._stderr):
            _flush(stream)
        linux.flush_c_streams()
        os.dup2(self._nowhere, 1)
        os.dup2(self._nowhere, 2)


def _flush(stream: object) -> None:
    try:
        stream.flush()  # type: ignore[attr-defined]  # user code may have put anything there
    except (AttributeError, ValueError, OSError):
        return


class JobScope:
    """Working directory, import path and environment of the job whose tasks run in this process."""

    def __init__(self) -> None:
        self._path = list(sys.path)
        self._environment = dict(os.environ)
        self._order: WorkOrder | None = None

    def enter(self, order: WorkOrder) -> None:
        """Become a process of this job. Cheap when it is one already."""
        previous, self._order = self._order, order
        os.chdir(order.job_directory)
        if previous is not None and _job_part(previous) == _job_part(order):
            return
        os.environ.clear()
        os.environ.update(self._environment)
        if order.user is not None:
            os.environ.update(order.user.environment())
        os.environ.update(json.loads(order.environment or b"{}"))
        own = [order.job_directory, *order.python_path]
        sys.path[:] = own + [entry for entry in self._path if entry not in own]
        if previous is None:
            return
        importlib.invalidate_caches()
        if previous.job_directory != order.job_directory:
            _move_packages(previous, order)


def _job_part(order: WorkOrder) -> tuple[object, ...]:
    return order.attempt_id.job_id, order.job_directory, order.python_path, order.environment


def _move_packages(previous: WorkOrder, order: WorkOrder) -> None:
    """Let packages that a reused process has loaded from the earlier job's directory import from the new job's
    directory: the earlier one is deleted. The files are the same: jobs share a process only with equal digests.
    """
    moves = list(
        zip(
            (previous.job_directory, *previous.python_path),
            (order.job_directory, *order.python_path),
            strict=False,
        )
    )
    for module in list(sys.modules.values()):
        path = getattr(module, "__path__", None)
        if isinstance(path, list):
            path[:] = [_moved(str(entry), moves) for entry in path]


def _moved(entry: str, moves: list[tuple[str, str]]) -> str:
    for old, new in moves:
        if entry == old or entry.startswith(old + os.sep):
            return new + entry[len(old) :]
    return entry


class _AttemptHandler(logging.FileHandler):
    """Made by the first record: most attempts log nothing, and a new file costs about 0.1 ms."""

    def __init__(self, path: str) -> None:
        super().__init__(path, mode="a", encoding="utf-8", errors="backslashreplace", delay=True)

    def filter(self, record: logging.LogRecord) -> bool:
        if record.levelno < logging.WARNING and _PY4J in record.pathname:
            return False  # it tells the root logger of connections that a forked child has closed
        return super().filter(record)


_basic_config = logging.basicConfig


def _basic_config_of_user(**options: Any) -> None:
    """`logging.basicConfig` for user code: as long as the root logger has our handler only it counts as having none."""
    root = logging.getLogger()
    before = root.handlers[:]
    if len(before) == 1 and isinstance(before[0], _AttemptHandler):
        root.handlers[:] = []
    try:
        _basic_config(**options)
    finally:
        root.handlers[:] = root.handlers or before


class AttemptLogging:
    """`logging` goes to the attempt's `log` file, until user code configures it (`basicConfig`).

    What user code does to the handlers does not outlive the attempt.
    """

    def __init__(self, directory: str) -> None:
        handler = _AttemptHandler(f"{directory}/log")
        formatter = logging.Formatter(LOG_FORMAT)
        formatter.converter = time.gmtime
        handler.setFormatter(formatter)
        self._handler = handler
        self._saved: tuple[list[logging.Handler], int] = ([], logging.WARNING)
        self._of_python = warnings.showwarning

    def __enter__(self) -> Self:
        root = logging.getLogger()
        self._saved = (root.handlers[:], root.level)
        root.handlers[:] = [self._handler]
        root.setLevel(logging.INFO)
        logging.basicConfig = _basic_config_of_user
        if PY4J_LOGGER.level == logging.NOTSET:  # it logs each command of a callback, which helps no user
            PY4J_LOGGER.setLevel(logging.WARNING)
        logging.captureWarnings(capture=True)
        self._of_python = warnings.showwarning
        warnings.showwarning = self._show_warning
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        root = logging.getLogger()
        logging.captureWarnings(capture=False)
        root.handlers[:], level = self._saved
        root.setLevel(level)
        self._handler.close()

    def _show_warning(
        self,
        message: Warning | str,
        category: type[Warning],
        filename: str,
        lineno: int,
        file: TextIO | None = None,
        line: str | None = None,
    ) -> None:
        """A warning of ours is one line of the attempt's log, whatever format user code gives its own records."""
        if not issubclass(category, StaticConfWarning):
            self._of_python(message, category, filename, lineno, file, line)
            return
        told = {"name": OWN_LOGGER, "levelno": logging.WARNING, "levelname": "WARNING", "msg": str(message)}
        self._handler.handle(logging.makeLogRecord(told))
