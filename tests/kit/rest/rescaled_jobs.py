"""What an archive has of the rescales of a job."""

from __future__ import annotations

from dataclasses import replace

from runtime.common.ids import VertexId
from runtime.executiongraph.archived_rescales import (
    ArchivedRescales,
    Rescale,
    RescaleCause,
    RescaledVertex,
    RescaleReason,
    RescaleState,
    StateSpan,
)
from runtime.gateways.rescales import VertexBounds
from runtime.scheduler.core.adaptive.settings import AdaptiveSchedulerSettings

VERTEX = VertexId(f"{1:032x}")
VERTICES = (RescaledVertex(VERTEX, "orders -> table", "default", 1, 4, 1, 3),)
FIRST = Rescale(
    "a" * 32,
    "b" * 32,
    1,
    RescaleCause.INITIAL_SCHEDULE,
    1000,
    (replace(VERTICES[0], before=-1, after=1),),
    (StateSpan("WaitingForResources", 1000, 1500), StateSpan("Executing", 1600)),
    end_millis=2000,
    state=RescaleState.COMPLETED,
    reason=RescaleReason.SUCCEEDED,
    pause_millis=0,
)
SECOND = replace(
    FIRST,
    rescale_id="e" * 32,
    number=2,
    cause=RescaleCause.NEW_RESOURCE_AVAILABLE,
    vertices=VERTICES,
    start_millis=3000,
    end_millis=4000,
    pause_millis=700,
)
THIRD = replace(SECOND, rescale_id="d" * 32, number=3, end_millis=-1, state=None, reason=None, pause_millis=-1)
RESCALES = ArchivedRescales(
    AdaptiveSchedulerSettings().shown(),
    "Executing",
    (VertexBounds(VERTEX, 1, 4),),
    (THIRD, SECOND, FIRST),
    in_progress=1,
    completed=2,
)


def rescales_at(millis: int) -> ArchivedRescales:
    """As RESCALES, but that they began at `millis`, and followed each other after half a minute."""
    moved = [
        _moved(one, millis + 30_000 * index - one.start_millis) for index, one in enumerate((FIRST, SECOND, THIRD))
    ]
    return replace(RESCALES, history=(*reversed(moved),))


def _moved(one: Rescale, by: int) -> Rescale:
    states = tuple(
        replace(
            span,
            enter_millis=span.enter_millis + by,
            leave_millis=-1 if span.leave_millis < 0 else span.leave_millis + by,
        )
        for span in one.states
    )
    end = one.end_millis + by if one.end_millis >= 0 else -1
    return replace(one, start_millis=one.start_millis + by, end_millis=end, states=states)
