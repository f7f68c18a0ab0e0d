"""Why a driver JVM has not started: the exception that ended it, or the last lines of its log."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

from runtime.aio.clock import SystemClock
from runtime.common.clock import Deadline
from runtime.taskexecutor.driver_jvm.last_exception import in_words, last_exception
from runtime.taskexecutor.spark_host.host_main import absent_jar
from runtime.taskexecutor.spark_host.launch import JvmProcess, JvmStartError

IVY = """\
		::          UNRESOLVED DEPENDENCIES         ::
		:: mine#lib;2.0: not found
Exception in thread "main" java.lang.RuntimeException: [unresolved dependency: mine#lib;2.0: not found]
	at org.apache.spark.util.MavenUtils$.resolveMavenCoordinates(MavenUtils.scala:573)
"""


def start(directory: Path, written: str) -> JvmStartError:
    """The error of a JVM that has written so much and ends with code 1."""
    program = "import sys; sys.stderr.write(sys.argv[1]); sys.exit(1)"
    log = directory / "jvm.log"
    process = JvmProcess([sys.executable, "-c", program, written], os.environ, log_file=log, cwd=directory)
    clock = SystemClock()
    with pytest.raises(JvmStartError) as refused:
        process.wait_gateway(directory / "gateway", clock, Deadline.after(clock, 600))
    process.kill()
    return refused.value


def test_the_exception_that_has_ended_it_is_one_sentence(tmp_path: Path) -> None:
    error = start(tmp_path, "INFO begins\n" * 1000 + IVY)
    assert str(error) == (
        "the JVM ended with code 1 before it had a gateway: "
        "unresolved dependency: mine#lib;2.0: not found (java.lang.RuntimeException)"
    )
    assert error.is_thrown


def test_without_an_exception_the_log_is_shown_from_the_begin_of_a_line(tmp_path: Path) -> None:
    error = start(tmp_path, "a whole line\n" * 1000)
    first, *lines = str(error).splitlines()
    assert first.startswith("the JVM ended with code 1 before it had a gateway; log: ")
    assert set(lines) == {"a whole line"}
    assert not error.is_thrown


@pytest.mark.parametrize(
    ("written", "said"),
    [
        (IVY, "unresolved dependency: mine#lib;2.0: not found (java.lang.RuntimeException)"),
        ('Exception in thread "main" a.B: first\n\tat x\nCaused by: a.C: inner\n', "inner (a.C)"),
        ('Exception in thread "main" java.lang.NullPointerException\n', "java.lang.NullPointerException"),
        ("Error: Failed to load class a.B.\n", "Failed to load class a.B."),
        ("nothing of the kind\n", ""),
    ],
)
def test_an_exception_in_words(written: str, said: str) -> None:
    assert in_words(last_exception(written)) == said


def test_a_jar_that_is_not_there_is_named(tmp_path: Path) -> None:
    jar = tmp_path / "a.jar"
    jar.touch()
    there = f"{jar}, file://{jar},file:{jar},local:{jar},http://there/b.jar,/no/*.jar,s3a://bucket/c.jar,"
    assert absent_jar({"spark.jars": there}) == ""
    assert absent_jar({}) == ""
    for absent in ("/no/such.jar", "file:///no/such.jar", "local:/no/such.jar"):
        assert absent_jar({"spark.jars": f"{there} {absent} "}) == absent
