"""Streaming queries of a script that was submitted as a streaming job: they keep their state, and are watched.

The script starts its queries itself. This module stands in the way of each start: the query gets a directory for its
state where the script has named none, and is counted from then on. A query that fails fails the attempt with its cause,
whatever the script waits for (R63).
"""

from __future__ import annotations

import signal
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any

from runtime.jobgraph.streams import is_state_name
from runtime.taskexecutor.slot_process.causes import TaskError
from runtime.taskexecutor.slot_protocol.wire import WorkOrder

if TYPE_CHECKING:
    from types import FrameType

    from pyspark.sql.streaming.query import StreamingQuery
    from pyspark.sql.streaming.readwriter import DataStreamWriter

    from runtime.taskexecutor.slot_process.attached_spark import AttachedSpark

_LOOK_SECONDS = 0.5
_GRACE_SECONDS = 5.0
"""The time in which the script may handle the failure of a query itself, or start the query again."""
_SIGNAL = signal.SIGRTMIN + 7
_WITHOUT_STATE = frozenset({"console", "memory", "noop"})
"""Sinks that promise nothing: as under spark-submit, a query into one has no state that outlives it."""
_CONF_LOCATION = "spark.sql.streaming.checkpointLocation"


class _QueryFailed(BaseException):
    """Raised in the main thread, through whatever the script does there: no handler of errors is meant for it."""


class ScriptStreams:
    """The queries of one attempt of a streaming script. Of the main thread, but for the thread that watches."""

    def __init__(self, order: WorkOrder, ensure: Callable[[], AttachedSpark]) -> None:
        self._order = order
        self._ensure = ensure
        self._started: list[tuple[str, StreamingQuery]] = []
        self._ends = threading.Event()
        self._failure: BaseException | None = None

    def run(self, script: Callable[[], object]) -> None:
        """Run the script to its end. Raises what it raises, and the failure of a query that it does not handle."""
        with self._in_the_way(), self._watched():
            with suppress(_QueryFailed):
                script()
            if self._failure is not None:
                raise self._failure
        if running := [name for name, query in self._started if query.isActive]:
            sys.stderr.write(
                f"the script has ended while queries of it run, and they end with it: {', '.join(running)}. "
                "End it with query.awaitTermination(), or spark.streams.awaitAnyTermination()\n"
            )

    # --- the start of a query -----------------------------------------------------------------------------

    @contextmanager
    def _in_the_way(self) -> Iterator[None]:
        from pyspark.sql.streaming.readwriter import DataStreamWriter

        originals = {name: getattr(DataStreamWriter, name) for name in ("start", "toTable")}
        for name, original in originals.items():
            setattr(DataStreamWriter, name, self._started_by(original))
        try:
            yield
        finally:
            for name, original in originals.items():
                setattr(DataStreamWriter, name, original)

    def _started_by(self, original: Callable[..., StreamingQuery]) -> Callable[..., StreamingQuery]:
        def start(
            writer: DataStreamWriter,
            place: str | None = None,
            format: str | None = None,  # noqa: A002 - Spark's name
            outputMode: str | None = None,  # noqa: N803 - Spark's name
            partitionBy: str | list[str] | None = None,  # noqa: N803
            queryName: str | None = None,  # noqa: N803
            **options: Any,
        ) -> StreamingQuery:
            place = options.pop("path", options.pop("tableName", place))
            writer.options(**options)
            if format is not None:
                writer.format(format)
            if queryName is not None:
                writer.queryName(queryName)
            name = self._prepare(writer)
            query = original(writer, place, outputMode=outputMode, partitionBy=partitionBy)
            self._started.append((name, query))
            return query

        return start

    def _prepare(self, writer: DataStreamWriter) -> str:
        """The directory of the query's state. Returns what the query is called. Raises TaskError."""
        attached = self._ensure()
        attached.follow_streams(writer._df.sparkSession)  # noqa: SLF001 - Spark has no other way to it
        name, location, sink = _asked(writer)
        if location or sink in _WITHOUT_STATE:
            return name or location or sink
        if name and attached.spark.conf.get(_CONF_LOCATION, None):
            return name  # Spark makes a directory of that name there
        if not name:
            message = (
                "a query of a streaming job has a name, or a directory: after a failure it goes on from the state that "
                'lies there. Give it one, .queryName("orders"), or .option("checkpointLocation", ...)'
            )
            raise TaskError(message)
        if not is_state_name(name):
            message = (
                f"the name of the query {name[:80]!r} names the directory of its state: it has letters, digits, blanks "
                'and "_.=@+-", and begins with a letter, a digit or "_"; or give the query a checkpointLocation'
            )
            raise TaskError(message)
        writer.option("checkpointLocation", f"{self._order.checkpoint_directory}/{name}/0")
        return name

    # --- the watch ----------------------------------------------------------------------------------------

    @contextmanager
    def _watched(self) -> Iterator[None]:
        main = threading.get_ident()

        def fail(_: int, frame: FrameType | None) -> None:
            if not self._ends.is_set() and not _is_in_call(frame):
                raise _QueryFailed

        before = signal.signal(_SIGNAL, fail)
        watch = threading.Thread(target=self._watch, args=(main,), name="flinklike-streams", daemon=True)
        watch.start()
        try:
            yield
        finally:
            self._ends.set()
            watch.join()
            signal.signal(_SIGNAL, before)

    def _watch(self, main: int) -> None:
        failing: dict[int, float] = {}
        while not self._ends.wait(_LOOK_SECONDS):
            for place, (name, query) in enumerate([*self._started]):
                failure = _failure_of(query)
                if failure is None or self._is_started_again(name, place):
                    continue
                failing[place] = failing.get(place, 0.0) + _LOOK_SECONDS
                if failing[place] > _GRACE_SECONDS:
                    self._fail(failure)
            if self._failure is not None and not self._ends.is_set():
                signal.pthread_kill(main, _SIGNAL)

    def _fail(self, failure: BaseException) -> None:
        """The other queries and the jobs of the session end, so that what the script waits for in Spark returns."""
        if self._failure is None:
            self._failure = failure
            with suppress(Exception):  # Spark is lost: what the script does next fails by itself (R36)
                self._ensure().detach()

    def _is_started_again(self, name: str, place: int) -> bool:
        return any(other == name for other, _ in self._started[place + 1 :])


def _is_in_call(frame: FrameType | None) -> bool:
    """True while the thread waits for an answer of Spark's JVM, which a later call on its connection would read."""
    while frame is not None and not frame.f_globals.get("__name__", "").startswith("py4j."):
        frame = frame.f_back
    return frame is not None


def _failure_of(query: StreamingQuery) -> BaseException | None:
    """Why the query has ended; None while it runs, for one that was stopped, and where Spark does not answer."""
    try:
        return None if query.isActive else query.exception()
    except Exception:  # noqa: BLE001 - Spark is lost: what the script does next fails by itself (R36)
        return None


def _asked(writer: DataStreamWriter) -> tuple[str, str, str]:
    """Name, checkpoint location and sink of a query before its start, "" for what it does not say."""
    java = writer._jwrite  # noqa: SLF001 - only Spark's class knows what was asked for

    def field(name: str) -> Any:
        found = java.getClass().getDeclaredField(name)
        found.setAccessible(True)
        return found.get(java)

    options = field("extraOptions")

    def option(name: str) -> str:
        found = options.get(name)
        return str(found.get()) if found.isDefined() else ""

    return option("queryName"), option("checkpointLocation"), str(field("source") or "").lower()
