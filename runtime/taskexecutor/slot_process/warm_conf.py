"""The conf of the shared context as a slot process sees it: what the JVM was started with, read without a call to it.

pyspark reads a conf field by field, four calls for each key, when a context is made and whenever a script brings a
SparkConf of its own: 130 calls, 10 to 40 ms.
"""

from __future__ import annotations

from collections.abc import Mapping

from py4j.java_gateway import JavaObject
from pyspark import SparkConf


class WarmConf(SparkConf):
    """A SparkConf whose values are in this process. `set` changes them here: the JVM's conf is that of all slots."""

    def __init__(self, java_conf: JavaObject, values: Mapping[str, str]) -> None:
        super().__init__(_jconf=java_conf)
        self._values = dict(values)

    def set(self, key: str, value: str) -> SparkConf:
        """Set it for this process."""
        self._values[key] = str(value)
        return self

    def get(self, key: str, defaultValue: str | None = None) -> str | None:  # type: ignore[override]  # noqa: N803 - pyspark's overloads and names
        """The value, or the default."""
        return self._values.get(key, defaultValue)

    def getAll(self) -> list[tuple[str, str]]:  # noqa: N802 - pyspark's name
        """All keys and values."""
        return list(self._values.items())

    def contains(self, key: str) -> bool:
        """True if it is set."""
        return key in self._values
