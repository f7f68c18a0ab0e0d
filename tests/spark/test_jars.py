"""R22, R24, R25: jars of SQL's `ADD JAR` are found where the job works, and fail nobody when their file goes."""

from __future__ import annotations

from tests.kit.spark.spark_box import SparkBox

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
SHADOWED = """
make_jar("shadowed.jar", 9)
spark.sql("ADD JAR 'shadowed.jar'")
emit(used(9))
"""
REFUSED = """
said = []
for path in {paths!r}:
    try:
        spark.sql(f"ADD JAR '{{path}}'")
    except Exception as error:
        said.append(str(error))
emit(said)
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


def test_a_relative_path_never_means_the_directory_of_the_jvm(box: SparkBox) -> None:
    (box.settings.work_directory / "shadowed.jar").write_bytes(b"what somebody has left there")
    assert box.evaluate(MADE + SHADOWED) == [9, 10, 11, 12]
    (said,) = box.evaluate(REFUSED.format(paths=["shadowed.jar"]))
    assert str(box.settings.work_directory) not in said
    assert "shadowed.jar is refused: there is no such file" in said


def test_a_jar_that_is_not_there_is_refused(box: SparkBox) -> None:
    missing, unclear = box.evaluate(REFUSED.format(paths=["/not/there.jar", "file:there.jar"]))
    assert "ADD JAR /not/there.jar is refused: there is no such file" in missing
    assert "ADD JAR file:there.jar is refused: write a relative path without a scheme" in unclear
    assert box.evaluate(TASKS) == 4
