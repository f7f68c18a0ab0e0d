"""What a living session can take of a job's Spark conf, and what happens to the rest.

Static conf belongs to the JVM's start: keys whose values differ from the warm ones are named in one warning
per job, or fail the job. Keys that only name or place an application are ignored.
"""

from __future__ import annotations

import logging
import shutil
import sys
import warnings
from collections.abc import Callable, Iterable, Mapping, Sequence
from enum import Enum
from pathlib import Path

from runtime.common.errors import InvalidInputError
from runtime.common.spark_conf import (
    EXECUTOR_ENV,
    ISOLATION,
    JVM,
    OWNED,
    conf_text,
    is_ignored,
    is_offered,
    is_owned,
    is_static,
    is_without_effect,
)
from runtime.common.spark_environments import CATALOG

logger = logging.getLogger(__name__)


_PLACE = "Spark conf"


_PYTHONS = ("PYSPARK_PYTHON", "PYSPARK_DRIVER_PYTHON")


def _is_this_python(name: str) -> bool:
    """False for another environment of the same interpreter: it has other packages."""
    found = shutil.which(name)
    own = Path(sys.executable)
    return found is not None and Path(found).parent == own.parent and own.samefile(found)


class StaticConfPolicy(Enum):
    """The values of `script.static-conf`."""

    WARN = "warn"
    FAIL = "fail"
    ENVIRONMENT = "environment"


class StaticConfWarning(UserWarning):
    """Keys of the job's conf have no effect on a warm session."""


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
    """Judges the conf of one job by what the JVM was started with (`warm`); remembers what it has warned of.

    Where the conf of the job itself (`given`) says which catalog it has, the code does not get another one.
    """

    def __init__(
        self, policy: StaticConfPolicy, warm: Mapping[str, str], given: Mapping[str, str] | None = None
    ) -> None:
        self._policy = policy
        self._warm = warm
        self._given = given or {}
        self._warned: set[str] = set()

    def settable(self, conf: Mapping[str, object], *, is_first: bool = False) -> dict[str, str]:
        """The keys that can be set. Raises StaticConfError with all keys that cannot, when the policy is FAIL, and
        OtherSparkNeededError when it is ENVIRONMENT and the code has not used Spark before (`is_first`).
        """
        taken: dict[str, str] = {}
        refused: dict[str, str] = {}
        vain: list[str] = []
        overruled: list[str] = []
        for key, raw in conf.items():
            value = conf_text(raw)
            if key == ISOLATION and value.strip() != JVM:
                message = f"{ISOLATION}: {value[:80]!r}: expected {JVM}, for a JVM of the job alone"
                raise StaticConfError(message, (key,))
            if is_ignored(key):
                logger.debug("%s is ignored: the session runs already", key)
            elif is_static(key):
                if not is_offered(key, value, self._warm):
                    if is_without_effect(key, self._warm):
                        vain.append(key)
                    elif key == CATALOG and key in self._given and is_offered(key, self._given[key], self._warm):
                        overruled.append(key)
                    else:
                        refused[key] = value
            else:
                taken[key] = value
        possible = {key: value for key, value in refused.items() if not is_owned(key)}
        if possible and is_first and self._policy is StaticConfPolicy.ENVIRONMENT:
            raise OtherSparkNeededError(possible)
        self._refuse(list(refused))
        self._warn(vain, self._of_executors)
        self._warn(overruled, self._of_given)
        self.look_for_pythons({key.removeprefix(EXECUTOR_ENV): conf_text(value) for key, value in conf.items()})
        return taken

    def look_for_pythons(self, environment: Mapping[str, str]) -> None:
        """Warn of variables that would choose an interpreter under spark-submit, where they name another one."""
        others = {key: value for key in _PYTHONS if (value := environment.get(key, "")) and not _is_this_python(value)}
        self._warn(
            others,
            lambda keys: (
                f"{', '.join(f'{key}={others[key][:200]}' for key in keys)} has no effect: user code and the Python "
                f"functions of Spark run on the TaskManager's interpreter ({sys.executable}, Python "
                f"{sys.version_info.major}.{sys.version_info.minor}). Send packages with the job: --py-files takes "
                "wheels too, and archives unpack into the working directory"
            ),
        )

    def _refuse(self, keys: list[str]) -> None:
        if keys and self._policy is StaticConfPolicy.FAIL:
            message = (
                f"static Spark conf that this TaskManager's Spark was not started with: {', '.join(sorted(keys))}; "
                "set it in the TaskManager's configuration, or set script.static-conf to warn"
            )
            raise StaticConfError(message, tuple(sorted(keys)))
        self._warn(keys, self._of_sessions)

    def _warn(self, keys: Iterable[str], sentence: Callable[[Sequence[str]], str]) -> None:
        new = [key for key in keys if key not in self._warned]
        if new:
            self._warned.update(new)
            # Without a place: a warning shows the line of its place, and that would be one of ours.
            warnings.warn_explicit(sentence(new), StaticConfWarning, _PLACE, 1)

    def _of_executors(self, keys: Sequence[str]) -> str:
        have = "has" if len(keys) == 1 else "have"
        master = self._warm.get("spark.master")
        return f"{', '.join(keys)} {have} no effect: Spark's tasks run in the driver's JVM here (spark.master {master})"

    def _of_given(self, keys: Sequence[str]) -> str:
        said = " ".join(f"{key}={self._given[key]}" for key in keys)
        return f"{said} of the job wins over what its code sets"

    def _of_sessions(self, keys: Sequence[str]) -> str:
        begun = ", ".join(f"{key} {'unset' if key not in self._warm else repr(self._warm[key])}" for key in keys)
        are, have = ("is", "has") if len(keys) == 1 else ("are", "have")
        said = f"{', '.join(keys)} {are} static and {have} no effect here: the Spark session was started with {begun}"
        advice = [f"{key}: a job cannot set it: {OWNED[key]}" for key in keys if is_owned(key)]
        if possible := [key for key in keys if not is_owned(key)]:
            alone = "it" if len(keys) == 1 else "them"
            them = alone if len(possible) == len(keys) else ", ".join(possible)
            advice.append(
                f"Give {them} as conf of the job (--conf, conf= or spark_conf=), which then gets a Spark environment "
                f"where one fits, or leave {them} out"
            )
        return ". ".join((said, *advice))
