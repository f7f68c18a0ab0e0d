"""R22, R23: calls of PySpark's public API that reach what a JVM has once, and what another job sees of them."""

from runtime.taskexecutor.spark.environment import ChangeOutcome
from tests.kit.spark.spark_box import SparkBox

CALLS = """
import zipfile
with open("mine.txt", "w") as file:
    file.write("mine")
with zipfile.ZipFile("mine.zip", "w") as archive:
    archive.writestr("inner.txt", "mine")
def refused(text):
    try:
        spark.sql(text)
    except Exception as error:
        return "is refused: the tasks of all jobs" in str(error)
    return False
said = [refused(f"ADD {what}") for what in ("FILE mine.txt", "ARCHIVE mine.zip", "FILES gone.txt", "ARCHIVES gone.zip")]
spark.addArtifacts("mine.txt", file=True)
spark.conf.set("spark.sql.shuffle.partitions", "3")
for text in ("CLEAR CACHE", "RESET", "SET -v", "LIST FILES", "LIST JARS", "REFRESH TABLE range_of_nobody"):
    try:
        spark.sql(text).collect()
    except Exception as error:
        assert text.startswith("REFRESH"), error
spark.catalog.clearCache()
spark.streams.resetTerminated()
spark.sparkContext.setLogLevel("OFF")
spark.interruptAll()
spark.interruptTag("theirs")
spark.profile.clear()
spark.catalog.refreshByPath("/")
for owner in (spark._jvm.org.apache.spark.sql.SparkSession, spark._jvm.org.apache.spark.sql.classic.SparkSession):
    owner.clearDefaultSession()
    owner.clearActiveSession()
emit([*said, spark.range(4).count()])
ask()
"""
BEFORE = """
spark.conf.set("spark.sql.shuffle.partitions", "5")
kept = spark.range(8).cache()
kept.count()
spark.range(1).createOrReplaceTempView("theirs")
spark.addTag("theirs")
query = spark.readStream.format("rate").load().writeStream.format("memory").queryName("q").start()
emit([])
ask()
sc = spark.sparkContext
emit([spark.conf.get("spark.sql.shuffle.partitions"), len(sc._jsc.getPersistentRDDs()), query.isActive,
      spark.table("theirs").count(), spark.sql("LIST FILES").count(), spark.sql("LIST ARCHIVES").count(),
      sc.parallelize(range(4), 2).map(lambda n: n + 1).sum()])
ask()
"""


def test_calls_that_reach_what_all_share_are_felt_by_no_other_job(box: SparkBox) -> None:
    beside = box.slot(BEFORE, slot_index=1)
    assert beside.next() == []
    caller = box.slot(CALLS)
    assert caller.next() == [True, True, True, True, 4]
    beside.tell()
    assert beside.next() == ["5", 1, True, 1, 0, 0, 10]
    caller.kill()
    cleared = box.settled(caller.session)
    assert cleared is not None
    assert [line.partition(":")[0] for line in cleared.changes] == ["Spark's own default session"]
    beside.kill()
    put_back = box.settled(beside.session)
    assert put_back is not None
    assert put_back.outcome is ChangeOutcome.RESTORED
    assert box.evaluate("emit([spark.range(4, numPartitions=2).count(), spark.sql('LIST FILES').count()])") == [4, 0]
