"""What is known of a streaming query while it runs: its batches, its rates, its state, and how far it lags behind."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

NO_BATCH = -1
"""The number of the last batch of a query that has completed none."""


@dataclass(frozen=True, slots=True)
class StreamPosition:
    """How far a query has come for good: its last committed batch, NO_BATCH before the first, and its state then.

    `query_id` is Spark's, which stays with the query's directory. `name`: of a script's query, "" for others.
    """

    query_id: str
    batch_id: int = NO_BATCH
    state_rows: int = 0
    state_bytes: int = 0
    name: str = ""


class QueryPhase(Enum):
    """NONE: no query runs that could be held. ENDING: no batch begins any more. DRAINING: it reads what was there when
    it had ended. HELD: its process waits for the word of the job's owner."""

    NONE = "none"
    RUNNING = "running"
    ENDING = "ending"
    DRAINING = "draining"
    HELD = "held"


@dataclass(frozen=True, slots=True)
class StreamLook:
    """One look at the query of an attempt. `position`: None while none is known.

    `sink` and `sources`: Spark's descriptions of what it writes and reads; no source before it has looked at them.
    """

    phase: QueryPhase
    position: StreamPosition | None = None
    sink: str = ""
    sources: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class ScriptQuery:
    """A query that a script has started, and whose state the cluster keeps, running or ended. The rest: StreamLook."""

    name: str
    position: StreamPosition
    sink: str = ""
    sources: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class ScriptLook:
    """One look at the queries of a script. `phase`: of all of them together, and HELD when none of them can begin.

    `awaited`: names of those in the savepoint that the job was started from, and that the script has not started yet.
    """

    phase: QueryPhase
    queries: tuple[ScriptQuery, ...] = ()
    awaited: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class StreamPhase:
    """A phase of a batch."""

    name: str
    millis: int


@dataclass(frozen=True, slots=True)
class StreamProgress:
    """One query of an attempt, as of its last completed batch. Numbers are 0 and texts "" where Spark tells none.

    `batches` and `rows` are counted since the query was started in this attempt. `batch_id` is the number of the last
    completed batch, NO_BATCH before the first. `phases`: milliseconds of that batch by phase, in Spark's names.
    `watermark_millis`: of the event time. `backlog`: what the sources have and the query has not read, in the unit of
    the source (offsets, files); -1 where the source does not say. `progressed_millis`: when that batch ended.
    `has_triggered`: its first trigger is over, so that it has restored what it began with. `committed_batch`: the last
    batch that its directory has for good; None before the first, and where Spark commits later than it tells
    (`asyncProgressTrackingEnabled`). `busy_since_millis`: since when it is in one trigger, once that takes ten seconds;
    0 before, and while it waits for the next one. `name`: as Spark knows it, "" before the first batch.
    `interval_millis`: of its trigger, 0 for one without. `thread` and `stage`: where a query is that is in one trigger
    for so long, "" for others: its thread in Spark's JVM, and the stage of its attempt that has most left to do.
    """

    query_id: str
    run_id: str
    batch_id: int = NO_BATCH
    batches: int = 0
    rows: int = 0
    input_rows_per_second: float = 0.0
    processed_rows_per_second: float = 0.0
    trigger_millis: int = 0
    phases: tuple[StreamPhase, ...] = ()
    state_rows: int = 0
    state_bytes: int = 0
    watermark_millis: int = 0
    backlog: int = -1
    progressed_millis: int = 0
    has_triggered: bool = False
    is_idle: bool = False
    committed_batch: int | None = None
    busy_since_millis: int = 0
    name: str = ""
    interval_millis: int = 0
    thread: str = ""
    stage: str = ""

    @property
    def is_back_pressured(self) -> bool:
        """True if its last batch has taken longer than the interval of its trigger: the next one began late.

        Never of an idle query: nothing waits for it any more.
        """
        return not self.is_idle and 0 < self.interval_millis < self.trigger_millis
