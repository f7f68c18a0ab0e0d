"""Warming: small queries that let the JVM compile its hot paths, a Python UDF for the worker daemon, a parquet file.

Runs on a thread of its own, only while no slot has an active Spark job. A JVM that was started for a job warms up when
no session is open: until then the job itself does it, and has the processor for itself.
"""

from __future__ import annotations

import logging
import shutil
from collections.abc import Callable
from typing import Any

from py4j.protocol import Py4JError

from runtime.taskexecutor.spark_host.driver import HOST_TAG, Driver
from runtime.taskexecutor.spark_protocol.settings import HOST_POOL

logger = logging.getLogger(__name__)

_IDLE_INTERVAL = 0.1
_FAILURES_MAX = 3


class WarmUp:
    """One warming of one driver. `is_stopping` ends it between two queries; it waits while `is_used`."""

    def __init__(
        self,
        driver: Driver,
        wait: Callable[[float], object],
        is_stopping: Callable[[], bool],
        is_used: Callable[[], bool],
    ) -> None:
        self._driver = driver
        self._is_used = is_used
        self._wait = wait
        self._is_stopping = is_stopping

    def run(self) -> bool:
        """Warm up; False when stopped before the end. A query that fails is left out: slots report the cause."""
        self._driver.bind_thread(HOST_TAG, HOST_POOL)
        session = self._driver.java_session.newSession()
        steps: list[Callable[[], object]] = [lambda: session.range(1000).count()] * self._driver.settings.warm_up_count
        if steps:
            steps[1:1] = [self._python_function, lambda: self._parquet(session), lambda: self._aggregate(session)]
        failures = 0
        for step in steps:
            if failures == _FAILURES_MAX or not self._wait_idle():
                break
            try:
                step()
            except Py4JError as error:
                failures += 1
                logger.warning("a query of the warming has failed: %s", error)
        return not self._is_stopping()

    def _wait_idle(self) -> bool:
        while not self._is_stopping():
            if not self._is_used():
                return True
            self._wait(_IDLE_INTERVAL)
        return False

    def _python_function(self) -> None:
        from pyspark.sql.functions import udf

        double = udf(lambda value: value * 2, "bigint")
        rows = self._driver.spark.range(10).select(double("id").alias("doubled")).collect()
        assert sum(row.doubled for row in rows) == 90, rows

    def _parquet(self, session: Any) -> None:
        path = self._driver.settings.work_directory / "warm-up.parquet"
        session.range(1000).write().mode("overwrite").parquet(str(path))
        session.read().parquet(str(path)).count()
        shutil.rmtree(path, ignore_errors=True)

    @staticmethod
    def _aggregate(session: Any) -> None:
        session.sql("select id % 7 as k, count(*) as n from range(1000) group by 1").collectAsList()
