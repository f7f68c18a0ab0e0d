"""What a reader is said to see is what lies there: whole, torn, doubled, old, or strange."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest

from tests.chaos.ledger import OutputLine
from tests.chaos.outputs import Output, write


@pytest.fixture
def output(tmp_path: Path) -> Output:
    return Output(tmp_path / "base", subtasks=2, files=4, old=3)


def fill(output: Output, subtask: int, attempt: str, directory: Path) -> None:
    """As if it had been moved into place."""
    ctx = SimpleNamespace(subtask_index=subtask, output_path=lambda _: str(directory))
    write(ctx, str(output.base), output.files, attempt)


def test_what_lay_there_is_seen_before_the_job(output: Output) -> None:
    promise = output.prepare("job")
    assert (promise.rows, promise.old, promise.is_marked) == (8, 3, True)
    seen = output.look("ended", "job", "FAILED")
    assert seen == OutputLine(seen.at, "ended", "job", "FAILED", rows=0, old=3, is_marked=True)


def test_a_base_that_is_not_there_shows_nothing(output: Output) -> None:
    without = replace(output, old=0)
    assert not without.prepare("job").is_marked
    assert without.look("ended", "job", "FAILED").rows == 0


def test_each_row_is_seen_and_what_is_hidden_is_not(output: Output) -> None:
    without = replace(output, old=0)
    for subtask in range(2):
        fill(without, subtask, "a0", without.base)
    fill(without, 0, "a1", without.base / ".attempt")
    seen = without.look("ended", "job", "FINISHED")
    assert (seen.rows, seen.doubled, seen.strange, seen.is_marked) == (8, 0, 0, False)


def test_two_attempts_are_seen_as_doubled_rows(output: Output) -> None:
    for attempt in ("a0", "a1"):
        fill(output, 1, attempt, output.base)
    seen = output.look("ended", "job", "FINISHED")
    assert (seen.rows, seen.doubled) == (4, 2)


def test_rows_of_others_are_strange(output: Output) -> None:
    output.prepare("job")
    (output.base / "part-9").write_text("9 9\n")
    assert output.look("ended", "job", "FAILED").strange == 1
