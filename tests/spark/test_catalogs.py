"""R22: databases, tables and functions of a job are found by its sessions only, and by nobody when it has left."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.kit.spark.spark_box import SparkBox

JOBS = [name * 32 for name in "abc"]


@pytest.fixture(autouse=True)
def jobs_end(box: SparkBox) -> Iterator[None]:
    yield
    box.end_slots()
    for job_id in JOBS:
        box.end_job(job_id)


MAKE = """
rows = {rows}
spark.sql("create database mine")
spark.range(rows).write.saveAsTable("mine.stored")
spark.range(rows).write.saveAsTable("stored")
spark.sql("create function mine.f as 'org.apache.spark.sql.hive.execution.UDFToString'")
emit([database.name for database in spark.catalog.listDatabases()])
ask()
emit([spark.table("mine.stored").count(), spark.table("stored").count(),
      [function.name for function in spark.catalog.listFunctions("mine") if function.namespace]])
"""
LOOK = """
emit([[database.name for database in spark.catalog.listDatabases()], spark.catalog.tableExists("mine.stored"),
      spark.catalog.tableExists("stored")])
"""
DROP = """
names = [database.name for database in spark.catalog.listDatabases()]
for name in ["mine", "job_" + "a" * 32]:
    spark.sql(f"drop database if exists {name} cascade")
emit(names)
"""


def test_a_catalog_is_its_jobs_own_also_beside_others(box: SparkBox) -> None:
    slots = [box.slot(MAKE.format(rows=rows), slot_index=rows - 1, job_id=JOBS[rows - 1]) for rows in (1, 2)]
    assert [slot.next() for slot in slots] == [["default", "mine"]] * 2
    assert box.evaluate(DROP, job_id=JOBS[2]) == ["default"]
    for rows, slot in zip((1, 2), slots, strict=True):
        slot.tell()
        assert slot.next() == [rows, rows, ["f"]]


def test_what_a_job_has_made_is_found_by_its_next_task_and_gone_with_the_job(box: SparkBox) -> None:
    job, other = "d" * 32, "e" * 32
    assert box.evaluate(MAKE.format(rows=3), job_id=job) == ["default", "mine"]
    assert box.evaluate(LOOK, job_id=job, slot_index=1) == [["default", "mine"], True, True]
    before = box.run(box.environment.figures())["job_catalogs"]
    box.end_job(job)
    assert box.run(box.environment.figures())["job_catalogs"] == before - 1
    for job_id in (job, other):
        assert box.evaluate(LOOK, job_id=job_id) == [["default"], False, False]
        box.end_job(job_id)


def test_tables_and_databases_lie_in_the_jobs_directory(box: SparkBox, tmp_path: Path) -> None:
    code = MAKE.format(rows=2) + "ask()"
    directories = [tmp_path / "one job", tmp_path / "other"]
    slots = [
        box.slot(code, slot_index=index, job_id=JOBS[index], directory=directory)
        for index, directory in enumerate(directories)
    ]
    for slot, directory in zip(slots, directories, strict=True):
        assert slot.next() == ["default", "mine"]
        warehouse = directory / "spark-warehouse"
        assert {path.name for path in warehouse.iterdir()} == {"mine.db", "stored"}
        assert list((warehouse / "mine.db" / "stored").glob("*.parquet"))


CACHED = """
spark.range({rows}).write.saveAsTable("same")
spark.sql("cache table same")
plan = spark.table("same")._jdf.queryExecution().withCachedData().toString()
emit([spark.table("same").count(), "InMemoryRelation" in plan])
ask()
spark.sql("refresh table same")
emit(spark.table("same").count())
"""


def test_a_table_of_the_same_name_is_never_looked_up_in_another_jobs_caches(box: SparkBox) -> None:
    slots = [box.slot(CACHED.format(rows=rows), slot_index=rows - 1, job_id=JOBS[rows - 1]) for rows in (1, 2)]
    assert [slot.next() for slot in slots] == [[1, True], [2, True]]
    for slot in slots:
        slot.tell()
    assert [slot.next() for slot in slots] == [1, 2]


def test_a_conf_of_the_shared_state_is_the_sessions_own(box: SparkBox) -> None:
    change = """
state = spark._jsparkSession.sharedState()
state.conf().set("spark.my.shared", "mine")
state.hadoopConf().set("my.shared", "mine")
emit(1)
ask()
"""
    look = """
state = spark._jsparkSession.sharedState()
emit([state.conf().get("spark.my.shared", ""), state.hadoopConf().get("my.shared"),
      spark.newSession().conf.get("spark.my.shared", "")])
"""
    assert box.slot(change).next() == 1
    assert box.evaluate(look, slot_index=1) == ["", None, ""]


SAVES = """
spark.sql("create database if not exists brought")
for name in ("t", "brought.t"):
    spark.range(3).write.mode("overwrite").saveAsTable(name)
emit([spark.table("t").count(), spark.table("brought.t").count()])
"""


def test_what_a_lost_catalog_has_left_is_not_in_the_way_of_the_next(box: SparkBox, tmp_path: Path) -> None:
    warehouse = tmp_path / "work" / "spark-warehouse"
    brought = [warehouse / "own" / "data.txt", warehouse / "brought.db" / "own.txt"]
    for path in brought:
        path.parent.mkdir(parents=True)
        path.write_text("mine")
    for _ in range(2):
        assert box.evaluate(SAVES, job_id=JOBS[0], directory=tmp_path / "work") == [3, 3]
        assert [path.read_text() for path in brought] == ["mine", "mine"]
        box.run(box.environment.restart())
    assert box.evaluate(LOOK, job_id=JOBS[0], directory=tmp_path / "work") == [["default"], False, False]
    assert {path.name for path in warehouse.rglob("*.*") if path.is_file()} == {"data.txt", "own.txt"}
    of_tests = ".logs"  # of the kit's slots, which keep their logs beside their code
    left = {path.name for path in warehouse.parent.iterdir() if path.is_dir() and path.suffix != of_tests}
    assert left == {"spark-warehouse"}


@pytest.mark.extended
def test_a_warehouse_that_leads_elsewhere_is_left_alone(box: SparkBox, tmp_path: Path) -> None:
    """A script has put a link in its place: what lies behind it may be another's."""
    work, elsewhere = tmp_path / "work", tmp_path / "elsewhere"
    for path in (work, elsewhere):
        path.mkdir()
    assert box.evaluate("emit(1)", job_id=JOBS[0], directory=work) == 1
    (work / "spark-warehouse").rmdir()
    (work / "spark-warehouse").symlink_to(elsewhere)
    (elsewhere / "theirs").write_text("")
    box.run(box.environment.restart())
    assert box.evaluate("spark.range(2).write.saveAsTable('t'); emit(1)", job_id=JOBS[0], directory=work) == 1
    box.run(box.environment.restart())
    assert box.evaluate("emit(1)", job_id=JOBS[0], directory=work) == 1
    assert {path.name for path in elsewhere.iterdir()} == {"theirs", "t"}
