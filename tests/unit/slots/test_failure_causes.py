"""Whose doing an exception of user code was, and whether a restart helps (R36)."""

from __future__ import annotations

import errno
import signal
from types import SimpleNamespace
from typing import Any

import pytest
from py4j.protocol import Py4JNetworkError
from pyspark.errors import AnalysisException, ParseException, PySparkValueError, PythonException

from runtime.common.errors import InvalidInputError, NonRecoverableError
from runtime.gateways.task import Fault
from runtime.taskexecutor.slot_process import own_failures
from runtime.taskexecutor.slot_process.causes import MisuseError, SparkUnavailableError, UnusableCodeError, verdict_of
from runtime.taskexecutor.slots import seen_failures
from runtime.taskexecutor.spark_protocol.java_causes import JavaCause, java_chain

MKDIRS = JavaCause(
    "java.io.IOException",
    "Mkdirs failed to create file:/srv/out/_temporary/0/_temporary/attempt_1/part-0 (exists=false, cwd=file:/x)",
)
ABORTED = JavaCause("org.apache.spark.SparkException", "Job aborted due to stage failure: Task 0 failed\n\tat x")
OUT_OF_MEMORY = JavaCause("java.lang.OutOfMemoryError", "Java heap space")
DENIED = JavaCause("org.apache.hadoop.security.AccessControlException", "Permission denied: user=a, access=WRITE")

AGAIN, NOT_SOON, NEVER = (True, False), (True, True), (False, True)


@pytest.mark.parametrize(
    ("error", "chain", "fault", "outlook"),
    [
        (LookupError("x"), (), Fault.USER, AGAIN),
        (ConnectionError("x"), (), Fault.USER, AGAIN),
        (FileNotFoundError(errno.ENOENT, "x"), (), Fault.USER, AGAIN),
        (PySparkValueError("x"), (), Fault.USER, AGAIN),
        (PythonException("x"), (), Fault.USER, AGAIN),
        (MemoryError(), (), Fault.USER, AGAIN),
        (OSError("x"), (ABORTED,), Fault.USER, AGAIN),
        (PermissionError(errno.EACCES, "x"), (), Fault.USER, NOT_SOON),
        (OSError(errno.EROFS, "x"), (), Fault.USER, NOT_SOON),
        (AnalysisException("x"), (), Fault.USER, NOT_SOON),
        (RuntimeError("x"), (ABORTED, MKDIRS), Fault.USER, NOT_SOON),
        (RuntimeError("x"), (DENIED,), Fault.USER, NOT_SOON),
        (ParseException("x"), (), Fault.USER, NEVER),
        (ImportError("x"), (), Fault.USER, NEVER),
        (ModuleNotFoundError("x"), (), Fault.USER, NEVER),
        (SyntaxError("x"), (), Fault.USER, NEVER),
        (UnusableCodeError("x"), (), Fault.USER, NEVER),
        (MisuseError("x"), (), Fault.USER, NEVER),
        (NonRecoverableError("x"), (), Fault.USER, NEVER),
        (InvalidInputError("x"), (), Fault.USER, NEVER),
        (SparkUnavailableError("x"), (), Fault.SYSTEM, AGAIN),
        (Py4JNetworkError("x"), (), Fault.SYSTEM, AGAIN),
        (RuntimeError("x"), (ABORTED, OUT_OF_MEMORY), Fault.SYSTEM, AGAIN),
    ],
    ids=lambda value: type(value).__name__ if isinstance(value, BaseException) else None,
)
def test_the_class_of_an_error_decides(
    error: BaseException, chain: tuple[JavaCause, ...], fault: Fault, outlook: tuple[bool, bool]
) -> None:
    verdict = verdict_of(error, chain)
    assert (verdict.fault, (verdict.is_recoverable, verdict.is_restart_vain)) == (fault, outlook)


@pytest.mark.parametrize(
    ("code", "fault"),
    [
        (1, Fault.USER),
        (-signal.SIGSEGV, Fault.USER),
        (-signal.SIGABRT, Fault.USER),
        (-signal.SIGXCPU, Fault.USER),
        (-signal.SIGKILL, Fault.SYSTEM),
        (-signal.SIGTERM, Fault.SYSTEM),
        (-signal.SIGHUP, Fault.SYSTEM),
    ],
)
def test_how_the_process_of_a_task_ended_says_whose_doing_it_was(code: int, fault: Fault) -> None:
    assert seen_failures.of_exit(code, memory_bytes=1, timestamp_millis=1).at_fault is fault


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL, signal.SIGUSR1])
def test_a_signal_that_user_code_sends_to_itself_is_its_own_doing(number: int) -> None:
    failure = seen_failures.of_exit(-number, memory_bytes=1, timestamp_millis=1, is_own=True)
    assert (failure.at_fault, failure.is_recoverable) == (Fault.USER, True)
    assert f"user code ended its process with {signal.Signals(number).name}" in failure.message


@pytest.mark.parametrize(("is_own", "fault"), [(True, Fault.USER), (False, Fault.NOBODY)])
def test_a_lost_template_is_nobodys_fault_unless_this_task_has_ended_it(fault: Fault, *, is_own: bool) -> None:
    assert seen_failures.of_lost_template("x", is_own=is_own, timestamp_millis=1).at_fault is fault


def test_a_task_above_its_own_limit_is_the_users() -> None:
    large = seen_failures.of_memory_limit(2 << 20, 1 << 20, 1, slots=3, timestamp_millis=1)
    assert "above the limit of its 3 slots of 1.0 MiB (3 x taskmanager.memory.task.size" in large.message
    failure = seen_failures.of_memory_limit(2, 1, 1, timestamp_millis=1)
    assert (failure.kind, failure.at_fault) == ("RESOURCE", Fault.USER)


def test_whatever_was_raised_when_spark_was_gone_is_not_the_users() -> None:
    failure = own_failures.of_lost_spark(own_failures.of_exception(ImportError("x"), timestamp_millis=1))
    assert (failure.at_fault, failure.is_recoverable, failure.is_restart_vain) == (Fault.SYSTEM, True, False)


@pytest.mark.parametrize(
    ("error", "hint"),
    [
        (
            ModuleNotFoundError("No module named 'a.b'", name="a.b"),
            "TaskManager tm-1 cannot import what is needed of the package 'a'",
        ),
        (ModuleNotFoundError("user code says so"), ""),
        (ImportError("attempted relative import with no known parent package"), ""),
        (ImportError("cannot import name 'x' from 'json'", name="json"), ""),
    ],
)
def test_only_of_a_module_that_is_not_there_it_is_said_how_to_bring_it(error: ImportError, hint: str) -> None:
    said = own_failures.import_hint(error, "tm-1")
    assert said.startswith(hint)
    assert bool(said) is bool(hint)


def raised_in(file: str, code: str) -> BaseException:
    with pytest.raises(BaseException) as caught:  # noqa: PT011 - whichever the code raises
        exec(compile(code, file, "exec"), {"__name__": "__main__"})
    return caught.value


@pytest.mark.parametrize(
    ("code", "message"),
    [
        ("x = 1\nassert x == 2", "(etl.py, line 2)"),
        ("raise KeyboardInterrupt", "(etl.py, line 1)"),
        ("raise LookupError('no such day\\nnor night')", "no such day (etl.py, line 1)\nnor night"),
        ("import json\n\njson.loads('{')", "(etl.py, line 3)"),
        ("def f():\n    raise type('Oops', (Exception,), {})('x')\n\nf()", "x (etl.py, line 2)"),
        ("exec('1 / 0')", "division by zero (etl.py, line 1)"),
        ("from runtime.common.ids import parse_job_id\nparse_job_id('x')", "hex digits"),
    ],
)
def test_an_error_of_the_driver_names_its_line(code: str, message: str) -> None:
    """The innermost one of user code, as errors of Python workers do; what is our own sentence needs none."""
    said = own_failures.of_exception(raised_in("/srv/run/work/etl.py", code), timestamp_millis=1).message
    assert message in said
    assert ("etl.py" in message) is ("etl.py" in said)


def test_what_spark_says_and_what_has_no_line_stay_as_they_are() -> None:
    refused = raised_in("/srv/etl.py", "from pyspark.errors import AnalysisException\nraise AnalysisException('no x')")
    assert own_failures.of_exception(refused, timestamp_millis=1).message == "no x"
    assert own_failures.of_exception(ValueError("x"), timestamp_millis=1).message == "x"


class _Throwable:
    def __init__(self, name: str, message: str | None, cause: Any = None) -> None:
        self.name, self.message, self.cause = name, message, cause

    def getClass(self) -> Any:  # noqa: N802 - Java's names
        return SimpleNamespace(getName=lambda: self.name)

    def getMessage(self) -> str | None:  # noqa: N802
        return self.message

    def getCause(self) -> Any:  # noqa: N802
        if isinstance(self.cause, Exception):
            raise self.cause
        return self.cause


def test_the_java_chain_ends_at_the_root_or_where_the_jvm_is_gone() -> None:
    error = RuntimeError("x")
    error.java_exception = _Throwable("a.B", "b", _Throwable("c.D", None))  # type: ignore[attr-defined]
    assert java_chain(error) == (JavaCause("a.B", "b"), JavaCause("c.D", ""))
    error.java_exception = _Throwable("a.B", "b", ConnectionError("gone"))  # type: ignore[attr-defined]
    assert java_chain(error) == (JavaCause("a.B", "b"),)
    endless = _Throwable("a.B", "b")
    endless.cause = endless
    error.java_exception = endless  # type: ignore[attr-defined]
    assert len(java_chain(error)) == 20
    assert java_chain(ValueError("x")) == ()
