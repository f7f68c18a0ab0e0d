"""Log files that are rotated by their counted size."""

from __future__ import annotations

import logging
import os
import threading
from pathlib import Path

import pytest

from runtime.logs.rotating import RotatingLogHandler


def handler(path: Path, size_max: int = 40, files: int = 2, *, delay: bool = False) -> RotatingLogHandler:
    return RotatingLogHandler(path, maxBytes=size_max, backupCount=files, encoding="utf-8", delay=delay)


def say(to: RotatingLogHandler, text: str) -> None:
    to.handle(logging.LogRecord("test", logging.INFO, "", 0, text, None, None))


def contents(path: Path) -> dict[str, str]:
    return {found.name: found.read_text() for found in sorted(path.parent.iterdir())}


@pytest.mark.parametrize("delay", [False, True])
def test_files_stay_below_their_size_and_the_oldest_go(tmp_path: Path, delay: bool) -> None:
    path = tmp_path / "log"
    log = handler(path, delay=delay)
    for number in range(7):
        say(log, f"line {number} of twenty-four.")
        assert f"line {number}" in path.read_text(), "a line is there when it was said"
    log.close()
    found = contents(path)
    assert sorted(found) == ["log", "log.1", "log.2"]
    assert found == {
        "log": "line 6 of twenty-four.\n",
        **{f"log.{back}": f"line {6 - back} of twenty-four.\n" for back in (1, 2)},
    }
    assert all(len(text) < 40 for text in found.values())


def test_what_an_earlier_process_wrote_counts(tmp_path: Path) -> None:
    path = tmp_path / "log"
    path.write_text("x" * 30 + "\n")
    log = handler(path)
    say(log, "new one")
    say(log, "other")
    log.close()
    assert contents(path) == {"log": "other\n", "log.1": "x" * 30 + "\nnew one\n"}


def test_bytes_count_and_not_characters(tmp_path: Path) -> None:
    path = tmp_path / "log"
    log = handler(path)
    for _ in range(2):
        say(log, "\u20ac" * 8)
    log.close()
    assert sorted(contents(path)) == ["log", "log.1"]


def test_what_is_no_file_is_not_rotated(tmp_path: Path) -> None:
    path = tmp_path / "pipe"
    os.mkfifo(path)
    read: list[str] = []
    reader = threading.Thread(target=lambda: read.append(path.read_text()))
    reader.start()
    log = handler(path)
    for _ in range(5):
        say(log, "line of the pipe")
    log.close()
    reader.join()
    assert read == ["line of the pipe\n" * 5]
    assert [found.name for found in tmp_path.iterdir()] == ["pipe"]


def test_what_cannot_be_written_is_told(tmp_path: Path) -> None:
    told: list[logging.LogRecord] = []

    class Telling(RotatingLogHandler):
        def handleError(self, record: logging.LogRecord) -> None:  # noqa: N802 - logging's name
            told.append(record)

    log = Telling(tmp_path / "log")
    assert log.stream is not None
    log.stream.close()
    say(log, "lost")
    assert [record.getMessage() for record in told] == ["lost"]
