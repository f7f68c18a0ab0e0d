"""A catalog that stays: what one job saves the next one finds, also after Spark was started again."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from runtime.taskexecutor.spark.environment_process import ProcessSparkEnvironment
from runtime.taskexecutor.spark.host_process import SparkStartError
from tests.kit.spark.spark_box import SparkBox, spark_settings

pytestmark = pytest.mark.timeout(600)


@pytest.fixture(scope="module")
def lasting(tmp_path_factory: pytest.TempPathFactory, class_archive: Path | None) -> Iterator[SparkBox]:
    directory = tmp_path_factory.mktemp("lasting")
    box = SparkBox(spark_settings(directory, archive=class_archive, warehouse=str(directory / "house")), directory)
    box.run(box.environment.start())
    yield box
    box.shut()


SAVE = """
spark.range(4).write.saveAsTable("saved")
spark.sql("create database other")
spark.sql("create table other.listed (id int, day string) using parquet partitioned by (day)")
spark.sql("insert into other.listed values (1, 'mon'), (2, 'tue')")
emit([spark.catalog.currentDatabase(), spark.table("saved").count()])
"""
READ = """
emit([spark.catalog.currentDatabase(), spark.table("saved").count(),
      spark.sql("select id from other.listed where day = 'tue'").first()[0]])
"""


def test_a_table_of_one_job_is_seen_by_the_next_and_after_a_new_start(lasting: SparkBox) -> None:
    jobs = [name * 32 for name in "123"]
    assert lasting.evaluate(SAVE, job_id=jobs[0]) == ["default", 4]
    lasting.end_job(jobs[0])
    assert lasting.evaluate(READ, job_id=jobs[1]) == ["default", 4, 2]
    lasting.run(lasting.environment.restart())
    assert lasting.evaluate(READ, job_id=jobs[2]) == ["default", 4, 2]
    house = Path(lasting.settings.warehouse)
    assert {path.name for path in house.iterdir()} == {".metastore", "saved", "other.db"}


HIVE = """#lazy
from pyspark.sql import SparkSession
spark = SparkSession.builder.enableHiveSupport().getOrCreate()
spark.sql("create table if not exists src (key int, value string) using hive")
spark.sql("load data local inpath 'data/kv1.txt' into table src")
emit([row.value for row in spark.sql("select value from src order by key").collect()])
"""


def test_tables_of_hive_are_loaded_from_the_jobs_directory(lasting: SparkBox, tmp_path: Path) -> None:
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "kv1.txt").write_text("2\x01two\n1\x01one\n")
    assert lasting.evaluate(HIVE, directory=tmp_path) == ["one", "two"]


def test_a_second_task_manager_with_the_same_catalog_is_told_so(lasting: SparkBox, tmp_path: Path) -> None:
    second = ProcessSparkEnvironment(spark_settings(tmp_path, warehouse=lasting.settings.warehouse))
    with pytest.raises(SparkStartError, match=r"used by process .* serves one TaskManager") as refused:
        lasting.run(second.start())
    assert "spark.hadoop.hive.metastore.uris" in str(refused.value)
    lasting.run(second.stop())
