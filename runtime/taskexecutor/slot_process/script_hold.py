"""All queries of a streaming script, held for a stop: each ends between two batches, and none begins (R61).

The JVM ends them (`jvm/ScriptQueries.java`). The script sees nothing of it: what waits for a query goes on waiting, and
a query that is started waits with its start, until the word of the job's owner. It is to go on, and all queries are
started again where they were, in the objects that the script has; or to end, and no query of it starts any more.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from runtime.taskexecutor.slot_process.causes import TaskError
from runtime.taskexecutor.slot_process.channel import Channel
from runtime.taskexecutor.slot_protocol.wire import FrameKind, decode_fields

if TYPE_CHECKING:
    from pyspark.sql.streaming.query import StreamingQuery, StreamingQueryManager

_WAIT_SECONDS = 0.5
_WORDS_MAX = 100
"""Of the owner that are kept: one operation holds at a time, and looks of those before may be on their way."""
_ENDED = (
    "the script has ended while its queries were held for a stop, which has failed, so the queries go on: the script "
    "runs again, for it may have seen that they were ended. Have it wait with query.awaitTermination(), "
    "spark.streams.awaitAnyTermination() or isActive, which are told nothing of a stop that fails"
)
_CANCELLED = "the queries of the script were held, and its task is cancelled"


class ScriptStoppedError(BaseException):
    """Raised where a script starts a query after its job was stopped: no handler of errors is meant for it."""


@dataclass(eq=False, slots=True)
class StartedQuery:
    """A query that the script has started. `called`: in what people read. `state`: what a later query has in common
    with it that goes on in its place, its name or the directory of its state; "" for one that has neither.

    `kept`: the name of its state, if the cluster keeps that. `begin` starts it again. `failed_seconds`: for how long it
    has been seen as failed. `was_stopped`: by the script, so that it does not go on. `earlier_runs`: their ids, of runs
    that were held: the script may have objects of its own of them, from `spark.streams`.
    """

    called: str
    state: str
    kept: str
    begin: Callable[[], StreamingQuery]
    query: StreamingQuery
    failed_seconds: float = 0.0
    was_stopped: bool = False
    earlier_runs: list[str] = field(default_factory=list)


class ScriptHold:
    """Of one attempt. `queries`: the JVM's side. `started`: what the script has started and is not forgotten."""

    def __init__(self, channel: Channel, queries: Callable[[], Any], started: list[StartedQuery]) -> None:
        self._channel = channel
        self._queries = queries
        self._started = started
        self._changes = threading.Condition()
        self._is_asked = False
        self._is_stopped = False
        self._words: dict[str, bool] = {}
        """Of the owner, by the hold: is its job stopped? A hold goes on for good."""
        self._resumed, self._restarted = 0, 0
        self._going_on = ""  # the hold after which the queries are to go on, once all of them have ended

    @property
    def is_stopped(self) -> bool:
        """True once the owner has said that the job is stopped."""
        return self._is_stopped

    # --- the start of a query -----------------------------------------------------------------------------

    def start(self, begin: Callable[[], StreamingQuery], called: str, state: str, kept: str) -> StreamingQuery:
        """Start a query, behind a hold that there is. Raises ScriptStoppedError, and what `begin` raises."""
        self._is_asked = True
        while str(self._queries().starts()):
            self._wait_for_word()
            if self._is_stopped:
                raise ScriptStoppedError
        with self._starting(kept) as made:
            query = begin()
            self._started.append(StartedQuery(called, state, kept, begin, query))  # before it can be held
            made.append(query)
        return query

    @contextmanager
    def _starting(self, kept: str) -> Iterator[list[StreamingQuery]]:
        """The JVM waits with a hold for the end of this."""
        made: list[StreamingQuery] = []
        try:
            yield made
        finally:
            self._queries().started(made[0]._jsq if made else None, kept)  # noqa: SLF001

    # --- the word of the owner ----------------------------------------------------------------------------

    def heed(self) -> None:
        """Look whether the owner has said something, and do so. Raises what a query raises that cannot go on.

        A word for a hold that there is not is kept: the look that holds may arrive in the JVM behind it.
        """
        is_new = self._take_words()
        if not is_new and not (self._words and self._is_asked):
            return
        with self._changes:
            hold = self._hold() if is_new else self._hold_if_known()
            if hold in self._words and not self._is_stopped:
                if self._words[hold]:
                    self._is_stopped = True
                else:
                    self._go_on(hold)
                self._changes.notify_all()

    def _take_words(self) -> bool:
        """True if the owner has said something."""
        is_new = False
        while (frame := self._channel.take_if_there(FrameKind.RELEASE)) is not None:
            is_new = True
            word = decode_fields(frame.payload)
            hold = str(word.get("hold", ""))
            self._words.pop(hold, None)
            self._words[hold] = bool(word.get("finishes", False))
            if len(self._words) > _WORDS_MAX:
                del self._words[next(iter(self._words))]
        return is_new

    def _hold_if_known(self) -> str:
        try:
            return self._hold()
        except Exception:  # noqa: BLE001 - Spark is lost: what the script does next fails by itself (R36)
            return ""

    def _go_on(self, hold: str) -> None:
        self._going_on = hold
        self.go_on()

    def go_on(self) -> None:
        """Start again what a hold that is over has ended, if there is one: none of it while a batch of it runs, which
        would be refused. To be called again and again. Raises what a query raises that cannot go on."""
        with self._changes:
            if self._going_on and self._hold() != self._going_on:
                self._going_on = ""  # another hold is there, which has these queries, too
            held = [one for one in self._started if not one.was_stopped and self._is_held(one.query)]
            if not self._going_on or any(_is_in_batch(one.query) for one in held):
                return
            self._queries().release(self._going_on, len(held))
            self._going_on = ""
            self._resumed += 1
            self._restarted += len(held)
            for one in held:
                one.earlier_runs.append(str(one.query.runId))
                with self._starting(one.kept) as made:
                    one.query._jsq = one.begin()._jsq  # noqa: SLF001 - the script has this object
                    made.append(one.query)
            self._changes.notify_all()

    def wait_for_word(self) -> None:
        """Wait while there is a hold, for the script has ended.

        Raises TaskError for a cancelled task, and where queries go on.
        """
        with self._changes:
            before = self._restarted
        while self._is_asked and self._hold() and not self._is_stopped:
            self._wait_for_word()
        with self._changes:
            if self._restarted > before and not self._is_stopped:
                raise TaskError(_ENDED)

    def _wait_for_word(self, seconds: float | None = None) -> None:
        with self._changes:
            if self._hold() and not self._is_stopped:
                self._changes.wait(min(_WAIT_SECONDS, _WAIT_SECONDS if seconds is None else seconds))
        if self._channel.is_cancelled:
            raise TaskError(_CANCELLED)

    def _hold(self) -> str:
        return str(self._queries().hold())

    def _is_held(self, query: StreamingQuery) -> bool:
        return bool(self._queries().isHeld(query._jsq))  # noqa: SLF001

    # --- what the script sees -----------------------------------------------------------------------------

    @contextmanager
    def in_the_way(self) -> Iterator[None]:
        """What waits for a query, or looks whether it runs, is told what holds without the hold."""
        with self._queries_in_the_way(), self._managers_in_the_way():
            yield

    @contextmanager
    def _queries_in_the_way(self) -> Iterator[None]:
        from pyspark.sql.streaming.query import StreamingQuery

        is_active, await_one, stop = StreamingQuery.isActive, StreamingQuery.awaitTermination, StreamingQuery.stop
        self._runs = is_active.fget  # type: ignore[attr-defined]

        def awaits_one(query: StreamingQuery, timeout: float | None = None) -> bool | None:
            def wait(left: float | None) -> bool | None:
                return await_one(self._now_of(query), _of_spark(left))

            return self._awaited(wait, lambda: self._goes_on(query), timeout)

        def runs(query: StreamingQuery) -> bool:
            return self._runs(query) or self._goes_on(query)

        def stops(query: StreamingQuery) -> None:
            with self._changes:
                for one in self._started_of(query):
                    one.was_stopped = True
                now = self._now_of(query)
            stop(now)

        with _replaced(StreamingQuery, isActive=property(runs), awaitTermination=awaits_one, stop=stops):
            yield

    @contextmanager
    def _managers_in_the_way(self) -> Iterator[None]:
        from pyspark.sql.streaming.query import StreamingQueryManager

        await_any, get = StreamingQueryManager.awaitAnyTermination, StreamingQueryManager.get
        active = StreamingQueryManager.active.fget  # type: ignore[attr-defined]

        def awaits_any(manager: StreamingQueryManager, timeout: float | None = None) -> bool | None:
            before = self._resumed

            def goes_on() -> bool:
                nonlocal before
                was, before = before, self._resumed
                return was != before or bool(self._hold())

            return self._awaited(lambda left: await_any(manager, _of_spark(left)), goes_on, timeout)

        def all_active(manager: StreamingQueryManager) -> list[StreamingQuery]:
            with self._changes:
                return self._known(manager, active(manager))

        def gets(manager: StreamingQueryManager, id: str) -> StreamingQuery | None:  # noqa: A002 - Spark's name
            with self._changes:
                found = get(manager, id)
                known = self._known(manager, [] if found is None else [found])
                return next((one for one in known if str(one.id) == str(id)), found)

        with _replaced(StreamingQueryManager, awaitAnyTermination=awaits_any, active=property(all_active), get=gets):
            yield

    def _awaited(
        self, wait: Callable[[float | None], bool | None], goes_on: Callable[[], bool], timeout: float | None
    ) -> bool | None:
        """`wait`, and again as often as what has ended goes on: it was held."""
        until = None if timeout is None else _now() + timeout
        left = timeout
        while True:
            ended = wait(left)
            if ended is False or self._is_stopped or not goes_on():
                return ended
            left = None if until is None else until - _now()
            self._wait_for_word(left)
            left = None if until is None else until - _now()
            if left is not None and left <= 0:
                return False

    def _goes_on(self, query: StreamingQuery) -> bool:
        """Of one that has ended: is it held, or was it started again meanwhile?"""
        with self._changes:
            if self._is_stopped or any(one.was_stopped for one in self._started_of(query)):
                return False
            now = self._now_of(query)
            return self._is_held(now) or bool(self._runs(now))

    def _started_of(self, query: StreamingQuery) -> list[StartedQuery]:
        """What an object of the script stands for, which may be of an earlier run; one at most."""
        if not self._started:
            return []
        run = str(query.runId)
        found = [one for one in self._started if one.query is query or run in one.earlier_runs]
        return found or [one for one in self._started if run == str(one.query.runId)]

    def _now_of(self, query: StreamingQuery) -> StreamingQuery:
        """The object of the run that there is now."""
        with self._changes:
            return next((one.query for one in self._started_of(query)), query)

    def _known(self, manager: StreamingQueryManager, active: list[StreamingQuery]) -> list[StreamingQuery]:
        """The active queries of a session, and those that are held, in the objects that go on."""
        known = {str(one.id): self._now_of(one) for one in active}
        for one in [] if self._is_stopped else self._started:
            java = one.query._jsq  # noqa: SLF001 - PySpark has no other way to its session
            if not one.was_stopped and self._is_held(one.query) and java.sparkSession().streams() == manager._jsqm:  # noqa: SLF001
                known[str(one.query.id)] = one.query
        return [*known.values()]


@contextmanager
def _replaced(owner: type, **replacements: Any) -> Iterator[None]:
    originals = {name: getattr(owner, name) for name in replacements}
    for name, replacement in replacements.items():
        setattr(owner, name, replacement)
    try:
        yield
    finally:
        for name, original in originals.items():
            setattr(owner, name, original)


def _is_in_batch(query: StreamingQuery) -> bool:
    """Of one that is held: does Spark know it yet, which says at once that it is not active?"""
    java = query._jsq  # noqa: SLF001 - PySpark has no other way to its session
    return java.sparkSession().streams().get(java.id()) is not None


def _now() -> float:
    return time.monotonic()  # noqa: TID251 - a slot process has no loop


def _of_spark(seconds: float | None) -> Any:
    """PySpark takes fractions of seconds, and says otherwise."""
    return seconds
