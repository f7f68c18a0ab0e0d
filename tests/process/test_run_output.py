"""`flinklike run` shows a script as spark-submit does: stdout on stdout, the rest on stderr, live; then the cause."""

from __future__ import annotations

import re
import select
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import IO

import pytest

from tests.kit.cluster.script_cluster import ROOT, ScriptCluster

pytestmark = [pytest.mark.process, pytest.mark.spark]

TALKS = """
import logging, os, sys, time
print("to stdout, first")
print("to stderr", file=sys.stderr)
logging.getLogger("etl").warning("to the log")
os.write(1, b"from below Python\\n")
while not os.path.exists(sys.argv[1]):
    time.sleep(0.05)
print("to stdout, last")
"""

LINES = 600_000
BABBLES = f"""
import os, sys, time
for number in range({LINES}):
    sys.stdout.write("%099d\\n" % number)
sys.stdout.flush()
while (now := os.fstat(1)).st_blocks * 512 > now.st_size // 2:
    time.sleep(0.05)
print("the end")
"""
"""60 MB, and its end when the TaskManager has cut it."""

FAILING = """
import sys
from pyspark.sql import SparkSession
with open(sys.argv[1], "a") as runs:
    runs.write("x")
spark = SparkSession.builder.getOrCreate()
"""

CAUSES = {
    "missing-path": (
        "spark.read.parquet('/no/such/path').count()",
        r"AnalysisException: \[PATH_NOT_FOUND\] Path does not exist: file:/no/such/path",
    ),
    "missing-column": ("spark.range(3).select('nope')", r"AnalysisException: \[UNRESOLVED_COLUMN"),
    "no-sql": ("spark.sql('selekt 1')", r"ParseException: \[PARSE_SYNTAX_ERROR\] Syntax error at or near 'selekt'"),
    "mkdirs": (
        "spark.range(3).write.parquet('/proc/out')",
        r"Mkdirs failed: file:/proc/out cannot be created or written to$",
    ),
    "below-a-file": (
        "spark.range(3).write.parquet('/etc/hostname/out')",
        r"Parent path is not a directory: file:/etc/hostname .*ParentNotDirectoryException",
    ),
}
CODE = {
    "udf": (
        "from pyspark.sql.functions import udf\nspark.range(5).select(udf(lambda x: 1 // x, 'int')('id')).collect()",
        r"ZeroDivisionError: .* \(etl.py, line 8, in a Python worker of Spark\)$",
    ),
    "worker-gone": (
        (
            "import os\nfrom pyspark.sql.functions import udf\n"
            "spark.range(5).select(udf(lambda x: os._exit(3), 'int')('id')).collect()"
        ),
        r"a Python worker of Spark ended unexpectedly: .*$",
    ),
    "exit-refused": (
        "spark._jvm.java.lang.System.exit(3)",
        r"java.lang.System.exit is refused: this JVM runs the Spark of other jobs too\. End a script with sys.exit\(\)",
    ),
    "bad-record": (
        (
            "open('in.csv', 'w').write('1,a\\nx,b\\n')\n"
            "spark.read.schema('n int, s string').option('mode', 'FAILFAST').csv('in.csv').collect()"
        ),
        r'file:.*/in.csv: malformed record \[null,b\]: For input string: "x" \(java.lang.NumberFormatException\)$',
    ),
    "no-data-source": (
        "spark.read.format('delta').load('/no/such')",
        r"\[DATA_SOURCE_NOT_FOUND\] Failed to find the data source: delta\. Make sure ",
    ),
    "udtf-analyze": (
        (
            "from pyspark.sql.functions import lit, udtf\n@udtf\nclass T:\n    @staticmethod\n"
            "    def analyze(x):\n        raise KeyError('no such day')\n    def eval(self, x):\n        yield 1,\n"
            "T(lit(1)).show()"
        ),
        r"AnalysisException: KeyError: 'no such day' \(etl.py, line 12\)$",
    ),
    "failed-stage": (
        "sc = spark.sparkContext\nopen('in.seq', 'wb').write(b'SEQ')\nsc.sequenceFile('in.seq').count()",
        r"file:.*/in.seq not a SequenceFile \(java.io.EOFException\)$",
    ),
}
"""What a user's code or data breaks: the cause is not what py4j and Spark wrap around it."""
ASKED = ("--restart-strategy", "fixed-delay,attempts=2,delay_seconds=0", "--user-failures", "restart")


def lines_until(stream: IO[bytes], wanted: bytes, patience: float = 60.0) -> list[bytes]:
    """What comes, up to a line that holds this."""
    found: list[bytes] = []
    while not found or wanted not in found[-1]:
        assert select.select([stream], [], [], patience)[0], f"{wanted!r} did not come: {found}"
        line = stream.readline()
        assert line, f"the end came before {wanted!r}: {found}"
        found.append(line)
    return found


@pytest.fixture
def script(tmp_path: Path) -> Callable[[str], str]:
    def write(text: str) -> str:
        path = tmp_path / "etl.py"
        path.write_text(text)
        return str(path)

    return write


def test_the_output_of_a_script_comes_while_it_runs(
    spark_cluster: ScriptCluster, script: Callable[[str], str], tmp_path: Path
) -> None:
    go_on = tmp_path / "go on"
    command = [str(ROOT / "bin" / "flinklike"), "run", script(TALKS), str(go_on)]
    with subprocess.Popen(
        command, env=spark_cluster.environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, bufsize=0
    ) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        early = lines_until(process.stdout, b"from below Python")
        told = [*lines_until(process.stderr, b"to stderr"), *lines_until(process.stderr, b"to the log")]
        assert not go_on.exists()
        assert process.poll() is None, "it runs still"
        go_on.touch()
        out, err = b"".join(early) + process.stdout.read(), b"".join(told) + process.stderr.read()
        assert process.wait(60) == 0, err
    assert out == b"to stdout, first\nfrom below Python\nto stdout, last\n"
    assert [line for line in err.splitlines() if line.startswith(b"to ")] == [b"to stderr"]
    assert b"has been submitted" in err.splitlines()[0]
    assert b"FINISHED" in err.splitlines()[-1]


def test_a_quiet_run_shows_its_end_only(
    spark_cluster: ScriptCluster, script: Callable[[str], str], tmp_path: Path
) -> None:
    done = spark_cluster.cli("run", "--quiet", script(TALKS), str(tmp_path))
    assert (done.returncode, done.stdout) == (0, "")
    assert len(done.stderr.splitlines()) == 1, done.stderr


def test_a_traceback_is_shown_once_and_the_last_line_says_why(
    spark_cluster: ScriptCluster, script: Callable[[str], str]
) -> None:
    done = spark_cluster.cli("run", script("print('begun')\nraise LookupError('no such day\\nnor night')\n"))
    assert (done.returncode, done.stdout) == (1, "begun\n")
    assert done.stderr.count("Traceback") == 1, done.stderr
    assert re.search(r"FAILED after .* s: LookupError: no such day \(etl.py, line 2\)$", done.stderr.splitlines()[-1])


@pytest.mark.parametrize("case", CAUSES)
def test_what_spark_refuses_is_one_run_and_one_sentence_whatever_the_strategy(  # D-061
    spark_cluster: ScriptCluster, script: Callable[[str], str], tmp_path: Path, case: str
) -> None:
    statement, words = CAUSES[case]
    runs = tmp_path / "runs"
    done = spark_cluster.cli("run", *ASKED, script(FAILING + statement), str(runs), timeout=120)
    assert done.returncode == 1, done.stdout + done.stderr
    assert runs.read_text() == "x"
    assert re.search(rf"FAILED after .* s: {words}", done.stderr.splitlines()[-1]), done.stderr


@pytest.mark.parametrize("case", CODE)
def test_the_last_line_names_the_cause_and_not_what_is_around_it(
    spark_cluster: ScriptCluster, script: Callable[[str], str], tmp_path: Path, case: str
) -> None:
    statement, words = CODE[case]
    done = spark_cluster.cli("run", script(FAILING + statement), str(tmp_path / "runs"), timeout=120)
    assert done.returncode == 1, done.stdout + done.stderr
    assert re.search(rf"FAILED after .* s: {words}", done.stderr.splitlines()[-1]), done.stderr


def test_a_module_that_was_left_beside_the_script_comes_with_what_the_last_line_says(
    spark_cluster: ScriptCluster, script: Callable[[str], str], tmp_path: Path
) -> None:
    path = script("import helper\nprint(helper.__name__)")
    (tmp_path / "helper").mkdir()
    (tmp_path / "helper" / "__init__.py").touch()
    done = spark_cluster.cli("run", path)
    told = re.search(
        r"ModuleNotFoundError: No module named 'helper'.* --py-files (?P<archive>\S+), which (?P<command>.*) makes$",
        done.stderr.splitlines()[-1],
    )
    assert told is not None, done.stderr
    subprocess.run(told["command"].split(), check=True)
    done = spark_cluster.cli("run", "--py-files", told["archive"], path)
    assert (done.returncode, done.stdout) == (0, "helper\n"), done.stderr


def test_output_above_the_limit_is_said_to_be_gone_and_why(
    spark_cluster: ScriptCluster, script: Callable[[str], str]
) -> None:
    done = spark_cluster.cli("run", script(BABBLES), timeout=120)
    assert done.returncode == 0, done.stderr[-2000:]
    lines = done.stdout.splitlines()
    assert lines[-1] == "the end"
    assert len(lines) < LINES, "the beginning is gone, or the middle"
    strange = [line for line in lines[:-1] if not re.fullmatch(r"[0-9]{99}", line)]
    assert strange == [], "and nothing of ours is among it"
    *_, loss, last = done.stderr.splitlines()
    gone = re.match(r"Not all output was shown: ([0-9.]+) mb of the stdout of etl.py were dropped: ", loss)
    assert gone, done.stderr[-2000:]
    assert abs(float(gone[1]) - (LINES + 1 - len(lines)) * 100 / (1 << 20)) < 0.1
    assert "taskmanager.log.attempt.max-size" in loss
    assert done.stderr.count("taskmanager.log.attempt.max-size") == 1, "at the places of it there is a mark each"
    marks = re.findall(r"^-- ([0-9.]+) mb of the stdout of etl.py are missing here --$", done.stderr, re.MULTILINE)
    assert marks, done.stderr[-2000:]
    assert abs(sum(map(float, marks)) - float(gone[1])) < 0.1 * len(marks)
    assert "FINISHED" in last
    job_id = re.findall(r"[0-9a-f]{32}", last)[0]
    again = spark_cluster.cli("logs", job_id)
    assert re.search(r"^\[[0-9.]+ mb of the stdout of etl.py were dropped: ", again.stdout, re.MULTILINE)


def test_what_follows_from_a_failure_is_said_in_words(
    spark_cluster: ScriptCluster, script: Callable[[str], str]
) -> None:
    asked = ("--restart-strategy", "exponential-delay,attempts_before_reset_backoff=3")
    pauses = "at most 3 restarts, 1 s, growing to 1 min; counted anew after 1 h without a failure"
    for options, words in (
        ((), "After a failure: no restarts; a failure of user code in an exclusive task is final"),
        (asked, f"After a failure: {pauses}, also after a failure of user code"),
    ):
        done = spark_cluster.cli("run", "--json", *options, script("print(1)\n"))
        job_id = re.findall(r"[0-9a-f]{32}", done.stdout)[0]
        assert words in spark_cluster.cli("info", job_id).stdout
