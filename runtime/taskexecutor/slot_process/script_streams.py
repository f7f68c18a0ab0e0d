"""Streaming queries of a script that was submitted as a streaming job: they keep their state, and are watched.

The script starts its queries itself. This module stands in the way of each start: the query gets a directory for its
state where the script has named none, and is counted from then on. A query that fails fails the attempt with its cause,
whatever the script waits for (R63).
"""

from __future__ import annotations

import re
import signal
import sys
import threading
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from copy import copy
from hashlib import sha256
from typing import TYPE_CHECKING, Any

from runtime.common.errors import NonRecoverableError
from runtime.jobgraph.streams import UID_LENGTH_MAX, is_state_name, is_taken
from runtime.taskexecutor.slot_process.causes import TaskError
from runtime.taskexecutor.slot_process.channel import Channel
from runtime.taskexecutor.slot_process.hadoop_files import HadoopFiles
from runtime.taskexecutor.slot_process.script_hold import ScriptHold, ScriptStoppedError, StartedQuery
from runtime.taskexecutor.slot_process.script_restore import ScriptRestore, listed
from runtime.taskexecutor.slot_process.sink_tables import WritingQuery, asked_field, asked_option, keep_table
from runtime.taskexecutor.slot_protocol.template_config import STREAMS_SIGNAL
from runtime.taskexecutor.slot_protocol.wire import FrameKind, WorkOrder, encode_fields

if TYPE_CHECKING:
    from types import FrameType

    from pyspark.sql.streaming.query import StreamingQuery
    from pyspark.sql.streaming.readwriter import DataStreamWriter

    from runtime.taskexecutor.slot_process.attached_spark import AttachedSpark

_LOOK_SECONDS = 0.5
_GRACE_SECONDS = 5.0
"""The time in which the script may handle the failure of a query itself, or start the query again; and in which it may
end by itself when its job was stopped."""
_REMINDS_AT_LOOK = 60
_WITHOUT_STATE = frozenset({"console", "memory", "noop"})
"""Sinks that promise nothing: as under spark-submit, a query into one has no state that outlives it."""
_CONF_LOCATION = "spark.sql.streaming.checkpointLocation"
_ABSOLUTE = re.compile(r"/|[A-Za-z][A-Za-z0-9+.-]*:/")
_RELATIVE = (
    "the checkpointLocation {!r} is relative, so it lies in the working directory of the job, which goes with its "
    "TaskManager: the query would begin anew elsewhere. Name an absolute path that all TaskManagers reach, or "
    "none, and give the query a name"
)
_NAMELESS = (
    "a query of a streaming job has a name, or a directory: after a failure it goes on from the state that lies there. "
    'Give it one, .queryName("orders"), or .option("checkpointLocation", ...)'
)
_WRONGLY_NAMED = (
    "the name of the query {!r} names the directory of its state: it has letters (a-z, A-Z), digits, blanks and "
    '"_.=@+-", at most {} characters, begins with a letter, a digit or "_", and is none of _ended, _metadata and '
    "_tables; or give the query a checkpointLocation"
)


class _EndedError(BaseException):
    """Raised in the main thread, through whatever the script does there: no handler of errors is meant for it."""


class ScriptStreams:
    """The queries of one attempt of a streaming script. Of the main thread, but for the thread that watches."""

    def __init__(self, order: WorkOrder, ensure: Callable[[], AttachedSpark], channel: Channel) -> None:
        self._order = order
        self._ensure = ensure
        self._started: list[StartedQuery] = []
        """In their order, without those that have ended and of which nothing follows any more."""
        self._hold = ScriptHold(channel, lambda: ensure().script_queries, self._started)
        self._restore = ScriptRestore(order)
        self._named: set[str] = set()
        """The queries of this attempt whose state the cluster keeps."""
        self._channel = channel
        self._told, self._looks = "", 0
        self._ends = threading.Event()
        self._failure: BaseException | None = None
        self._stopped_seconds = 0.0

    def run(self, script: Callable[[], object]) -> None:
        """Run the script to its end. Raises what it raises, and the failure of a query that it does not handle.

        Nothing of that counts once the job is stopped: what it has is in the savepoint (R61).
        """
        if self._order.is_stopped:
            sys.stderr.write("the job was stopped with a savepoint: its script is not begun again\n")
            return
        try:
            with self._in_the_way(), self._hold.in_the_way(), self._watched():
                script()
                self._hold.wait_for_word()
                if not self._hold.is_stopped:
                    self._restore.require_all()
        except (_EndedError, ScriptStoppedError):
            pass
        except BaseException:
            if self._failure is None and not self._hold.is_stopped:
                raise
            if self._hold.is_stopped:
                sys.stderr.write(f"what the script has raised when its job was stopped:\n{traceback.format_exc()}")
        if self._hold.is_stopped:
            sys.stderr.write("the job was stopped with a savepoint, and so its script has ended\n")
            return
        if self._failure is not None:
            raise self._failure
        if running := [one.called for one in self._started if one.query.isActive]:
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
            if outputMode is not None:
                writer.outputMode(outputMode)
            if partitionBy is not None:
                writer.partitionBy(partitionBy)
            used = _of_one_query(writer)
            called, state, kept = self._prepare(used, place, to_table=original.__name__ == "toTable")

            def begin() -> StreamingQuery:
                return original(used, place)

            if self._failure is not None:
                raise self._refused_start()
            try:
                return self._hold.start(begin, called, state, kept)
            except ScriptStoppedError:
                raise self._refused_start() from None

        return start

    def _refused_start(self) -> BaseException:
        """What a script is told that starts a query while its attempt ends: one that has failed is not handled, or the
        job is stopped."""
        if threading.current_thread() is threading.main_thread():
            return _EndedError()
        why = "a query of this script has failed" if self._failure is not None else "the job of this script is stopped"
        return TaskError(f"{why}, so its attempt ends, and starts no more queries")

    def _prepare(self, writer: DataStreamWriter, place: str | None, *, to_table: bool) -> tuple[str, str, str]:
        """The directory of the query's state. Returns `called`, `state` and `kept` of it. `place`: where it writes.

        Raises NonRecoverableError for a query that would begin anew after a failure, or lose rows.
        """
        path = None if to_table else place
        session = writer._df.sparkSession  # noqa: SLF001 - Spark has no other way to it
        self._ensure().follow_streams(session)
        name, location, sink = _asked(writer)
        if sink in _WITHOUT_STATE:
            return name or location or sink, name or location, ""
        configured = session.conf.get(_CONF_LOCATION, None)
        for asked in (location, configured if name and not location else None):
            if asked and not _ABSOLUTE.match(asked):
                raise NonRecoverableError(_RELATIVE.format(asked[:200]))
        if not (location or name):
            raise NonRecoverableError(_NAMELESS)
        if not (location or configured) and (not is_state_name(name) or is_taken(name)):
            raise NonRecoverableError(_WRONGLY_NAMED.format(name[:80], UID_LENGTH_MAX))
        directory = location or (
            f"{configured}/{name}" if configured else f"{self._order.checkpoint_directory}/{name}/0"
        )
        if not (location or configured):
            self._say_what_is_left(name, HadoopFiles(session))
            self._restore.restore(name, directory, writer, path, to_table=to_table)
            self._ensure().script_queries.awaits("\n".join(self._restore.left))
        keep_table(self._writing(name, directory), writer, session, path)
        # With the conf Spark makes the same one, but another where the script changes that before a stop that fails.
        writer.option("checkpointLocation", directory)
        return name or location, name or location, "" if location or configured else name

    def _say_what_is_left(self, name: str, files: HadoopFiles) -> None:
        """A query that begins anew under a name for the state of the job's queries, where others have left theirs."""
        self._named.add(name)
        if not self._order.is_checkpoint_named:
            return
        have = {
            one for one in files.names(self._order.checkpoint_directory) if is_state_name(one) and not is_taken(one)
        }
        if name not in have and (left := have - self._named):
            sys.stderr.write(
                f"WARNING: the query {name!r} begins anew. Under the checkpoint name of the job "
                f"({self._order.checkpoint_directory}) is state of {listed(left)}, which this script has not "
                "started: if one of them was this query, give it that name again\n"
            )

    def _writing(self, name: str, directory: str) -> WritingQuery:
        uid = name if is_state_name(name) else sha256(directory.encode()).hexdigest()[:32]
        job_id = self._order.attempt_id.job_id
        return WritingQuery(name or directory, self._order.checkpoint_directory, directory, job_id, uid, 0)

    # --- the watch ----------------------------------------------------------------------------------------

    @contextmanager
    def _watched(self) -> Iterator[None]:
        main = threading.get_ident()

        def fail(_: int, frame: FrameType | None) -> None:
            if self._is_to_end and not self._ends.is_set() and not _is_in_call(frame):
                raise _EndedError

        before = signal.signal(STREAMS_SIGNAL, fail)
        watch = threading.Thread(target=self._watch, args=(main,), name="flinklike-streams", daemon=True)
        watch.start()
        try:
            yield
        finally:
            self._ends.set()
            watch.join()
            signal.signal(STREAMS_SIGNAL, before)

    def _watch(self, main: int) -> None:
        while not self._ends.wait(_LOOK_SECONDS):
            if self._hold.is_stopped:
                self._stopped_seconds += _LOOK_SECONDS
            elif self._failure is None:
                self._failure = self._heed() or self._failed_for_good()
            self._remind()
            self._look_at_sources()
            if self._is_to_end:
                self._end_queries()
            if self._is_to_end and not self._ends.is_set():
                signal.pthread_kill(main, STREAMS_SIGNAL)

    @property
    def _is_to_end(self) -> bool:
        """True when the script is ended, as a query of it has failed, or as it does not end after a stop."""
        return self._failure is not None or self._stopped_seconds > _GRACE_SECONDS

    def _remind(self) -> None:
        """Of what the script has left in the savepoint: in the progress of the task, and later in its output."""
        words = f"{self._restore.words()} yet" if self._restore.left else ""
        if words != self._told:
            self._told = words
            self._channel.send(FrameKind.PROGRESS, encode_fields(fraction=0.0, text=words))
        self._looks += bool(words)
        if words and self._looks == _REMINDS_AT_LOOK:
            sys.stderr.write(f"WARNING: {words}: no savepoint is made of the job before that\n")

    def _look_at_sources(self) -> None:
        for one in [*self._started]:
            self._restore.look_at_sources(one.kept, one.query, has_failed=one.failed_seconds > 0)

    def _heed(self) -> BaseException | None:
        """The failure of a query that was held and cannot go on."""
        try:
            self._hold.heed()
            self._hold.go_on()
        except Exception as error:  # noqa: BLE001 - whatever it is, it is the failure of the attempt
            return error
        return None

    def _failed_for_good(self) -> BaseException | None:
        """Why a query has failed that nobody has handled in time."""
        started = [*self._started]
        for place, one in enumerate(started):
            has_ended, failure = _end_of(one.query)
            if not has_ended:
                continue
            if failure is None or any(one.state == later.state != "" for later in started[place + 1 :]):
                self._started.remove(one)
                continue
            one.failed_seconds += _LOOK_SECONDS
            if one.failed_seconds > _GRACE_SECONDS:
                return failure
        return None

    def _end_queries(self) -> None:
        """The other queries and the jobs of the session end, so that what the script waits for in Spark returns.

        At each look: what returns there may lead the script to the next wait, which no signal ends.
        """
        with suppress(Exception):  # Spark is lost: what the script does next fails by itself (R36)
            self._ensure().detach()


def _is_in_call(frame: FrameType | None) -> bool:
    """True while the thread waits for an answer of Spark's JVM, which a later call on its connection would read."""
    while frame is not None and not frame.f_globals.get("__name__", "").startswith("py4j."):
        frame = frame.f_back
    return frame is not None


def _end_of(query: StreamingQuery) -> tuple[bool, BaseException | None]:
    """Whether the query has ended, and its failure, None for one that was stopped. Not ended where Spark is lost."""
    try:
        return (False, None) if query.isActive else (True, query.exception())
    except Exception:  # noqa: BLE001 - Spark is lost: what the script does next fails by itself (R36)
        return False, None


def _of_one_query(writer: DataStreamWriter) -> DataStreamWriter:
    """The writer as it is now. The script may use its own for other queries: it gets no directory of the cluster, and
    what the script changes there is not of this query when that is started again."""
    java = writer._jwrite  # noqa: SLF001 - PySpark has no other way to it
    made = copy(writer)
    fields = writer._df.sparkSession._jvm.org.apache.spark.Fields  # type: ignore[union-attr]  # noqa: SLF001
    made._jwrite = fields.copy(java, java.getClass())  # noqa: SLF001
    return made


def _asked(writer: DataStreamWriter) -> tuple[str, str, str]:
    """Name, checkpoint location and sink of a query before its start, "" for what it does not say."""
    source = str(asked_field(writer, "source")).lower()
    return asked_option(writer, "queryName"), asked_option(writer, "checkpointLocation"), source
