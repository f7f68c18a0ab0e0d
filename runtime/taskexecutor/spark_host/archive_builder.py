"""Process that builds the class archive: a driver JVM runs a few queries and writes the archive when it exits.

Started by the Spark host in the background at the lowest priority; dies with it.
"""

from __future__ import annotations

import dataclasses
import logging
import os
import sys
import tempfile
from pathlib import Path
from typing import Any

from runtime.aio.clock import SystemClock
from runtime.common.clock import Deadline
from runtime.system.linux import die_with_parent
from runtime.taskexecutor.driver_jvm.archive import ClassArchive
from runtime.taskexecutor.driver_jvm.command import class_path, spark_home
from runtime.taskexecutor.driver_jvm.java import java_of_spark
from runtime.taskexecutor.spark_host.driver import prepare_directories, start_driver
from runtime.taskexecutor.spark_protocol import settings as spark_settings
from runtime.taskexecutor.spark_protocol.settings import SparkSettings

logger = logging.getLogger(__name__)

_START_TIMEOUT = 300.0
_EXIT_TIMEOUT = 600.0
_LOWEST_PRIORITY = 19


def archive_for(settings: SparkSettings) -> ClassArchive:
    """The archive that fits this machine's Java, this pyspark and the configured class path."""
    conf = spark_settings.effective_conf(settings)
    return ClassArchive.locate(java_of_spark(os.environ), settings.cds_directory, class_path(spark_home(), conf))


def build(settings: SparkSettings) -> bool:
    """Build the archive unless it is there or being built. True if this call has made it."""
    archive = archive_for(settings)
    with archive.building() as is_ours:
        if not is_ours or archive.exists():
            return False
        archive.make_base()
        target = archive.training_target()
        with tempfile.TemporaryDirectory(prefix="archive-", dir=settings.work_directory) as scratch:
            _train(dataclasses.replace(settings, master="local[2]", work_directory=Path(scratch)), archive, target)
        if not target.is_file():
            logger.warning("the training run has left no class archive at %s", target)
            return False
        archive.publish(target)
        return True


def _train(settings: SparkSettings, archive: ClassArchive, target: Path) -> None:
    settings = dataclasses.replace(
        settings, log_directory=settings.work_directory / "log", warehouse="", secret_file=""
    )
    prepare_directories(settings)
    clock = SystemClock()
    deadline = Deadline.after(clock, _START_TIMEOUT)
    # Java takes an archive for class paths that begin with its own: those of applications have no jar of ours, and the
    # next version of this code has another one.
    options = archive.train_options(target)
    driver = start_driver(settings, archive.java, options, clock, deadline, has_own_jar=False)
    try:
        _queries(driver.spark, settings.work_directory)
        # The archive is written by an orderly exit only: pyspark's gateway ends the JVM at the end of its stdin.
        driver.stop()
        driver.process.close_stdin()
        if driver.process.wait(_EXIT_TIMEOUT) is None:
            logger.warning("the training run did not exit in %.0f s", _EXIT_TIMEOUT)
    finally:
        driver.process.kill()


def _queries(spark: Any, directory: Path) -> None:
    from pyspark.sql import functions
    from pyspark.sql.types import LongType

    path = str(directory / "training.parquet")
    spark.range(1000).count()
    rows = spark.range(1000).withColumn("key", functions.col("id") % 7)
    rows.write.parquet(path)
    read = spark.read.parquet(path)
    read.groupBy("key").count().join(rows.groupBy("key").agg(functions.sum("id")), "key").collect()
    spark.sql("select 1 as one").collect()
    double = functions.udf(lambda value: value * 2, LongType())
    rows.select(double("id")).collect()
    spark.sparkContext.parallelize(range(10), 2).map(str).collect()
    spark.createDataFrame([(1, "a")], "number int, text string").createOrReplaceTempView("training")
    spark.sql("select * from training order by number").collect()


def main(argv: list[str]) -> int:
    """`archive_builder SETTINGS_FILE`: exit code 0 when an archive exists afterwards or is being built."""
    die_with_parent(os.getppid())
    os.nice(_LOWEST_PRIORITY)
    os.environ["PYSPARK_PYTHON"] = os.environ["PYSPARK_DRIVER_PYTHON"] = sys.executable
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(name)s %(message)s")
    settings = SparkSettings.parse(Path(argv[1]).read_text())
    is_built = build(settings)
    logger.info("class archive in %s: %s", settings.cds_directory, "built" if is_built else "nothing to do")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv))
