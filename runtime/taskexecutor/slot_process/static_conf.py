"""What a living session can take of a job's Spark conf, and what happens to the rest.

Static conf belongs to the JVM's start: a key whose value differs from the warm one gives one warning per job, or
fails the job. Keys that only name or place an application are ignored.
"""

from __future__ import annotations

import logging
import warnings
from collections.abc import Mapping
from enum import Enum

from runtime.common.errors import InvalidInputError
from runtime.common.spark_conf import (
    ISOLATION,
    JVM,
    conf_text,
    is_ignored,
    is_offered,
    is_owned,
    is_static,
    is_without_effect,
)

logger = logging.getLogger(__name__)


_PLACE = "Spark conf"


class StaticConfPolicy(Enum):
    """The values of `script.static-conf`."""

    WARN = "warn"
    FAIL = "fail"
    ENVIRONMENT = "environment"


class StaticConfWarning(UserWarning):
    """A key of the job's conf has no effect on a warm session."""


class StaticConfError(InvalidInputError):
    """The job asks for static conf that this TaskManager's Spark was not started with."""


class OtherSparkNeededError(BaseException):
    """A script asks for static conf before it has used Spark: it begins again in an environment that has it (R53).

    No Exception, since `except Exception` of a script is not meant for it.
    """

    def __init__(self, conf: Mapping[str, str]) -> None:
        super().__init__(f"static Spark conf: {', '.join(sorted(conf))}")
        self.conf = dict(conf)


class ConfJudge:
    """Judges the conf of one job by what the JVM was started with (`warm`); remembers what it has warned of."""

    def __init__(self, policy: StaticConfPolicy, warm: Mapping[str, str]) -> None:
        self._policy = policy
        self._warm = warm
        self._warned: set[str] = set()

    def settable(self, conf: Mapping[str, object], *, is_first: bool = False) -> dict[str, str]:
        """The keys that can be set. Raises StaticConfError with all keys that cannot, when the policy is FAIL, and
        OtherSparkNeededError when it is ENVIRONMENT and the code has not used Spark before (`is_first`).
        """
        taken: dict[str, str] = {}
        refused: dict[str, str] = {}
        for key, raw in conf.items():
            value = conf_text(raw)
            if key == ISOLATION and value.strip() != JVM:
                message = f"{ISOLATION}: {value[:80]!r}: expected {JVM}, for a JVM of the job alone"
                raise StaticConfError(message, (key,))
            if is_ignored(key):
                logger.debug("%s is ignored: the session runs already", key)
            elif is_static(key):
                if is_without_effect(key, self._warm):
                    self._warn(key)
                elif not is_offered(key, value, self._warm):
                    refused[key] = value
            else:
                taken[key] = value
        possible = {key: value for key, value in refused.items() if not is_owned(key)}
        if possible and is_first and self._policy is StaticConfPolicy.ENVIRONMENT:
            raise OtherSparkNeededError(possible)
        self._refuse(list(refused))
        return taken

    def _refuse(self, keys: list[str]) -> None:
        if keys and self._policy is StaticConfPolicy.FAIL:
            message = (
                f"static Spark conf that this TaskManager's Spark was not started with: {', '.join(sorted(keys))}; "
                "set it in the TaskManager's configuration, or set script.static-conf to warn"
            )
            raise StaticConfError(message, tuple(sorted(keys)))
        for key in keys:
            self._warn(key)

    def _warn(self, key: str) -> None:
        if key not in self._warned:
            self._warned.add(key)
            # Without a place: a warning shows the line of its place, and that would be one of ours.
            warnings.warn_explicit(self._sentence(key), StaticConfWarning, _PLACE, 1)

    def _sentence(self, key: str) -> str:
        if is_without_effect(key, self._warm):
            master = self._warm.get("spark.master")
            return f"{key} has no effect: Spark's tasks run in the driver's JVM here (spark.master {master})"
        warm = self._warm.get(key)
        begun = "without it" if warm is None else f"with {warm!r}"
        return (
            f"{key} is static and has no effect here: the Spark session was started {begun}. Give it as conf of the "
            "job (--conf, conf= or spark_conf=), which then gets a Spark environment, or leave it out"
        )
