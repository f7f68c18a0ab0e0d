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

from runtime.taskexecutor.python_workers.session_worker import IGNORED_BY_DAEMON, WorkerKeeper
from runtime.taskexecutor.worker_protocol.session_output import flush_output
from runtime.taskexecutor.worker_protocol.session_work import begin_for
from runtime.taskexecutor.worker_protocol.worker_environment import (
    JOB_DIRECTORY_VARIABLE,
    SESSION_PROPERTY,
    WORKING_DIRECTORY_PROPERTY,
)


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

    tell_failure = worker.handle_worker_exception

    def tell_failure_last(*arguments: Any) -> None:
        flush_output()  # the job may end as soon as Spark hears of it
        tell_failure(*arguments)

    worker.setup_spark_files = set_up_task
    worker.handle_worker_exception = tell_failure_last
    keeper.follow(worker, importlib.import_module("pyspark.daemon"))


def main() -> None:
    """Serve until the JVM closes our stdin."""
    use_installed_pyspark()
    directory = os.environ.get(JOB_DIRECTORY_VARIABLE, "")
    if directory:
        enter_job_directory(directory)
    from pyspark import daemon

    from runtime.taskexecutor.python_workers.data_sources import own_data_sources

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
