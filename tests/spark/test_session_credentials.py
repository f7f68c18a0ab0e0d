"""R51: delegation tokens are in the Hadoop conf of sessions, newer ones too while they run, and nowhere else there."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.kit.spark.spark_box import SparkBox, wait_until

KEY = "fs.lake.secret"
LOOK = f"""
def conf_of(context):
    return context._jsc.hadoopConfiguration().get("{KEY}")

def opened():
    jvm = spark._jvm
    place = jvm.java.net.URI("lake:///")
    conf = spark._jsc.hadoopConfiguration()
    conf.set("fs.lake.impl", "org.apache.hadoop.fs.RawLocalFileSystem")
    return jvm.org.apache.hadoop.fs.FileSystem.get(place, conf).getConf().get("{KEY}")
"""


@pytest.fixture
def credentials(box: SparkBox) -> Iterator[Path]:
    box.credentials.mkdir()
    yield box.credentials / "lake.json"
    for path in box.credentials.iterdir():
        path.unlink()
    box.credentials.rmdir()


def put(path: Path, **values: str) -> None:
    """As a TaskManager replaces it."""
    draft = path.with_suffix(".new")
    draft.write_text(json.dumps({"values": values}))
    draft.replace(path)


def test_a_session_begins_with_the_newest_and_gets_those_that_come(box: SparkBox, credentials: Path) -> None:
    put(credentials, **{f"hadoop_conf.{KEY}": "first", "token": "for tasks"})
    slot = box.slot(LOOK + "while True:\n    emit([conf_of(spark.sparkContext), opened()])\n    ask()\n")
    assert slot.next() == ["first", "first"]
    put(credentials, **{f"hadoop_conf.{KEY}": "second"})

    def now() -> list[str]:
        slot.tell()
        found: list[str] = slot.next()
        return found

    wait_until(lambda: now() == ["second", "second"])
    put(credentials, token="no key of Hadoop any more")
    wait_until(lambda: now() == [None, None])


def test_queries_use_them(box: SparkBox, credentials: Path, tmp_path: Path) -> None:
    """A view of local directories: what is found at its address is what the conf says when it is opened.

    Other than with credentials, a query that was planned before and runs afterwards finds other files: it comes again.
    """
    mount = "hadoop_conf.fs.viewfs.mounttable.lake.link./d"
    for number in (1, 2, 3):
        (tmp_path / str(number)).mkdir()
    put(credentials, **{mount: (tmp_path / "1").as_uri()})
    code = """
for number in (1, 2, 3):
    spark.range(number).write.csv(f"file://{DIRECTORY}/{number}/table")
while True:
    try:
        emit(spark.read.text("viewfs://lake/d/table").count())
    except Exception:
        emit(0)
    ask()
""".replace("{DIRECTORY}", str(tmp_path))
    slot = box.slot(code)
    assert slot.next() == 1

    def now() -> int:
        slot.tell()
        found: int = slot.next()
        return found

    for number in (2, 3):
        put(credentials, **{mount: (tmp_path / str(number)).as_uri()})
        wait_until(lambda number=number: now() == number)  # type: ignore[misc]


def test_what_a_job_has_set_itself_stays(box: SparkBox, credentials: Path) -> None:
    put(credentials, **{f"hadoop_conf.{KEY}": "first", "hadoop_conf.fs.lake.other": "a"})
    code = (
        LOOK
        + f"""
slot = spark._jvm.org.apache.spark.SlotSession.current()
slot.configure("spark.hadoop.{KEY}", "mine")
while True:
    emit([conf_of(spark.sparkContext), spark._jsc.hadoopConfiguration().get("fs.lake.other")])
    ask()
"""
    )
    slot = box.slot(code)
    assert slot.next() == ["mine", "a"]
    put(credentials, **{f"hadoop_conf.{KEY}": "second", "hadoop_conf.fs.lake.other": "b"})

    def now() -> list[str]:
        slot.tell()
        found: list[str] = slot.next()
        return found

    wait_until(lambda: now()[1] == "b")
    assert now() == ["mine", "b"]


def test_nobody_is_shown_them(box: SparkBox, credentials: Path) -> None:
    put(credentials, **{f"hadoop_conf.{KEY}": "unlikely-value"})
    code = (
        LOOK
        + """
shown = [spark.sql("SET -v").collect(), spark.sparkContext.getConf().getAll(), spark.sql("SET").collect()]
emit([conf_of(spark.sparkContext), "unlikely-value" in str(shown)])
"""
    )
    assert box.evaluate(code) == ["unlikely-value", False]
    credentials.unlink()
    assert box.evaluate(LOOK + "emit(conf_of(spark.sparkContext))") is None, "the JVM of all has not kept it"
    for log in box.settings.log_directory.glob("*"):
        assert b"unlikely-value" not in log.read_bytes()


def test_what_cannot_be_read_leaves_what_was(box: SparkBox, credentials: Path) -> None:
    put(credentials, **{f"hadoop_conf.{KEY}": "first"})
    assert box.evaluate(LOOK + "emit(conf_of(spark.sparkContext))") == "first"
    credentials.write_text("unlikely-value {")
    log = box.settings.log_file("host")
    wait_until(lambda: "credentials cannot be read (JSONDecodeError)" in log.read_text())
    assert box.evaluate(LOOK + "emit(conf_of(spark.sparkContext))") == "first"
    assert "unlikely-value" not in log.read_text()
