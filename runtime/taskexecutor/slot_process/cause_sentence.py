"""The cause of a failure in one sentence: the first line of its message, and the last line that `flinklike run` prints.

Texts are read here, for words only; what follows from a failure is decided by classes (D-061, `causes`). What Spark
wraps is unwrapped: a Python worker's traceback is the user's own exception at the user's own line, an aborted stage is
what its last task met, and what was read when it broke (file, record) stands before it.
"""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from pathlib import Path

from runtime.taskexecutor.slot_process.causes import MKDIRS_FAILED, is_failed_mkdirs
from runtime.taskexecutor.spark_protocol.java_causes import JavaCause

SENTENCE_LENGTH_MAX = 400

_PYTHON_EXCEPTION = "org.apache.spark.api.python.PythonException"
_PYTHON_PROXY = "py4j.Py4JException"
_WORKER_ENDED = "Python worker exited unexpectedly"
_BARE = frozenset(
    {
        "java.lang.ClassNotFoundException",
        "java.lang.NoClassDefFoundError",
        "java.lang.NoSuchMethodException",
        "java.net.SocketException",
        "java.time.format.DateTimeParseException",
    }
)
"""Their messages mean something only to code that catches them."""
_ERROR_CLASS = re.compile(
    r"\[(?!FAILED_|INTERNAL_ERROR|MALFORMED_RECORD_IN_PARSING|STREAM_FAILED|TASK_WRITE_FAILED)[A-Z][A-Z0-9_.]+\] "
)
"""An error that Spark has a name for, but for those that only say where another one came through."""

_TRACEBACK = "Traceback (most recent call last):"
_FRAME = re.compile(r'\s+File "(?P<file>[^"]+)", line (?P<line>\d+)')
_LIBRARY = re.compile(r"/(site|dist)-packages/|/lib/python3\.\d+/|\.zip/pyspark/|^<frozen |\.pyx$")
_SQL_STATE = re.compile(r"\s+SQLSTATE: \w+(?:; line \d+ pos \d+)?\s*$")
_STAGE_ABORTED = re.compile(r"Job aborted due to stage failure: (?:.*?\(TID \d+\) \([^)]*\): )?(?P<what>.*)", re.DOTALL)
_THROWABLE = re.compile(r"(?P<name>(?:[\w$]+\.)+[\w$]+)(?:: (?P<says>.*))?$", re.DOTALL)
_TRACED = re.compile(r"An error occurred while calling (?P<call>.+?)\. Trace:\n(?P<what>.*)", re.DOTALL)
_STACK = re.compile(r"\n(?:\tat |\t\.\.\. |Driver stacktrace:)")
_FILE = re.compile(r"Encountered error while reading file (?P<file>\S+?)\.(?:\s|$)")
_RECORD = re.compile(r"Malformed records are detected in record parsing: (?P<record>.+?)\.$", re.MULTILINE)
_NO_RECORD = "_corrupt_record"
_RECORD_LENGTH_MAX = 120


_OURS = tuple(f"{Path(__file__).parents[3]}{os.sep}{package}{os.sep}" for package in ("runtime", "airflow_flinklike"))
_SPEAK_FOR_THEMSELVES = frozenset({"pyspark", "py4j", "runtime", "airflow_flinklike"})
"""Packages whose errors are sentences about what was asked, not about the line that asked it."""


def with_place(message: str, error: BaseException) -> str:
    """The message of an error of Python code, its first line with the innermost line of user code."""
    if type(error).__module__.partition(".")[0] in _SPEAK_FOR_THEMSELVES:
        return message
    place = ""
    step = error.__traceback__
    while step is not None:
        file = step.tb_frame.f_code.co_filename
        if not (file.startswith(("<", *_OURS)) or _LIBRARY.search(file)):
            place = f"({file.rpartition('/')[2]}, line {step.tb_lineno})"
        step = step.tb_next
    first, line_break, rest = message.partition("\n")
    return f"{first} {place}".strip() + line_break + rest if place else message


def cause_in_words(text: str, chain: Sequence[JavaCause]) -> str:
    """The message of a failure: its cause in one sentence, then what else the exception says."""
    text = text.strip("\n")
    if not chain:
        return _traced(text)
    root = chain[-1]
    if len(chain) == 1 and root.message.strip() and text.startswith(_first_line(root.message)) and not _wraps(root):
        return text
    sentence, top = _sentence(chain), chain[0]
    outer = _first_line(top.message)
    is_said = outer == _first_line(_innermost(chain).message) or _is_python(top)
    return sentence if is_said else f"{sentence}\n{top.class_name}: {outer}"


def _traced(text: str) -> str:
    """py4j's own error has no exception of Java, only the text of one."""
    found = _TRACED.match(text)
    return f"{_words(_thrown(found['what']))}\nwhile calling {found['call']}" if found else text


def _wraps(cause: JavaCause) -> bool:
    return _is_python(cause) or _STAGE_ABORTED.match(cause.message) is not None


def _is_python(cause: JavaCause) -> bool:
    """Does it carry the traceback of an exception that Python code has raised?"""
    is_wrapper = cause.class_name in {_PYTHON_EXCEPTION, _PYTHON_PROXY} or _ERROR_CLASS.match(cause.message)
    return bool(is_wrapper) and _TRACEBACK in cause.message


def _sentence(chain: Sequence[JavaCause]) -> str:
    root = _innermost(chain)
    words = _words(root)
    if is_failed_mkdirs(root) or _is_python(root):
        return words
    record = next((found["record"] for cause in chain if (found := _RECORD.search(cause.message))), "")
    if record:
        named = "" if record == _NO_RECORD else f" {_bounded(record, _RECORD_LENGTH_MAX)}"
        words = f"malformed record{named}: {words}"
    file = next((found["file"] for cause in chain if (found := _FILE.search(cause.message))), "")
    return _bounded(words if file.partition(":")[2].lstrip("/") in words else f"{file}: {words}")


def _innermost(chain: Sequence[JavaCause]) -> JavaCause:
    """The exception that tells most about the cause: the last with a message, or the one in the text of an aborted
    stage.
    """
    found = _telling(chain)
    aborted = _STAGE_ABORTED.match(found.message)
    return _thrown(aborted["what"]) if aborted else found


def _thrown(text: str) -> JavaCause:
    """The last exception with a message in a Java stack trace, or its first line where that names none."""
    parts = [_STACK.split(part, maxsplit=1)[0].strip() for part in text.split("\nCaused by: ")]
    causes = [
        JavaCause(found["name"], found["says"] or "") if (found := _THROWABLE.match(part)) else JavaCause("", part)
        for part in parts
    ]
    return _telling(causes)


def _telling(causes: Sequence[JavaCause]) -> JavaCause:
    told = next((cause for cause in reversed(causes) if cause.message.strip()), causes[-1])
    if told.class_name not in _BARE:
        return told
    return next((cause for cause in reversed(causes) if _says_all(cause)), told)


def _says_all(cause: JavaCause) -> bool:
    return cause.message.startswith(_WORKER_ENDED) or _ERROR_CLASS.match(cause.message) is not None


def _words(cause: JavaCause) -> str:
    if is_failed_mkdirs(cause):
        path = cause.message.removeprefix(MKDIRS_FAILED).partition(" (exists=")[0]
        return _bounded(f"Mkdirs failed: {path.partition('/_temporary/')[0]} cannot be created or written to")
    if _is_python(cause):
        return _bounded(_raised(cause))
    if cause.message.startswith(_WORKER_ENDED):
        return "a Python worker of Spark ended unexpectedly: it crashed, was killed, or its code has ended the process"
    says = _first_line(cause.message)
    if _ERROR_CLASS.match(says):
        return _bounded(says)
    name = f" ({cause.class_name})" if says and cause.class_name else cause.class_name
    return f"{_bounded(says)}{name}"


def _raised(cause: JavaCause) -> str:
    """The exception of a traceback, and the last line of user code in it."""
    lines = _SQL_STATE.sub("", cause.message).rpartition(_TRACEBACK)[2].splitlines()
    frames = [(position, found) for position, line in enumerate(lines) if (found := _FRAME.match(line))]
    begin = frames[-1][0] + 1 if frames else 0
    exception = next((line.strip() for line in lines[begin:] if line.strip() and not line.startswith(" ")), "")
    own = [found for _, found in frames if not _LIBRARY.search(found["file"])]
    places = [f"{own[-1]['file'].rpartition('/')[2]}, line {own[-1]['line']}"] if own else []
    places += ["in a Python worker of Spark"] if cause.class_name == _PYTHON_EXCEPTION else []
    return f"{exception} ({', '.join(places)})" if places else exception


def _first_line(text: str) -> str:
    return next((line.strip() for line in text.splitlines() if line.strip()), "")


def _bounded(text: str, length_max: int = SENTENCE_LENGTH_MAX) -> str:
    return text if len(text) <= length_max else f"{text[:length_max]} ..."
