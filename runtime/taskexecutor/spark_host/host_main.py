"""Entry point of the Spark host process: `host_main FD PARENT_PID`. The first frame on FD carries the settings."""

from __future__ import annotations

import logging
import os
import re
import socket
import sys
import threading
from collections.abc import Mapping
from pathlib import Path

from runtime.aio.clock import SystemClock
from runtime.aio.entropy import SystemEntropy
from runtime.common.clock import Clock, Deadline
from runtime.common.errors import FlinklikeError
from runtime.common.spark_environments import JARS
from runtime.system.linux import die_with_parent, refuse_new_privileges
from runtime.taskexecutor.driver_jvm.archive import ClassArchive
from runtime.taskexecutor.driver_jvm.command import class_path, spark_home
from runtime.taskexecutor.driver_jvm.java import JavaRuntime, java_of_spark
from runtime.taskexecutor.driver_jvm.last_exception import in_words
from runtime.taskexecutor.spark_host.driver import Driver, prepare_directories, start_driver
from runtime.taskexecutor.spark_host.launch import JvmStartError
from runtime.taskexecutor.spark_host.warehouse import hold_metastore
from runtime.taskexecutor.spark_protocol import frames
from runtime.taskexecutor.spark_protocol import settings as spark_settings
from runtime.taskexecutor.spark_protocol.installed_spark import check_supported, pyspark_version
from runtime.taskexecutor.spark_protocol.java_causes import java_chain
from runtime.taskexecutor.spark_protocol.settings import SparkSettings

logger = logging.getLogger(__name__)

_REASON_LENGTH_MAX = 2000
_PATTERN = re.compile(r"[*?\[{]")
"""Spark takes patterns of Hadoop, and finds what matches."""


class _AbsentJarError(FlinklikeError):
    def __init__(self, jar: str) -> None:
        super().__init__(
            f"{JARS}: {jar} is not on this TaskManager's host; jars of the client are given as jars (--jars)"
        )


def start(settings: SparkSettings, java: JavaRuntime, archive: ClassArchive, clock: Clock) -> Driver:
    """Start the driver. A JVM that ends by itself is tried without the class archive, which goes if that helps; but not
    one that an exception of Spark's has ended.
    """
    deadline = Deadline.after(clock, settings.start_timeout)
    prepare_directories(settings)
    options = archive.use_options() if settings.class_archive else ()
    try:
        return start_driver(settings, java, options, clock, deadline)
    except JvmStartError as error:
        if not options or not error.is_of_itself() or error.is_thrown:
            raise
        logger.warning("the JVM does not start with its class archive, trying without: %s", error)
        driver = start_driver(settings, java, (), clock, deadline)
        archive.discard()
        return driver


def main(argv: list[str]) -> int:
    """Serve until the TaskManager or the JVM is dead."""
    die_with_parent(int(argv[2]))
    refuse_new_privileges()  # R50: the JVM and its Python workers inherit it
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(name)s %(message)s")
    # py4j logs each failed call of user code as an error of ours.
    logging.getLogger("py4j").setLevel(logging.CRITICAL)
    with socket.socket(fileno=int(argv[1])) as connection:
        hello = frames.receive_frame(connection)
        if hello is None:
            return 1
        return _serve(SparkSettings.parse(hello["settings"]), connection)


def absent_jar(conf: Mapping[str, str]) -> str:
    """The first jar of `spark.jars` that this host does not have, without which Spark would start; "" for none."""
    for jar in (part.strip() for part in conf.get(JARS, "").split(",")):
        path = jar.removeprefix("local:").removeprefix("file:").removeprefix("//")
        if path.startswith("/") and not _PATTERN.search(path) and not Path(path).exists():
            return jar
    return ""


def refusal(error: Exception) -> str:
    """Why Spark did not start: what its innermost Java exception says, or the error itself."""
    chain = [cause for cause in java_chain(error) if cause.message]
    if chain:
        return f"{chain[-1].message[:_REASON_LENGTH_MAX]} ({chain[-1].class_name})"
    return f"{type(error).__name__}: {error}".strip()[:_REASON_LENGTH_MAX]


def _serve(settings: SparkSettings, connection: socket.socket) -> int:
    clock = SystemClock()
    os.environ["PYSPARK_PYTHON"] = os.environ["PYSPARK_DRIVER_PYTHON"] = sys.executable
    try:
        check_supported(pyspark_version())
        java = java_of_spark(os.environ)
        conf = spark_settings.effective_conf(settings)
        if absent := absent_jar(conf):
            raise _AbsentJarError(absent)
        archive = ClassArchive.locate(java, settings.cds_directory, class_path(spark_home(), conf))
        hold_metastore(settings.warehouse, settings.spark_conf, clock, threading.Event().wait)
        driver = start(settings, java, archive, clock)
    except (FlinklikeError, OSError) as error:
        is_refusal, is_killed, reason = isinstance(error, _AbsentJarError), False, str(error)
        if isinstance(error, JvmStartError):
            is_refusal, is_killed, reason = error.is_of_itself(), error.is_killed, in_words(error.thrown) or reason
        _tell_failure(connection, reason, is_refusal=is_refusal, is_killed=is_killed)
        return 1
    except Exception as error:
        # The boundary of the start: what Spark refuses is told where the TaskManager was started, and not only here.
        logger.exception("Spark does not start")
        _tell_failure(connection, refusal(error), is_refusal=True)
        return 1
    logger.info("Spark %s on Java %d (%s), JVM %d", driver.spark.version, java.version, java.source, driver.process.pid)
    started = {"event": "started", "jvm_pid": driver.process.pid, "java": java.source, "java_version": java.version}
    connection.sendall(frames.encode(started))
    # Imported late: it needs py4j, and a missing Java should be told without it.
    from runtime.taskexecutor.spark_host.host import SparkHost

    SparkHost(driver, archive, connection, clock, SystemEntropy()).serve()
    return 0


def _tell_failure(connection: socket.socket, reason: str, *, is_refusal: bool, is_killed: bool = False) -> None:
    failed = {"event": "failed", "reason": reason, "is_refusal": is_refusal, "is_killed": is_killed}
    connection.sendall(frames.encode(failed))


if __name__ == "__main__":
    sys.exit(main(sys.argv))
