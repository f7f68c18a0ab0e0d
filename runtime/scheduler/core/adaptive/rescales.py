"""The rescales of one job: the one that goes on, and a bounded history. What is told here is durable in events."""

from __future__ import annotations

import hashlib
from collections import deque
from collections.abc import Mapping
from dataclasses import replace

from runtime.common.ids import VertexId
from runtime.executiongraph.archived_rescales import (
    NOT_TOLD,
    ArchivedRescales,
    Rescale,
    RescaleCause,
    RescaledVertex,
    RescaleReason,
    RescaleState,
    StateSpan,
)
from runtime.executiongraph.core.graph import ExecutionGraph
from runtime.gateways.rescales import VertexBounds
from runtime.scheduler.core.adaptive.settings import AdaptiveSchedulerSettings

STATES_MAX = 20
"""States of one rescale that are kept: it passes through three or four."""


class Rescales:
    """`current`: the rescale that goes on, None for none."""

    __slots__ = ("_completed", "_failed", "_history", "_job", "_settings", "_states", "current", "last_number")

    def __init__(self, job: str, settings: AdaptiveSchedulerSettings) -> None:
        self._job = job
        self._settings = settings
        self._history: deque[Rescale] = deque(maxlen=settings.history_max)
        self._completed = 0
        self._failed = 0
        self._states: list[StateSpan] = []
        self.last_number = 0
        self.current: Rescale | None = None

    def entered(self, state: str, at_millis: int) -> None:
        """The scheduler is in another state."""
        if self._states:
            self._states[-1] = replace(self._states[-1], leave_millis=at_millis)
        self._states = [*self._states[1 - STATES_MAX :], StateSpan(state, at_millis)]

    def begin(
        self,
        graph: ExecutionGraph,
        bounds: Mapping[VertexId, VertexBounds],
        parallelism: Mapping[VertexId, int],
        cause: RescaleCause,
        at_millis: int,
    ) -> Rescale:
        """These vertices get another parallelism. The states that led to it are part of it."""
        self.last_number += 1
        self.current = Rescale(
            rescale_id=_digest(self._job, f"{graph.epoch}-{self.last_number}"),
            requirements_id=_digest(
                self._job, repr(sorted((one.vertex_id, one.lower, one.upper) for one in bounds.values()))
            ),
            number=self.last_number,
            cause=cause,
            start_millis=self._states[-1].enter_millis if self._states else at_millis,
            vertices=tuple(
                _vertex(graph, bounds[vertex_id], count, is_first=cause is RescaleCause.INITIAL_SCHEDULE)
                for vertex_id, count in parallelism.items()
            ),
        )
        if cause is not RescaleCause.INITIAL_SCHEDULE:
            self.current = replace(self.current, start_millis=at_millis)
            self._states = self._states[-1:]
        return self.current

    def amend(self, parallelism: Mapping[VertexId, int], bounds: Mapping[VertexId, VertexBounds]) -> None:
        """The rescale that goes on gives its vertices other numbers of subtasks, by other bounds or slots."""
        assert self.current is not None, self._job
        vertices = tuple(
            replace(
                one,
                lower=bounds[one.vertex_id].lower,
                upper=bounds[one.vertex_id].upper,
                after=parallelism[one.vertex_id],
            )
            for one in self.current.vertices
        )
        self.current = replace(self.current, vertices=vertices)

    def end(self, reason: RescaleReason, at_millis: int, pause_millis: int = NOT_TOLD) -> Rescale | None:
        """The rescale that goes on has ended. Returns its record, None without one."""
        if self.current is None:
            return None
        is_completed = reason is RescaleReason.SUCCEEDED
        ended = replace(
            self.current,
            states=tuple(self._states),
            end_millis=at_millis,
            state=RescaleState.COMPLETED if is_completed else RescaleState.FAILED,
            reason=reason,
            pause_millis=pause_millis,
        )
        self.current = None
        self._states = self._states[-1:]
        self.ended(ended)
        return ended

    def begun(self, rescale: Rescale) -> None:
        """An earlier owner has begun this one."""
        self.last_number = max(self.last_number, rescale.number)
        self.current = rescale

    def ended(self, rescale: Rescale) -> None:
        """A rescale has ended, under this owner or an earlier one."""
        if self.current is not None and self.current.number == rescale.number:
            self.current = None
        self.last_number = max(self.last_number, rescale.number)
        self._completed += rescale.state is RescaleState.COMPLETED
        self._failed += rescale.state is RescaleState.FAILED
        self._history.appendleft(rescale)

    def archived(self, state: str, bounds: tuple[VertexBounds, ...]) -> ArchivedRescales:
        """For people."""
        going_on = () if self.current is None else (replace(self.current, states=tuple(self._states)),)
        return ArchivedRescales(
            settings=self._settings.shown(),
            state=state,
            bounds=bounds,
            history=(*going_on, *self._history)[: self._settings.history_max],
            in_progress=len(going_on),
            completed=self._completed,
            failed=self._failed,
        )


def _vertex(graph: ExecutionGraph, bounds: VertexBounds, after: int, *, is_first: bool) -> RescaledVertex:
    vertex = graph.vertices[bounds.vertex_id]
    before = NOT_TOLD if is_first else vertex.parallelism
    group = vertex.vertex.slot_sharing_group
    return RescaledVertex(vertex.id, vertex.vertex.name, group, bounds.lower, bounds.upper, before, after)


def _digest(job: str, of: str) -> str:
    return hashlib.sha256(f"{job} {of}".encode()).hexdigest()[:32]
