"""What the Java classes of this folder have otherwise for older versions of Spark.

The sources and names of this folder are for the newest version. A folder `before_4_1` has sources that take the place
of those of the same name for every version before 4.1, unless a folder nearer to the version has one too. A line of
`names.txt` that begins with `[<4.1]` or `[>=4.1]` is for these versions only.
"""

from __future__ import annotations

import re
from pathlib import Path

from runtime.taskexecutor.spark_protocol.installed_spark import NEWEST, OLDEST, SparkMinor

_CONDITION = re.compile(r"\[(<|>=)(\d+)\.(\d+)\] ")


def source_file(folder: Path, name: str, minor: SparkMinor) -> Path:
    """The Java source of this class for this version."""
    for number in range(OLDEST.minor + 1, NEWEST.minor + 1):
        file = folder / f"before_{NEWEST.major}_{number}" / f"{name}.java"
        if minor < SparkMinor(NEWEST.major, number) and file.exists():
            return file
    return folder / f"{name}.java"


def names_of(text: str, minor: SparkMinor) -> list[str]:
    """The lines of `names.txt` that are for this version, without their conditions."""
    found = []
    for line in filter(None, map(str.strip, text.splitlines())):
        condition = _CONDITION.match(line)
        if condition is None:
            if not line.startswith("#"):
                found.append(line)
        elif (minor < SparkMinor(int(condition[2]), int(condition[3]))) == (condition[1] == "<"):
            found.append(line[condition.end() :])
    return found
