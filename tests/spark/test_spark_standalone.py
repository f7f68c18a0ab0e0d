"""A real standalone master and worker, started from pyspark's own jars; the TaskManager's driver is their client."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.kit.spark_box import ONE_COMPILER, SparkBox, is_alive, spark_settings, wait_until
from tests.kit.standalone import standalone


@pytest.fixture(scope="module")
def standalone_box(tmp_path_factory: pytest.TempPathFactory, class_archive: Path | None) -> Iterator[SparkBox]:
    directory = tmp_path_factory.mktemp("standalone")
    (directory / "conf").mkdir()
    with standalone(directory, cores=2, memory="1g") as master:
        conf = {
            "spark.executor.memory": "512m",
            "spark.executor.extraJavaOptions": ONE_COMPILER,
            "spark.cores.max": "2",
            "spark.sql.shuffle.partitions": "2",
        }
        settings = spark_settings(directory, archive=class_archive, master=master, spark_conf=conf)
        box = SparkBox(settings, directory)
        try:
            box.run(box.environment.start())
            yield box
        finally:
            box.shut()


def test_slots_run_on_a_standalone_cluster(standalone_box: SparkBox) -> None:
    code = """
from pyspark.sql.functions import udf
counter = spark.sparkContext.accumulator(0)
spark.sparkContext.parallelize(range(5), 2).foreach(lambda n: counter.add(n))
emit([spark.sparkContext.master.split(":")[0], spark.range(1000).count(), counter.value,
      spark.range(4).select(udf(lambda n: n * 2, "long")("id").alias("n")).groupBy().sum("n").first()[0]])
"""
    assert standalone_box.evaluate(code) == ["spark", 1000, 10, 12]


def test_a_killed_slot_leaves_no_task_on_the_cluster(standalone_box: SparkBox) -> None:
    code = """
emit("started")
spark.sparkContext.parallelize(range(2), 2).foreach(lambda _: __import__("time").sleep(60))
"""
    slot = standalone_box.slot(code)
    assert slot.next() == "started"
    session = slot.session.session_id
    wait_until(lambda: session in standalone_box.run(standalone_box.environment.progress()))
    standalone_box.end(slot)
    assert standalone_box.environment.is_ready
    assert is_alive(standalone_box.environment.process_ids[1])
    assert standalone_box.evaluate("emit(spark.range(3).count())") == 3
