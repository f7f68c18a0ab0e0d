"""What a streaming job of chaos has written is counted as it lies there, and judged."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from tests.chaos.judge import judge
from tests.chaos.ledger import ANY, STREAM, JobLine, Line, StreamLine
from tests.chaos.streams import ROWS_IN_FILE, Rows
from tests.kit.checkpoint.query_directories import write

pyarrow = pytest.importorskip("pyarrow")

ACKNOWLEDGED = JobLine(1.0, "acknowledged", "j", STREAM, "FINISHED", ANY, {})
ENDED = JobLine(2.0, "ended", "j", STREAM, "FINISHED", '{"batches":7}', {})
WHOLE = [StreamLine(3.0, "j", sink, 20, 0, 0) for sink in ("table", "batches")]
CHECKED = replace(ENDED, at=4.0, step="checked")


def put(path: Path, numbers: range) -> str:
    from pyarrow import parquet, table

    path.parent.mkdir(parents=True, exist_ok=True)
    parquet.write_table(table({"n": list(numbers)}), path)
    return f'{{"path":"file://{path}","size":1,"isDir":false,"action":"add"}}'


@pytest.fixture
def rows(tmp_path: Path) -> Rows:
    """Both batches are in both sinks."""
    made = Rows(tmp_path, files=2)
    made.prepare()
    for batch in range(2):
        numbers = range(batch * ROWS_IN_FILE, (batch + 1) * ROWS_IN_FILE)
        put(tmp_path / "batches" / f"batch={batch}" / "part-0.parquet", numbers)
        added = put(tmp_path / "table" / f"part-{batch}.parquet", numbers)
        write(tmp_path / "table" / "_spark_metadata" / str(batch), f"v1\n{added}")
    return made


def test_rows_that_are_there_once(rows: Rows) -> None:
    put(rows.base / "table" / "part-of-a-batch-that-was-repeated.parquet", range(ROWS_IN_FILE))
    assert [(line.sink, line.rows, line.missing, line.more) for line in rows.look("j")] == [
        ("table", 20, 0, 0),
        ("batches", 20, 0, 0),
    ]


def test_rows_that_are_missing_or_there_twice(rows: Rows) -> None:
    (rows.base / "table" / "_spark_metadata" / "1").unlink()
    put(rows.base / "batches" / "batch=2" / "part-0.parquet", range(5))
    assert [(line.missing, line.more) for line in rows.look("j")] == [(10, 0), (0, 5)]


def test_whole_streams_are_clean() -> None:
    verdict = judge([ACKNOWLEDGED, ENDED, *WHOLE, CHECKED])
    assert verdict.is_clean, verdict
    assert verdict.streams == 2


@pytest.mark.parametrize(
    ("lines", "said"),
    [
        ([replace(WHOLE[0], missing=3)], "job j has 3 rows too few and 0 too many in table"),
        ([replace(WHOLE[1], more=4)], "job j has 0 rows too few and 4 too many in batches"),
        ([], "job j is FINISHED, and nobody counted what its queries have written"),
    ],
)
def test_rows_that_are_wrong_are_found(lines: list[Line], said: str) -> None:
    assert judge([ACKNOWLEDGED, ENDED, *lines, CHECKED]).wrong == [said]
