"""What the JVM starts as daemon of its Python workers: pyspark's own, set up for the job's directory.

A job that brings files has workers of its own (its environment is part of Spark's worker-pool key). They start in
the job's directory, as in spark-submit's cluster mode, and `SparkFiles` names that directory. Other jobs share the
plain daemon.
"""

from __future__ import annotations

import gc
import importlib
import os
import signal
import sys
from typing import Any

from runtime.taskexecutor.python_workers import python_marks
from runtime.taskexecutor.python_workers.session_worker import IGNORED_BY_DAEMON, SESSION_PROPERTY, WorkerKeeper

JOB_DIRECTORY_VARIABLE = "FLINKLIKE_JOB_DIRECTORY"
JOB_ID_VARIABLE = "FLINKLIKE_JOB_ID"
WORKING_DIRECTORY_PROPERTY = "flinklike.working-directory"
"""Local property of Spark that names a link to the job's working directory; each task brings it along (R24)."""


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


def enter_working_directory(link: str, otherwise: str) -> None:
    """Work where the job works: workers are shared by jobs that bring no files, one task after the other (R24)."""
    try:
        os.chdir(link or otherwise)
    except FileNotFoundError:  # the job has ended, and its directory with it
        os.chdir(otherwise)
    except OSError as error:
        # A worker of spark-submit is in its directory already, and goes on whatever becomes of it.
        sys.stderr.write(f"Spark's Python worker cannot work in its job's working directory: {error}\n")
        os.chdir(otherwise)


def begin_for(session_id: str, link: str, otherwise: str) -> None:
    """All that this process does from now on is the session's, and is done where its job works."""
    if session_id and link:
        mark_task(session_id, link)
    enter_working_directory(link, otherwise)


def follow_tasks(keeper: WorkerKeeper, plain: str) -> None:
    """Let each task begin in its job's working directory, which spark-submit's local mode has as well."""
    from pyspark import TaskContext

    # Imported before the fork, once, instead of in every worker; it starts no thread (a test says so).
    worker: Any = importlib.import_module("pyspark.worker")
    set_up = worker.setup_spark_files

    def set_up_task(*arguments: Any) -> None:
        task = TaskContext.get()
        link = None if task is None else task.getLocalProperty(WORKING_DIRECTORY_PROPERTY)
        session_id = None if task is None else task.getLocalProperty(SESSION_PROPERTY)
        begin_for(session_id or "", link or "", plain)
        set_up(*arguments)

    worker.setup_spark_files = set_up_task
    worker.SparkSocketMessageReceiver = keeper.receiver_of(worker.SparkSocketMessageReceiver)


def mark_task(session_id: str, link: str) -> None:
    """Let all that the task starts be known as its session's (R29)."""
    try:
        python_marks.work_for(session_id, os.path.dirname(link))  # noqa: PTH120 - as above
    except (OSError, ValueError) as error:
        sys.stderr.write(f"what Python functions of session {session_id} start cannot be told from others': {error}\n")


def main() -> None:
    """Serve until the JVM closes our stdin."""
    use_installed_pyspark()
    directory = os.environ.get(JOB_DIRECTORY_VARIABLE, "")
    if directory:
        enter_job_directory(directory)
    from pyspark import daemon

    from runtime.taskexecutor.python_workers.stream_workers import (
        own_data_sources,  # which imports this module by its name
    )

    plain = os.getcwd()  # noqa: PTH109 - pathlib would be one more import in every daemon

    def begin_to_plan(session_id: str, link: str) -> None:
        begin_for(session_id, link, plain)
        own_data_sources(session_id, link)

    keeper = WorkerKeeper(daemon.worker, begin_to_plan, is_pristine=not directory)
    follow_tasks(keeper, plain)
    keeper.keep_workers_of(daemon)
    signal.pthread_sigmask(signal.SIG_BLOCK, IGNORED_BY_DAEMON)
    gc.freeze()  # what is loaded once is neither looked at nor copied by each worker's collector
    daemon.manager()


if __name__ == "__main__":
    main()
