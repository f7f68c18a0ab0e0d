"""Which Spark conf is static, when two values are the same, and what a refusal advises."""

from __future__ import annotations

import pytest

from runtime.common.spark_conf import is_ignored, is_same, is_static, static_conf


@pytest.mark.parametrize(
    ("key", "static", "ignored"),
    [
        ("spark.executor.memory", True, False),
        ("spark.driver.memory", True, False),
        ("spark.hadoop.fs.s3a.endpoint", False, False),
        ("spark.hadoop.hive.metastore.uris", True, False),
        ("spark.my.key", False, False),
        ("spark.my", False, False),
        ("spark.serializer", True, False),
        ("spark.executor.of_mine", True, False),
        ("spark.sql.warehouse.dir", True, False),
        ("spark.sql.streaming.ui.enabled", True, False),
        ("spark.sql.hive.metastore.version", True, False),
        ("spark.sql.shuffle.partitions", False, False),
        ("spark.sql.catalog.iceberg", False, False),
        ("spark.sql.debug.maxToStringFields", False, False),
        ("spark.log.level", False, False),
        ("spark.log.structuredLogging.enabled", True, False),
        ("spark.app.name", False, True),
        ("spark.master", False, True),
        ("spark.submit.deployMode", False, True),
        ("spark.submit.pyFiles", False, False),
        ("spark.files", False, False),
        ("spark.archives", False, False),
        ("spark.files.overwrite", True, False),
        ("spark.scheduler.pool", False, True),
        ("spark.job.description", False, True),
        ("mine.key", False, False),
        ("spark.openlineage.parentRunId", False, False),
        ("spark.openlineage.transport.url", False, False),
    ],
)
def test_kinds_of_keys(key: str, static: bool, ignored: bool) -> None:
    assert (is_static(key), is_ignored(key)) == (static, ignored)


@pytest.mark.parametrize(
    ("wanted", "offered", "same"),
    [
        ("1024m", "1g", True),
        ("1G", "1gb", True),
        ("1t", "1024g", True),
        ("True", "true", True),
        ("2g", "1g", False),
        ("1024", "1g", False),
        ("x", None, False),
        (" a ", "a", True),
    ],
)
def test_values_are_compared_by_what_they_say(wanted: str, offered: str | None, same: bool) -> None:
    assert is_same(wanted, offered) is same


def test_the_static_part_of_a_conf() -> None:
    conf = {"spark.executor.memory": "1g", "spark.sql.shuffle.partitions": "3", "mine": "x", "spark.app.name": "y"}
    assert static_conf(conf) == {"spark.executor.memory": "1g"}
