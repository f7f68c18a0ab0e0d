"""Spark's reports of streaming queries: what is told of them, bounded, also where Spark leaves things out."""

from __future__ import annotations

from typing import Any

from runtime.common.stream_progress import NO_BATCH, StreamPhase
from runtime.taskexecutor.spark_host.stream_progress import PLACE_LENGTH_MAX, QUERIES_MAX, streams_by_tag

SPARK = {
    "batchId": 4,
    "timestamp": "2026-11-28T22:00:00.000Z",
    "durationMs": {"triggerExecution": 340, "addBatch": 300},
    "inputRowsPerSecond": "NaN",
    "processedRowsPerSecond": 12.5,
    "stateOperators": [{"numRowsTotal": 3, "memoryUsedBytes": 100}, {"numRowsTotal": 4, "memoryUsedBytes": 11}],
    "eventTime": {"watermark": "2026-11-28T21:59:50.000Z"},
    "sources": [{"metrics": {"avgOffsetsBehindLatest": "2.5"}}, {"metrics": {"numFilesOutstanding": 2}}, {}],
}


def told(progress: Any, tag: str = "t") -> dict[str, Any]:
    own = {"query_id": "q", "run_id": "r", "batches": 5, "rows": 50, "has_triggered": True, "is_idle": False}
    return {
        "tag": tag,
        **own,
        "busy_since": 7,
        "interval": 200,
        "name": "sink",
        "thread": "its\nthread, WAITING in A.b:1" + " < C.d:2" * 100,
        "committed": -1 if progress is None else progress["batchId"],
        "progress": progress,
    }


def test_a_report_of_spark() -> None:
    (one,) = streams_by_tag([told(SPARK)])["t"]
    assert (one.batch_id, one.batches, one.rows, one.trigger_millis) == (4, 5, 50, 340)
    assert (one.committed_batch, one.busy_since_millis) == (4, 7)
    assert (one.interval_millis, one.is_back_pressured) == (200, True)
    assert one.thread.startswith("its thread, WAITING in A.b:1 < C.d:2")
    assert len(one.thread) == PLACE_LENGTH_MAX
    assert one.phases == (StreamPhase("addBatch", 300), StreamPhase("triggerExecution", 340))
    assert (one.input_rows_per_second, one.processed_rows_per_second) == (0.0, 12.5)
    assert (one.state_rows, one.state_bytes, one.backlog) == (7, 111, 5)
    assert one.progressed_millis - one.watermark_millis == 10_340, "the end of the batch, not its begin"


def test_a_query_without_a_batch() -> None:
    (one,) = streams_by_tag([told(None)])["t"]
    assert (one.batch_id, one.backlog, one.progressed_millis, one.trigger_millis) == (NO_BATCH, -1, 0, 0)
    assert one.committed_batch is None


def test_a_query_that_goes_on_and_has_nothing_to_read_has_its_last_batch() -> None:
    (one,) = streams_by_tag([{**told(None), "committed": 6}])["t"]
    assert (one.batch_id, one.committed_batch, one.batches, one.name) == (6, 6, 5, "sink")


def test_a_query_that_commits_later_than_it_tells() -> None:
    (one,) = streams_by_tag([{**told(SPARK), "committed": -1}])["t"]
    assert (one.batch_id, one.committed_batch) == (4, None)


def test_a_script_with_very_many_queries() -> None:
    found = streams_by_tag([*(told(SPARK) for _ in range(QUERIES_MAX + 5)), told(SPARK, "other")])
    assert (len(found["t"]), len(found["other"])) == (QUERIES_MAX, 1)


def test_a_name_is_told_as_spark_knows_it() -> None:
    base = {"tag": "t", "query_id": "q", "run_id": "r", "batches": 1, "rows": 1, "busy_since": 0, "committed": 0}
    base |= {"has_triggered": True, "is_idle": False, "interval": 0, "thread": "", "name": ""}
    told = [{**base, "progress": {"name": name}} for name in ("of\nnow", None)]
    assert [one.name for one in streams_by_tag(told)["t"]] == ["of now", ""]
