"""A log that keeps its lines."""

from __future__ import annotations

import logging
from dataclasses import dataclass, field


@dataclass
class Heard:
    """What was said, in order, and what was said louder. `now` is a clock that stands still."""

    lines: list[str] = field(default_factory=list)
    warnings: list[str] = field(default_factory=list)
    now: float = 1000.0

    @property
    def log(self) -> logging.Logger:
        """For the processes that speak."""
        logger = logging.Logger("task")  # noqa: LOG001 - one of its own for each test
        logger.addHandler(_Keeping(self))
        return logger

    def clock(self) -> float:
        """The time, as the test has set it."""
        return self.now


class _Keeping(logging.Handler):
    def __init__(self, heard: Heard) -> None:
        super().__init__()
        self._heard = heard

    def emit(self, record: logging.LogRecord) -> None:
        kept = self._heard.lines if record.levelno == logging.INFO else self._heard.warnings
        kept.append(record.getMessage())
