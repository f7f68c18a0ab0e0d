"""The condition of FlinklikeStreamSensor, without I/O: how far the streaming queries of a job are."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from airflow_flinklike.client import JobState, operations
from airflow_flinklike.client.protocol import Operation
from airflow_flinklike.triggers.conditions import Verdict
from runtime.common.ids import JobId


@dataclass(frozen=True, slots=True)
class StreamWish:
    """How far queries are to be. None: it does not matter. `uid` "": all queries of the job.
    Queries of a script have their names for uids.

    `batch`: number of the batch that each subtask has completed. `rows`: rows that the attempts of all subtasks have
    read. `max_backlog`: what the sources have more, summed. `max_lag`: seconds that the watermark is behind.
    """

    uid: str = ""
    batch: int | None = None
    rows: int | None = None
    max_backlog: int | None = None
    max_lag: float | None = None


@dataclass(frozen=True, slots=True)
class QueryPlace:
    """How far a query is, over its subtasks. None: it does not say, or some subtask has none yet."""

    uid: str
    batch: int | None
    rows: int
    backlog: int | None
    lag: float | None

    def lacks(self, wish: StreamWish) -> list[str]:
        """What the wish asks for and is not so, as one phrase each."""
        found = []
        if self.batch is None or (wish.batch is not None and self.batch < wish.batch):
            found.append(f"{self.uid} has {_said('no batch', self.batch, 'batch ')}")
        if wish.rows is not None and self.rows < wish.rows:
            found.append(f"{self.uid} has read {self.rows} rows")
        if wish.max_backlog is not None and (self.backlog is None or self.backlog > wish.max_backlog):
            found.append(
                f"{self.uid} {_said('has sources that do not say their backlog', self.backlog, 'has a backlog of ')}"
            )
        if wish.max_lag is not None and (self.lag is None or self.lag > wish.max_lag):
            found.append(f"{self.uid} {_said('has no watermark', self.lag, 'has a lag in seconds of ')}")
        return found

    def told(self) -> dict[str, Any]:
        """As the XCom has it."""
        return {"batch": self.batch, "rows": self.rows, "backlog": self.backlog, "lag": self.lag}


def _said(nothing: str, value: float | None, words: str) -> str:
    return nothing if value is None else f"{words}{value:g}"


@dataclass(frozen=True, slots=True)
class StreamLook:
    """One look at the queries of a job."""

    verdict: Verdict
    state: JobState | None = None
    places: Mapping[str, QueryPlace] = field(default_factory=dict)
    lacking: tuple[str, ...] = ()

    def __str__(self) -> str:
        if self.state is None:
            return "there is no such job yet"
        what = "; ".join(self.lacking) if self.lacking else "all that is waited for is there"
        return f"Job {self.state.job_id}: {self.state.status.value}, {what}"

    def value(self) -> dict[str, Any]:
        """How far each query is, by uid; one of a script by its name."""
        return {uid: place.told() for uid, place in self.places.items()}


def look_at_streams(wish: StreamWish, state: JobState) -> Operation[StreamLook]:
    """The look at the queries of a job in that state. A job that has ended is judged by where its queries were last."""
    return judge_streams(wish, state, (yield from operations.get_json(streams_path(state.job_id))))


def streams_path(job_id: JobId) -> str:
    """Where a job tells of its streaming queries."""
    return f"/jobs/{job_id}/streams"


def judge_streams(wish: StreamWish, state: JobState, body: Mapping[str, Any]) -> StreamLook:
    """The look, from the answer of `streams_path`."""
    found = [place for vertex in body["vertices"] for place in _places(vertex, wish.uid, int(body["now"]))]
    places = {place.uid: place for place in found}
    lacking = tuple(text for place in found for text in place.lacks(wish))
    if not places:
        others = ", ".join(name[:80] for name in [name for one in body["vertices"] for name in query_uids(one)][:20])
        lacking = (f"no streaming query {wish.uid!r} among: {others or 'none'}",) if wish.uid else ("no query yet",)
    if not lacking:
        verdict = Verdict.REACHED
    else:
        # The uids of a pipeline are in its graph; queries of a script come later.
        is_unknown = not places and bool(body["vertices"]) and all(one["uid"] for one in body["vertices"])
        verdict = Verdict.MISSED if is_unknown or state.status.is_globally_terminal else Verdict.WAITING
    return StreamLook(verdict, state, places, lacking)


def _places(vertex: Mapping[str, Any], asked: str, now: int) -> Iterator[QueryPlace]:
    """Those of its queries that are asked for. A vertex without a uid (a script) has one for each name of a query."""
    has_uid, is_whole_asked = bool(vertex["uid"]), not asked or asked in {vertex["uid"], vertex["name"]}
    for name in query_uids(vertex):
        if is_whole_asked or name == asked:
            subtasks = [
                [one for one in subtask["queries"] if has_uid or _name_of(one, vertex) == name]
                for subtask in vertex["subtasks"]
            ]
            yield _place(name, subtasks, now)


def query_uids(vertex: Mapping[str, Any]) -> list[str]:
    """The uid of its queries; without one their names, none before a query has started."""
    if vertex["uid"]:
        return [str(vertex["uid"])]
    queries = (query for subtask in vertex["subtasks"] for query in subtask["queries"])
    return list(dict.fromkeys(_name_of(query, vertex) for query in queries))


def _name_of(query: Mapping[str, Any], vertex: Mapping[str, Any]) -> str:
    """That of the vertex for a query without a name."""
    return str(query.get("name") or vertex["name"])


def _place(uid: str, subtasks: Sequence[Sequence[Mapping[str, Any]]], now: int) -> QueryPlace:
    queries = [query for subtask in subtasks for query in subtask]
    is_whole = bool(queries) and all(subtasks)
    batches = [int(query["batch-id"]) for query in queries]
    backlogs = [int(query["backlog"]) for query in queries]
    watermarks = [int(query["watermark"]) for query in queries]
    return QueryPlace(
        uid,
        min(batches) if is_whole and min(batches) >= 0 else None,
        sum(int(query["rows"]) for query in queries),
        sum(backlogs) if is_whole and min(backlogs) >= 0 else None,
        (now - min(watermarks)) / 1000 if is_whole and min(watermarks) > 0 else None,
    )
