"""env.log.format: json. One object a line, whatever a message holds, with the ids that it names."""

from __future__ import annotations

import json
import logging
import os
import sys
from pathlib import Path
from typing import Any

import pytest

from runtime.entrypoint.control.daemon import _last_complaint
from runtime.entrypoint.logging_setup import JsonFormatter

JOB, VERTEX = "a" * 32, "b" * 32
ATTEMPT = f"{JOB}_{VERTEX}_0_14_0"
OTHER = "c" * 32


def logged(message: str, *arguments: object, level: int = logging.INFO, **more: Any) -> dict[str, Any]:
    record = logging.LogRecord("runtime.x", level, "x.py", 1, message, arguments, more.get("exc_info"))
    record.created = 1_700_000_000.0625
    line = JsonFormatter("jobmanager").format(record)
    assert line.isascii()
    assert line.isprintable()
    found: dict[str, Any] = json.loads(line)
    return found


def test_a_line_says_when_who_and_what() -> None:
    found = logged("ready: %s", "127.0.0.1:1")
    assert found.pop("host")
    assert found == {
        "time": "2023-11-14T22:13:20.062+00:00",
        "level": "INFO",
        "logger": "runtime.x",
        "process": "jobmanager",
        "pid": os.getpid(),
        "message": "ready: 127.0.0.1:1",
    }


@pytest.mark.parametrize("text", ["two\nlines", "\x1b[2J", "\u202e", '"}{', "\ud800", "\0", "\u2028"])
def test_no_text_breaks_the_line(text: str) -> None:
    assert logged("name %s", text)["message"] == f"name {text}"


def test_an_exception_is_a_field() -> None:
    try:
        raise ValueError("no rows")
    except ValueError:
        found = logged("it failed", exc_info=sys.exc_info())
    assert found["message"] == "it failed"
    assert found["exception"].startswith("Traceback (most recent call last):\n")
    assert found["exception"].endswith("ValueError: no rows")


@pytest.mark.parametrize(
    ("message", "ids"),
    [
        (f"job {JOB}: RUNNING", {"job": JOB}),
        (f"Job {JOB} of job {JOB}", {"job": JOB}),
        (f"attempt {ATTEMPT} ends", {"job": JOB, "vertex": VERTEX, "attempt": ATTEMPT}),
        (f"attempt {ATTEMPT} of job {OTHER}", {"job": JOB, "vertex": VERTEX, "attempt": ATTEMPT}),
        (f"{ATTEMPT} and {JOB}_{OTHER}_0_14_0", {"job": JOB}),
        (f"job {JOB} and job {OTHER}", {}),
        (f"incarnation {JOB}", {}),
        ("job x", {}),
    ],
)
def test_ids_are_those_of_what_the_line_is_about(message: str, ids: dict[str, str]) -> None:
    found = logged("%s", message)
    assert {key: found[key] for key in ("job", "vertex", "attempt") if key in found} == ids


def test_the_scripts_find_the_last_complaint(tmp_path: Path) -> None:
    formatter, log = JsonFormatter("taskmanager"), tmp_path / "x.log"
    records = [
        logging.LogRecord("runtime.x", level, "x.py", 1, text, (), None)
        for level, text in (
            (logging.WARNING, "etcd is away"),
            (logging.INFO, "it said WARNING now"),
            (logging.INFO, '"level":"ERROR" in a text'),
        )
    ]
    log.write_text("".join(f"{formatter.format(record)}\n" for record in records))
    assert "etcd is away" in _last_complaint(log)
