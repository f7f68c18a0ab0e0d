"""R22, R24, R25: jars of SQL's `ADD JAR` are found where the job works, and fail nobody when their file goes."""

from __future__ import annotations

from tests.kit.spark_box import SparkBox

MADE = """
import os, zipfile
def make_jar(path, number):
    '''A Java method in a class of its own.'''
    compiler = spark._jvm.org.codehaus.janino.SimpleCompiler()
    compiler.cook(
        "package mine; public class Plus%d { public static long plus(long n) { return n + %d; } }" % (number, number))
    made = compiler.getBytecodes()
    with zipfile.ZipFile(path, "w") as archive:
        for name in list(made):
            archive.writestr(name.replace(".", "/") + ".class", bytes(made[name]))
def used(number):
    rows = spark.range(4, numPartitions=2).selectExpr("reflect('mine.Plus%d', 'plus', id)" % number).collect()
    return [int(row[0]) for row in rows]
"""
GONE_BEFORE = """
make_jar("mine.jar", 7)
spark.sql(f"ADD JAR '{os.path.abspath('mine.jar')}'")
os.unlink("mine.jar")
emit(spark.sql("LIST JARS").count())
"""
RELATIVE = """
make_jar("relative.jar", 8)
spark.sql("ADD JAR 'relative.jar'")
emit(used(8))
"""
NOT_THERE = """
try:
    spark.sql("ADD JAR '/not/there.jar'")
except Exception as error:
    emit(str(error))
"""
SAME_NAME = """
make_jar("same.jar", {number})
spark.sql("ADD JAR 'same.jar'")
emit(used({number}))
"""
TASKS = "emit(spark.range(4, numPartitions=2).count())"


def test_a_jar_that_is_gone_with_its_job_fails_no_other_job(box: SparkBox) -> None:
    before = box.evaluate("emit(spark.sql('LIST JARS').count())")
    assert box.evaluate(MADE + GONE_BEFORE) == before + 1
    assert box.evaluate(TASKS) == 4


def test_a_jar_is_found_where_the_job_works_and_used_by_its_tasks(box: SparkBox) -> None:
    assert box.evaluate(MADE + RELATIVE) == [8, 9, 10, 11]


def test_jars_of_one_name_are_each_jobs_own(box: SparkBox) -> None:
    assert [box.evaluate(MADE + SAME_NAME.format(number=number)) for number in (1, 2)] == [[1, 2, 3, 4], [2, 3, 4, 5]]


def test_a_jar_that_is_not_there_is_refused(box: SparkBox) -> None:
    assert "ADD JAR file:/not/there.jar is refused: there is no such file" in box.evaluate(NOT_THERE)
    assert box.evaluate(TASKS) == 4
