"""Which Spark is installed here, and which ones a TaskManager runs."""

from __future__ import annotations

import importlib.metadata
import re
from dataclasses import dataclass

from runtime.common.errors import PermanentError


class UnsupportedVersionError(PermanentError):
    """The installed PySpark is of a version that no contract test has seen."""


@dataclass(frozen=True, slots=True, order=True)
class SparkMinor:
    """A minor version, as 4.3. What differs within one is mended by Spark's patches, and is none of our concern."""

    major: int
    minor: int

    @classmethod
    def of(cls, version: str) -> SparkMinor | None:
        """The minor version of a whole one, as 4.3.0; None for a text that is none."""
        found = re.match(r"(\d+)\.(\d+)(?!\d)", version)
        return cls(int(found[1]), int(found[2])) if found else None

    def __str__(self) -> str:
        return f"{self.major}.{self.minor}"


OLDEST, NEWEST = SparkMinor(4, 0), SparkMinor(4, 3)
"""The contract tests have seen these and all between (`docs/spark-versions.md`)."""

_FIRST_ON_ANY_JAVA = SparkMinor(4, 2)
_LAST_JAVA_OF_OLDER = 23
"""Hadoop 3.4, which Spark brings before 4.2, calls what newer ones have taken away."""


def pyspark_version() -> str:
    """The version of the installed package, "" where there is none."""
    try:
        return importlib.metadata.version("pyspark")
    except importlib.metadata.PackageNotFoundError:
        return ""


def check_supported(version: str) -> SparkMinor:
    """The minor version of a whole one. Raises UnsupportedVersionError."""
    minor = SparkMinor.of(version)
    if minor is None or not OLDEST <= minor <= NEWEST:
        message = f"PySpark {version or 'of no known version'} is not supported: {OLDEST} to {NEWEST} are"
        raise UnsupportedVersionError(message)
    return minor


def newest_java(version: str) -> int | None:
    """The newest Java on which this version of Spark runs; None: there is no such limit."""
    minor = SparkMinor.of(version)
    return _LAST_JAVA_OF_OLDER if minor is not None and minor < _FIRST_ON_ANY_JAVA else None
