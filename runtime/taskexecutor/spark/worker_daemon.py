"""What the JVM starts as daemon of its Python workers: pyspark's own, set up for the job's directory.

A job that brings files has workers of its own (its environment is part of Spark's worker-pool key). They start in
the job's directory, as in spark-submit's cluster mode, and `SparkFiles` names that directory. Other jobs share the
plain daemon.
"""

from __future__ import annotations

import os
import sys

JOB_DIRECTORY_VARIABLE = "FLINKLIKE_JOB_DIRECTORY"
JOB_ID_VARIABLE = "FLINKLIKE_JOB_ID"


def use_installed_pyspark() -> None:
    """Import pyspark from the installed package: the zip that Spark puts first holds no compiled code."""
    sys.path[:] = [entry for entry in sys.path if not entry.endswith(("/pyspark.zip", "-src.zip"))]


def enter_job_directory(directory: str) -> None:
    """Make the job's directory the working directory and what SparkFiles names."""
    if not os.path.isdir(directory):  # noqa: PTH112 - pathlib would be one more import in every daemon
        return
    os.chdir(directory)
    from pyspark.core.files import SparkFiles

    SparkFiles.getRootDirectory = classmethod(lambda _: directory)  # type: ignore[method-assign,assignment]  # no hook


def main() -> None:
    """Serve until the JVM closes our stdin."""
    use_installed_pyspark()
    directory = os.environ.get(JOB_DIRECTORY_VARIABLE, "")
    if directory:
        enter_job_directory(directory)
    # Imported before the fork, once, instead of in every worker; it starts no thread (a test says so).
    import pyspark.worker  # noqa: F401
    from pyspark import daemon

    daemon.manager()


if __name__ == "__main__":
    main()
