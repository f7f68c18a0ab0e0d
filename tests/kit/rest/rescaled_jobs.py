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
