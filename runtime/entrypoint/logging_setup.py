"""Where a process logs to: the file that its daemon script names (rotated), else stderr."""

from __future__ import annotations

import logging
import logging.handlers
import sys
from collections.abc import Mapping
from pathlib import Path

from runtime.entrypoint.control.daemon import LOG_FILE_VARIABLE

FORMAT = "%(asctime)s %(levelname)-7s %(name)s: %(message)s"
FILE_SIZE_MAX = 100 * 1024 * 1024
_CHATTY = ("asyncio", "grpc", "httpx", "uvicorn", "fsspec")


def set_up_logging(environment: Mapping[str, str], *, level: str, files_max: int) -> None:
    """Replace the root logger's handlers."""
    root = logging.getLogger()
    for handler in list(root.handlers):
        root.removeHandler(handler)
        handler.close()
    handler = _handler(environment.get(LOG_FILE_VARIABLE, ""), files_max)
    handler.setFormatter(logging.Formatter(FORMAT))
    root.addHandler(handler)
    root.setLevel(level)
    for name in _CHATTY:
        logging.getLogger(name).setLevel(logging.WARNING)


def _handler(log_file: str, files_max: int) -> logging.Handler:
    if not log_file:
        return logging.StreamHandler(sys.stderr)
    Path(log_file).parent.mkdir(parents=True, exist_ok=True)
    return logging.handlers.RotatingFileHandler(
        log_file, maxBytes=FILE_SIZE_MAX, backupCount=files_max - 1, encoding="utf-8"
    )
