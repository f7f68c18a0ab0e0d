"""R23: what is too deep for the stacks of the JVM fails its own job, and the Spark of all goes on."""

import pytest

from tests.kit.spark.spark_box import SparkBox

COUNTS = "emit(spark.range(7).count() + spark.sparkContext.parallelize(range(3)).count())"

DEEP = {
    "pattern": "spark.sql(\"SELECT regexp_replace(repeat('a', 100000 + id), '(a|b)*', '') FROM range(2)\").collect()",
    **{f"narrow {depth}": f"for _ in range({depth}): rdd = rdd.coalesce(2)\nrdd.count()" for depth in (250, 1000)},
    "shuffles": "for _ in range(1000): rdd = rdd.coalesce(2, True)\nrdd.count()",
    "plan": "df = spark.range(3)\nfor n in range(3000): df = df.withColumn('id', df.id + n)\ndf.count()",
}
"""The stack of a task, of the thread that plans all jobs, or of the caller is too small: which one, depth decides.

That of a task, always, for the pattern, which Java matches by recursion.
"""


@pytest.mark.parametrize("name", DEEP)
def test_what_is_too_deep_fails_its_own_job(box: SparkBox, name: str) -> None:
    jvm = box.environment.process_ids[1]
    other = box.slot(f"while ask(): {COUNTS}", slot_index=1)
    slot = box.slot(f"""
rdd = spark.sparkContext.parallelize(range(4), 2)._jrdd
try:
    exec({DEEP[name]!r})
    emit("enough")
except Exception as error:
    emit(str(error))
""")
    told = slot.next(timeout=300)
    assert "StackOverflowError" in told or (told == "enough" and name != "pattern")
    box.end(slot)
    other.tell()
    assert other.next() == 10
    assert (box.environment.is_ready, box.environment.process_ids[1]) == (True, jvm)
