"""From Spark's reports of streaming queries to StreamProgress per session. Pure; what Spark says is bounded here."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import replace
from datetime import datetime
from typing import Any

from runtime.common.printable import printable
from runtime.common.stream_progress import NO_BATCH, StreamPhase, StreamProgress

QUERIES_MAX = 20
"""Queries that are told of one attempt: a script may start any number."""
_PHASES_MAX = 20
_NAME_LENGTH_MAX = 60
PLACE_LENGTH_MAX = 400
"""Of what a query hangs in."""
_BACKLOG_METRICS = ("avgOffsetsBehindLatest", "numFilesOutstanding")


def streams_by_tag(told: Iterable[Mapping[str, Any]]) -> dict[str, tuple[StreamProgress, ...]]:
    """The queries of each session, oldest run first, at most QUERIES_MAX of each."""
    found: dict[str, list[StreamProgress]] = {}
    for one in told:
        queries = found.setdefault(one["tag"], [])
        if len(queries) < QUERIES_MAX:
            queries.append(_progress(one))
    return {tag: tuple(queries) for tag, queries in found.items()}


def _progress(told: Mapping[str, Any]) -> StreamProgress:
    spark = told["progress"] or {}
    state = spark.get("stateOperators") or ()
    trigger_millis = int((spark.get("durationMs") or {}).get("triggerExecution", 0))
    return StreamProgress(
        query_id=str(told["query_id"])[:_NAME_LENGTH_MAX],
        run_id=str(told["run_id"])[:_NAME_LENGTH_MAX],
        batch_id=int(spark.get("batchId", told["committed"])),
        batches=int(told["batches"]),
        rows=int(told["rows"]),
        input_rows_per_second=_rate(spark.get("inputRowsPerSecond")),
        processed_rows_per_second=_rate(spark.get("processedRowsPerSecond")),
        trigger_millis=trigger_millis,
        phases=tuple(
            StreamPhase(str(name)[:_NAME_LENGTH_MAX], int(millis))
            for name, millis in sorted((spark.get("durationMs") or {}).items())[:_PHASES_MAX]
        ),
        state_rows=sum(int(one.get("numRowsTotal", 0)) for one in state),
        state_bytes=sum(int(one.get("memoryUsedBytes", 0)) for one in state),
        watermark_millis=_millis((spark.get("eventTime") or {}).get("watermark")),
        backlog=_backlog(spark.get("sources") or ()),
        progressed_millis=_end_millis(spark.get("timestamp"), trigger_millis),
        has_triggered=bool(told["has_triggered"]),
        is_idle=bool(told["is_idle"]),
        busy_since_millis=int(told["busy_since"]),
        name=_line(str(spark.get("name") or told["name"]))[:_NAME_LENGTH_MAX],
        interval_millis=int(told["interval"]),
        thread=_line(str(told["thread"]))[:PLACE_LENGTH_MAX],
        committed_batch=None if (committed := int(told["committed"])) == NO_BATCH else committed,
    )


def with_stage(streams: Iterable[StreamProgress], stage: Mapping[str, Any] | None) -> tuple[StreamProgress, ...]:
    """The queries of a session whose stage with most left to do this is, None for none: told of those that hang."""
    place = "" if stage is None else _line(f"stage {stage['stageId']}, {stage.get('name') or ''}")[:PLACE_LENGTH_MAX]
    return tuple(replace(one, stage=place) if one.busy_since_millis else one for one in streams)


def _line(text: str) -> str:
    return " ".join(printable(text).split())


def _rate(value: Any) -> float:
    rate = float(value or 0.0)
    return rate if math.isfinite(rate) else 0.0


def _millis(time: str | None) -> int:
    """Of an ISO time of Spark's, 0 for none."""
    if not time:
        return 0
    return max(0, int(datetime.fromisoformat(time).timestamp() * 1000))


def _end_millis(began: str | None, trigger_millis: int) -> int:
    """When a batch ended whose trigger began then, 0 for none: Spark's report has the begin."""
    begin = _millis(began)
    return begin + trigger_millis if begin else 0


def _backlog(sources: Iterable[Mapping[str, Any]]) -> int:
    """What the sources say that they have more, added up; -1 when none says it."""
    said = [
        float(metrics[name])
        for source in sources
        for metrics in [source.get("metrics") or {}]
        for name in _BACKLOG_METRICS
        if name in metrics
    ]
    return math.ceil(sum(said)) if said else -1
