"""What a living session can take of a job's Spark conf, and what happens to the rest.

Static conf belongs to the JVM's start: a key whose value differs from the warm one gives one warning per job, or
fails the job. Keys that only name or place an application are ignored.
"""

from __future__ import annotations

import logging
import warnings
from collections.abc import Mapping
from enum import Enum
from typing import Protocol

from runtime.common.errors import InvalidInputError

logger = logging.getLogger(__name__)

_IGNORED = frozenset({"spark.app.name", "spark.master", "spark.remote", "spark.api.mode"})
_IGNORED_PREFIXES = ("spark.submit.", "spark.app.")


class StaticConfPolicy(Enum):
    """`script.static-conf`."""

    WARN = "warn"
    FAIL = "fail"


class StaticConfWarning(UserWarning):
    """A key of the job's conf has no effect on a warm session."""


class StaticConfError(InvalidInputError):
    """The job asks for static conf that this TaskManager's Spark was not started with."""


class LiveConf(Protocol):
    """The warm JVM's answers."""

    def is_static_sql(self, key: str, /) -> bool:
        """True for static `spark.sql.*` keys."""

    def is_modifiable(self, key: str, /) -> bool:
        """True for registered keys that a session may set."""

    def warm_value(self, key: str, /) -> str | None:
        """What the JVM was started with."""


class ConfJudge:
    """Judges the conf of one job; remembers what it has warned of."""

    def __init__(self, policy: StaticConfPolicy, live: LiveConf) -> None:
        self._policy = policy
        self._live = live
        self._warned: set[str] = set()

    def settable(self, conf: Mapping[str, object]) -> dict[str, str]:
        """The keys that can be set. Raises StaticConfError with all keys that cannot, when the policy is FAIL."""
        taken: dict[str, str] = {}
        refused: list[str] = []
        for key, raw in conf.items():
            value = _text(raw)
            if key in _IGNORED or key.startswith(_IGNORED_PREFIXES):
                logger.debug("%s is ignored: the session runs already", key)
            elif self._is_static(key):
                if self._live.warm_value(key) != value:
                    refused.append(key)
            else:
                taken[key] = value
        self._refuse(refused)
        return taken

    def _is_static(self, key: str) -> bool:
        if not key.startswith("spark."):
            return False
        if key.startswith("spark.sql."):
            return self._live.is_static_sql(key)
        return not self._live.is_modifiable(key)

    def _refuse(self, keys: list[str]) -> None:
        if keys and self._policy is StaticConfPolicy.FAIL:
            message = (
                f"static Spark conf that this TaskManager's Spark was not started with: {', '.join(sorted(keys))}; "
                "set it in the TaskManager's configuration, or set script.static-conf to warn"
            )
            raise StaticConfError(message, tuple(sorted(keys)))
        for key in keys:
            if key in self._warned:
                continue
            self._warned.add(key)
            warnings.warn(
                f"{key} is static: the warm Spark session was started with {self._live.warm_value(key)!r}",
                StaticConfWarning,
                stacklevel=4,
            )


def _text(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)
