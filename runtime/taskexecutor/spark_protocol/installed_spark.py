"""Which Spark is installed here."""

from __future__ import annotations

import importlib.metadata


def pyspark_version() -> str:
    """The version of the installed package, "" where there is none."""
    try:
        return importlib.metadata.version("pyspark")
    except importlib.metadata.PackageNotFoundError:
        return ""
