"""Spark as its own scripts start it, outside any cluster: it knows JAVA_HOME and PATH only, and needs our Java."""

from __future__ import annotations

import os
import sys

from runtime.taskexecutor.driver_jvm.java import find_java


def plain_spark_environment() -> dict[str, str]:
    """This process's environment, with the Java that a TaskManager would take."""
    java = find_java(os.environ)
    return {**os.environ, "JAVA_HOME": str(java.home), "PYSPARK_PYTHON": sys.executable}
