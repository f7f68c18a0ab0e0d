"""Endless jobs of chaos: what comes in, what has to be there behind a stop and behind a drain, and runs that change."""

from __future__ import annotations

import json
from pathlib import Path
from random import Random

import pytest

from tests.chaos.endless import Feed
from tests.chaos.jobs import KINDS
from tests.chaos.judge import judge
from tests.chaos.ledger import ANY, ENDLESS, JobLine, Line, RunLine, from_text, to_text
from tests.kit.checkpoint.query_directories import write

pyarrow = pytest.importorskip("pyarrow")

RUNS = RunLine(1.0, "runs", "j", "table", 0, 0, "one")
ANEW = RunLine(2.0, "runs", "j", "table", 0, 0, "two")


def put(path: Path, numbers: list[int]) -> str:
    from pyarrow import parquet, table

    path.parent.mkdir(parents=True, exist_ok=True)
    parquet.write_table(table({"n": numbers}), path)
    return f'{{"path":"file://{path}","size":1,"isDir":false,"action":"add"}}'


@pytest.fixture
def feed(tmp_path: Path) -> Feed:
    """Two files are there, and both sinks have them."""
    made = Feed(tmp_path, files=2, every=0.1)
    made.prepare()
    for batch in range(2):
        made.bring()
        rows = [json.loads(line)["n"] for line in (tmp_path / "landing" / f"{batch:04}.json").read_text().splitlines()]
        put(tmp_path / "batches" / f"batch={batch}" / "part-0.parquet", rows)
        added = put(tmp_path / "table" / f"part-{batch}.parquet", rows[-10:])
        write(tmp_path / "table" / "_spark_metadata" / str(batch), f"v1\n{added}")
    return made


def test_each_file_brings_rows_and_some_again(feed: Feed) -> None:
    found = [(line.sink, line.rows, line.missing, line.more) for line in feed.look("j", is_drained=True)]
    assert found == [("table", 20, 0, 0), ("batches", 30, 0, 0)]


def test_who_was_stopped_may_have_read_less_and_nothing_twice(feed: Feed) -> None:
    feed.bring()
    put(feed.base / "batches" / "batch=7" / "part-0.parquet", [1])
    assert [(line.missing, line.more) for line in feed.look("j", is_drained=True)] == [(10, 0), (20, 1)]
    assert [(line.missing, line.more) for line in feed.look("j", is_drained=False)] == [(0, 0), (0, 1)]


def test_the_second_job_starts_from_the_savepoint_of_the_first(tmp_path: Path) -> None:
    made = (KINDS[ENDLESS][0](Random(seed), tmp_path) for seed in range(50))
    first = next(job for job in made if job.after)
    (last,) = first.after
    assert (first.endless, last.endless) != (None, None)
    assert first.endless is not None
    assert last.build(tmp_path).graph.savepoint is None
    first.endless.feed.savepoint = "/savepoints/savepoint-1"
    start = last.build(tmp_path).graph.savepoint
    assert start is not None
    assert (start.path, last.promise) == ("/savepoints/savepoint-1", ANY)


@pytest.mark.parametrize(
    ("lines", "said"),
    [
        ([RUNS, RUNS], []),
        ([RUNS, ANEW], ["job j: query table 0 was started anew in attempt 0"]),
        ([RUNS, RunLine(1.5, "stopping", "j"), ANEW], []),
        ([RUNS, RunLine(2.0, "runs", "j", "table", 0, 1, "two")], []),
    ],
)
def test_a_query_that_is_started_anew_is_found(lines: list[Line], said: list[str]) -> None:
    assert judge([from_text(to_text(line)) for line in lines]).wrong == said


def test_somebody_has_to_count(feed: Feed) -> None:
    ended = JobLine(2.0, "ended", "j", ENDLESS, "FINISHED", "null", {})
    assert judge([ended]).wrong == ["job j is FINISHED, and nobody counted what its queries have written"]
    assert judge([ended, *feed.look("j", is_drained=True)]).wrong == []
