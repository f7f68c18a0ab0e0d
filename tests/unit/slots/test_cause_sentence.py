"""The cause in one sentence, of exceptions as real scripts have met them on Spark 4.3 (`recorded_failures.json`)."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from airflow_flinklike.cli.attached import one_sentence
from runtime.taskexecutor.slot_process.cause_sentence import SENTENCE_LENGTH_MAX, cause_in_words
from runtime.taskexecutor.spark_protocol.java_causes import JavaCause

RECORDED: dict[str, dict[str, Any]] = json.loads(Path(__file__).with_name("recorded_failures.json").read_text())

WORKER = "in a Python worker of Spark"
TRACED = "Traceback (most recent call last):"
DIVIDED = "ZeroDivisionError: integer division or modulo by zero"
TOKEN = (
    "Unrecognized token 'oops': was expecting (JSON String, Number (or 'NaN'/'+INF'/'-INF'), Array, Object or token "
    "'null', 'true' or 'false') (com.fasterxml.jackson.core.JsonParseException)"
)
LAST_LINES = {
    "udf-df": f"{DIVIDED} (udf_df.py, line 13, {WORKER})",
    "udf-helper": f"{DIVIDED} (helper.py, line 2, {WORKER})",
    "udf-nested": f"ValueError: no city for (udf_nested.py, line 17, {WORKER})",
    "udf-import": f"ModuleNotFoundError: No module named 'no_such_lib' (udf_import.py, line 14, {WORKER})",
    "udf-pickle": f"Oops (udf_pickle.py, line 16, {WORKER})",
    "udf-sysexit": f"SystemExit: 3 (udf_sysexit.py, line 15, {WORKER})",
    "udf-exit": (
        "a Python worker of Spark ended unexpectedly: it crashed, was killed, or its code has ended the process"
    ),
    "rdd-part": f"AssertionError: row 2 is too large (rdd_part.py, line 15, {WORKER})",
    "pandas-udf": f"TypeError: 'int' object is not subscriptable (pandas_udf.py, line 16, {WORKER})",
    "stream-udf": f"StreamingQueryException: {DIVIDED} (stream_udf.py, line 13, {WORKER})",
    "stream-batch": "StreamingQueryException: KeyError: 'batch is bad' (stream_batch.py, line 14)",
    "exit-refused": (
        "java.lang.System.exit is refused: this JVM runs the Spark of other jobs too. End a script with sys.exit(), "
        "or by reaching its end (java.lang.UnsupportedOperationException)"
    ),
    "py4j-nomethod": "Method noSuchMethod([]) does not exist (py4j.Py4JException)",
    "eof-seq": "file:/data/bad.seq not a SequenceFile (java.io.EOFException)",
    "eof-gz": "file:///data/bad.csv.gz: Unexpected end of input stream (java.io.EOFException)",
    "failfast-csv": (
        'file:///data/bad.csv: malformed record [null,b]: For input string: "x" (java.lang.NumberFormatException)'
    ),
    "failfast-json": f"file:///data/bad.json: malformed record [null]: {TOKEN}",
    "failfast-infer": f"malformed record: {TOKEN}",
    "file-gone": (
        "File file:/data/gone/part-00001-202c807b-1b10-403a-8d45-c683ccf304db-c000.snappy.parquet does not exist "
        "(java.io.FileNotFoundException)"
    ),
    "not-parquet": (
        "file:/data/np/a.parquet is not a Parquet file. Expected magic number at tail, but found [32, 97, 108, 108] "
        "(java.lang.RuntimeException)"
    ),
    "rdd-missing": "Input path does not exist: file:/no/such/input (java.io.IOException)",
    "mkdirs": "Mkdirs failed: file:/proc/out cannot be created or written to",
    "rdd-mkdirs": "Mkdirs failed: file:/proc/out2 cannot be created or written to",
    "exists": "Output directory file:/data/ex already exists (org.apache.hadoop.mapred.FileAlreadyExistsException)",
    "executor-lost": (
        "ExecutorLostFailure (executor 0 exited caused by one of the running tasks) Reason: "
        "Command exited with code 137"
    ),
    "too-large": (
        "Total size of serialized results of 2 tasks (1172.0 KiB) is bigger than spark.driver.maxResultSize "
        "(1024.0 KiB)"
    ),
    "jdbc": "No suitable driver (java.sql.SQLException)",
    "no-data-source": (
        "[DATA_SOURCE_NOT_FOUND] Failed to find the data source: delta. Make sure the provider name is correct and the "
        "package is properly registered and compatible with your Spark version. SQLSTATE: 42K02"
    ),
    "udtf-analyze": "AnalysisException: KeyError: 'udtf analyze boom' (etl.py, line 12)",
    "udtf-analyze-sql": "AnalysisException: KeyError: 'udtf analyze boom' (etl.py, line 12)",
    "data-source-schema": "AnalysisException: ValueError: no schema (etl.py, line 25)",
    "data-source-signature": (
        "AnalysisException: TypeError: F.__init__() got an unexpected keyword argument 'options'"
    ),
    "planner-crash": (
        "a Python worker of Spark ended unexpectedly: it crashed, was killed, or its code has ended the process"
    ),
    "s3x": 'No FileSystem for scheme "s3x" (org.apache.hadoop.fs.UnsupportedFileSystemException)',
    "ansi-div": (
        "ArithmeticException: [DIVIDE_BY_ZERO] Division by zero. Use `try_divide` to tolerate divisor being 0 and "
        'return NULL instead. If necessary set "spark.sql.ansi.enabled" to "false" to bypass this error. '
        "SQLSTATE: 22012"
    ),
}


def message_of(case: str) -> str:
    recorded = RECORDED[case]
    return cause_in_words(recorded["text"], [JavaCause(name, says) for name, says in recorded["chain"]])


def test_every_recorded_failure_has_its_sentence() -> None:
    assert set(RECORDED) == set(LAST_LINES)


@pytest.mark.parametrize("case", RECORDED)
def test_the_last_line_of_a_run_names_the_cause(case: str) -> None:
    assert one_sentence({"class": RECORDED[case]["class"], "message": message_of(case)}) == LAST_LINES[case]


@pytest.mark.parametrize("case", RECORDED)
def test_what_spark_says_around_the_cause_follows(case: str) -> None:
    name, says = RECORDED[case]["chain"][0] if RECORDED[case]["chain"] else ("", "")
    begin = next((line.strip() for line in says.splitlines() if line.strip()), "")
    if TRACED in begin and not name.endswith("StreamingQueryException"):
        return  # its traceback is in the stack trace
    if not begin.startswith("Python worker exited unexpectedly"):  # which is said in our words
        assert begin in message_of(case)


def test_a_failed_task_that_is_told_as_text_only_is_unwrapped() -> None:
    """As executors on other hosts tell it, whose exceptions the driver cannot always have."""
    text = RECORDED["mkdirs"]["chain"][0][1]
    assert "Mkdirs failed to create" in text
    assert (
        cause_in_words("x", [JavaCause("org.apache.spark.SparkException", text)]).splitlines()[0]
        == LAST_LINES["mkdirs"]
    )
    nested = RECORDED["udf-exit"]["chain"][0][1]
    assert "Caused by: java.io.EOFException" in nested
    words = cause_in_words("x", [JavaCause("org.apache.spark.SparkException", nested)]).splitlines()[0]
    assert words == LAST_LINES["udf-exit"]


@pytest.mark.parametrize(
    ("text", "chain", "words"),
    [
        ("no such day", (), "no such day"),
        ("\n[PARSE] near 'selekt'\n== SQL ==", (), "[PARSE] near 'selekt'\n== SQL =="),
        ("An error occurred while calling o1.f", (), "An error occurred while calling o1.f"),
        ("x", (JavaCause("java.lang.NullPointerException", ""),), "java.lang.NullPointerException"),
        ("x", (JavaCause("a.B", "b"), JavaCause("c.D", "")), "b (a.B)"),
        (
            "x",
            (JavaCause("a.B", "[NO_D] No c.D."), JavaCause("java.lang.ClassNotFoundException", "c.D")),
            "[NO_D] No c.D.",
        ),
        (
            "x",
            (
                JavaCause("a.B", "[FAILED_READ_FILE.NO_HINT] Encountered an error."),
                JavaCause("java.lang.ClassNotFoundException", "c.D"),
            ),
            "c.D (java.lang.ClassNotFoundException)\na.B: [FAILED_READ_FILE.NO_HINT] Encountered an error.",
        ),
        (
            "[PATH_NOT_FOUND] Path does not exist: file:/nope.",
            (JavaCause("org.apache.spark.sql.AnalysisException", "[PATH_NOT_FOUND] Path does not exist: file:/nope."),),
            "[PATH_NOT_FOUND] Path does not exist: file:/nope.",
        ),
    ],
)
def test_what_has_nothing_around_it_is_said_as_it_is(text: str, chain: tuple[JavaCause, ...], words: str) -> None:
    assert cause_in_words(text, chain) == words


def test_a_sentence_is_one_line_of_bounded_length() -> None:
    long = "word " * 1000
    for name, says in (
        ("a.B", long),
        ("org.apache.spark.api.python.PythonException", f"Traceback (most recent call last):\nE: {long}"),
    ):
        message = cause_in_words("x", [JavaCause(name, says)])
        assert len(message.splitlines()[0]) <= SENTENCE_LENGTH_MAX + len(" ... (a.B)")
        assert len(one_sentence({"class": "a.Wide", "message": long * 2})) < 600
