"""Levels of this process's loggers, changed while it runs. Only of our own code: libraries log what is sent, too
(R48)."""

from __future__ import annotations

import logging

from runtime.common.errors import InvalidInputError, NotFoundError

LEVELS = ("DEBUG", "INFO", "WARNING", "ERROR")
DEFAULT = "DEFAULT"
"""No level of its own: that of the logger above it, in the end `env.log.level`."""
PACKAGES = ("runtime", "jobmaster_process")
NAME_LENGTH_MAX = 200

logger = logging.getLogger(__name__)


def set_level(name: str, level: str) -> str:
    """Set the level of a logger of ours, and of those below it; the former one. Raises NotFoundError for a logger that
    this process does not have, and InvalidInputError.
    """
    check_level(name, level)
    if name not in logging.Logger.manager.loggerDict:
        message = f"this process has no logger {name}"
        raise NotFoundError(message)
    changed = logging.getLogger(name)
    former = logging.getLevelName(changed.level) if changed.level else DEFAULT
    if former == level:
        return former
    is_told = logger.isEnabledFor(logging.WARNING)  # before the change, or, where that lets it pass, after
    if is_told:
        _tell(name, level, former)
    changed.setLevel(logging.NOTSET if level == DEFAULT else level)
    if not is_told:
        _tell(name, level, former)
    return former


def _tell(name: str, level: str, former: str) -> None:
    logger.warning("log level of %s: %s in place of %s, until this process ends", name, level, former)


def check_level(name: str, level: str) -> None:
    """Raises InvalidInputError that says what is possible."""
    problems = []
    if name.partition(".")[0] not in PACKAGES or len(name) > NAME_LENGTH_MAX:
        problems.append(f"logger: {name[:80]!r} is none of {' or '.join(PACKAGES)}, nor below one of them")
    if level not in {*LEVELS, DEFAULT}:
        problems.append(f"level: {level[:80]!r} is none of {', '.join((*LEVELS, DEFAULT))}")
    if problems:
        raise InvalidInputError("; ".join(problems), tuple(problems))
