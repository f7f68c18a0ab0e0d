"""Dynamic allocation on a real standalone cluster of two workers: executors come, are lost, come back, and go."""

from pathlib import Path

from tests.kit.spark.spark_box import ONE_COMPILER, SparkBox, spark_settings, wait_until
from tests.kit.spark.standalone import executors, standalone

CONF = {
    "spark.dynamicAllocation.enabled": "true",
    "spark.dynamicAllocation.shuffleTracking.enabled": "true",
    "spark.dynamicAllocation.shuffleTracking.timeout": "3s",
    "spark.dynamicAllocation.minExecutors": "0",
    "spark.dynamicAllocation.maxExecutors": "2",
    "spark.dynamicAllocation.executorIdleTimeout": "3s",
    "spark.dynamicAllocation.schedulerBacklogTimeout": "1s",
    "spark.executor.cores": "1",
    "spark.executor.memory": "512m",
    "spark.executor.extraJavaOptions": ONE_COMPILER,
    "spark.sql.shuffle.partitions": "2",
}
CODE = """
import pathlib, time
from pyspark.sql.functions import udf

def waits(n: int) -> int:
    pathlib.Path({marks!r}, str(n)).touch()
    while not pathlib.Path({gate!r}).exists():
        time.sleep(0.1)
    return 2 * n

rows = spark.range(0, 8, 1, 4).select(udf(waits, "long")("id").alias("n"))
emit(sorted([row["n"], row["count"]] for row in rows.groupBy("n").count().collect()))
"""


def test_jobs_finish_while_executors_are_lost_and_come(tmp_path: Path, class_archive: Path | None) -> None:
    marks, gate = tmp_path / "marks", tmp_path / "gate"
    marks.mkdir()
    code = CODE.format(marks=str(marks), gate=str(gate))
    with standalone(tmp_path, cores=1, memory="1g", workers=2) as master:
        box = SparkBox(spark_settings(tmp_path, archive=class_archive, master=master, spark_conf=CONF), tmp_path)
        try:
            box.run(box.environment.start())
            slots = [box.slot(code, slot_index=number) for number in range(2)]
            wait_until(lambda: len(executors(tmp_path)) == 2 and any(marks.iterdir()), 120)
            lost, process = next(iter(executors(tmp_path).items()))
            process.kill()
            wait_until(lambda: len(executors(tmp_path)) == 2 and lost not in executors(tmp_path), 120)
            gate.touch()
            for slot in slots:
                assert slot.next() == [[2 * n, 1] for n in range(8)]
                box.end(slot)
            wait_until(lambda: not executors(tmp_path), 120)
            assert box.evaluate("emit(spark.range(100).repartition(3).count())") == 100, "they come again"
        finally:
            box.end_slots()
            box.shut()
