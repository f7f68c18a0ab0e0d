"""Several queries in one slot process: a query that can be rescaled runs once for each split (R68).

Each sees itself as the only subtask of its split: `ctx.splits` has one, `ctx.subtask_index` is the number of the split,
and its state lies where that subtask would have it. So whole queries move when the parallelism of the vertex changes,
and no state is parted or joined. All queries of the process are held together (`script_hold.py`, R61).
"""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Sequence
from copy import copy
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from runtime.jobgraph.graph import Operator
from runtime.jobgraph.splits import numbered_query
from runtime.taskexecutor.slot_process.attached_spark import AttachedSpark
from runtime.taskexecutor.slot_process.causes import TaskError
from runtime.taskexecutor.slot_process.channel import Channel
from runtime.taskexecutor.slot_process.restoring import sources_of, warn_of_others
from runtime.taskexecutor.slot_process.script_hold import ScriptHold, StartedQuery
from runtime.taskexecutor.slot_process.streaming import PreparedQuery
from runtime.taskexecutor.slot_process.task_context import AttemptState, SlotTaskContext
from runtime.taskexecutor.slot_protocol.wire import WorkOrder

if TYPE_CHECKING:
    from pyspark.sql.streaming.query import StreamingQuery

Function = Callable[..., Any]

_LOOK_SECONDS: Any = 0.5
"""Parts of a second, which PySpark's signature does not know."""
_PAUSE_SECONDS = 0.05
_END_TIMEOUT_MILLIS = 10_000


class SplitQueries:
    """Those of one attempt, in the order of its splits."""

    def __init__(
        self,
        operators: Sequence[Operator],
        functions: Sequence[Function],
        state: AttemptState,
        order: WorkOrder,
        attached: AttachedSpark,
        channel: Channel,
    ) -> None:
        self._operators = operators
        self._functions = functions
        self._state = state
        self._order = order
        self._attached = attached
        self._channel = channel
        self._started: list[StartedQuery] = []
        self._runs: list[str] = []
        self._pause = threading.Event()
        """Never set."""
        self._unlooked: dict[str, tuple[str, ...]] = {}
        """What queries have read in their savepoint that have not told yet what they read now, by their names."""
        self._hold = ScriptHold(channel, lambda: attached.script_queries, self._started)

    def run(self) -> dict[str, int]:
        """Run all to their end, which is a stop of the job: `{"batches", "rows", "last_batch"}` of this attempt.

        Raises TaskError for functions that make no query, and what has ended a query.
        """
        ended = {"batches": 0, "rows": 0, "last_batch": -1}
        if self._order.is_stopped:
            return ended  # R61: what is behind the savepoint belongs to whoever is restored from it
        self._attached.follow_streams()
        prepared = [self._prepared(number) for number in range(len(self._order.queries))]
        for one in prepared:
            one.require_state()
        for one, share in zip(prepared, self._order.queries, strict=True):
            self._start(one, share.number)
        while not self._hold.is_stopped:
            self._look()
        for run_id in self._runs:
            batches, rows, last_batch = self._attached.ended_stream(run_id, _END_TIMEOUT_MILLIS)
            ended["batches"] += batches
            ended["rows"] += rows
            ended["last_batch"] = max(ended["last_batch"], last_batch)
        return ended

    def _prepared(self, place: int) -> PreparedQuery:
        order = _order_of(self._order, place)
        state = copy(self._state)
        state.order, state.splits = order, tuple(json.loads(order.splits))
        contexts = [SlotTaskContext(state, operator.name) for operator in self._operators]
        return PreparedQuery(self._operators, self._functions, contexts, (), order, self._attached)

    def _start(self, prepared: PreparedQuery, number: int) -> None:
        called = numbered_query(number, prepared.name)

        def begin() -> StreamingQuery:
            started = prepared.start(prepared.trigger, called)
            self._runs.append(str(started.query.runId))
            if started.sources:
                self._unlooked[called] = started.sources
            return started.query

        self._hold.start(begin, called, called, str(number))

    def _look(self) -> None:
        """Look at all queries once, for half a second. Raises what has ended one, TaskError for a cancel."""
        if self._channel.is_cancelled:
            message = "the task is cancelled"
            raise TaskError(message)
        self._hold.heed()
        self._hold.go_on()
        self._look_at_sources()
        ended = [one for one in self._started if not one.query.isActive]
        for one in ended:
            if not self._attached.script_queries.isHeld(one.query._jsq):  # noqa: SLF001 - it has no other name
                self._blame(one)
        running = [one for one in self._started if one not in ended]
        if running and not ended:
            running[0].query.awaitTermination(_LOOK_SECONDS)
        else:
            self._pause.wait(_PAUSE_SECONDS)

    def _blame(self, one: StartedQuery) -> None:
        if self._hold.is_stopped or one.query.isActive:
            return  # it was started again meanwhile
        if (failure := one.query.exception()) is not None:
            raise failure
        if self._channel.is_cancelled:
            return
        message = (
            f"the streaming query {one.called!r} has ended, and its trigger lets it run for ever: code of the job has "
            "stopped it. End queries by `flinklike stop`"
        )
        raise TaskError(message)

    def _look_at_sources(self) -> None:
        for one in self._started:
            before = self._unlooked.get(one.called)
            if before and (now := sources_of(one.query)):
                del self._unlooked[one.called]
                warn_of_others(one.called, before, now)


def _order_of(order: WorkOrder, place: int) -> WorkOrder:
    """What the query of one split is told: it is a subtask by itself."""
    share = order.queries[place]
    split = json.loads(order.splits)[place]
    return replace(
        order,
        attempt_id=replace(order.attempt_id, subtask_index=share.number),
        parallelism=order.queries_total,
        splits=json.dumps([split]).encode(),
        committed_batch=share.committed_batch,
        queries=(),
    )
