"""Flink's bodies of bounds and rescales, from what an archive has of them."""

from __future__ import annotations

from collections.abc import Sequence

from runtime.executiongraph.archived_rescales import (
    NOT_TOLD,
    ArchivedRescales,
    Rescale,
    RescaledVertex,
    RescaleState,
    StateSpan,
)
from runtime.rest.bodies.schema import rescales as schema

_QUANTILES = (0.5, 0.9, 0.95, 0.99, 0.999)
_NAN = "NaN"


def requirements(of: ArchivedRescales) -> schema.BoundsByVertex:
    """The body of GET /jobs/:id/resource-requirements."""
    return {one.vertex_id: {"parallelism": {"lowerBound": one.lower, "upperBound": one.upper}} for one in of.bounds}


def overview(of: ArchivedRescales) -> schema.RescalesOverview:
    """The body of GET /jobs/:id/rescales/overview."""
    return {
        "rescalesCounts": _counts(of),
        "latest": {
            "completed": _latest(of, RescaleState.COMPLETED),
            "failed": _latest(of, RescaleState.FAILED),
            "ignored": None,
        },
    }


def history(of: ArchivedRescales) -> list[schema.Rescale]:
    """The body of GET /jobs/:id/rescales/history."""
    return [rescale(one) for one in of.history]


def summary(of: ArchivedRescales) -> schema.RescalesSummary:
    """The body of GET /jobs/:id/rescales/summary."""
    ended = [one for one in of.history if one.state is not None]
    durations = {state: [_duration(one) for one in ended if one.state is state] for state in RescaleState}
    pauses = [one.pause_millis for one in ended if one.pause_millis != NOT_TOLD]
    return {
        "rescalesCounts": _counts(of),
        "rescalesDurationStatsInMillis": _stats([_duration(one) for one in ended]),
        "completedRescalesDurationStatsInMillis": _stats(durations[RescaleState.COMPLETED]),
        "ignoredRescalesDurationStatsInMillis": _stats([]),
        "failedRescalesDurationStatsInMillis": _stats(durations[RescaleState.FAILED]),
        "pauseStatsInMillis": _stats(pauses),
    }


def configuration(of: ArchivedRescales) -> schema.RescaleConfiguration:
    """The body of GET /jobs/:id/rescales/config."""
    settings = of.settings
    return {
        "rescaleHistoryMax": settings.history_max,
        "schedulerExecutionMode": "REACTIVE" if settings.is_reactive else None,
        "submissionResourceWaitTimeoutInMillis": settings.resource_wait_millis,
        "submissionResourceStabilizationTimeoutInMillis": settings.submission_stabilization_millis,
        "slotIdleTimeoutInMillis": None,
        "executingCooldownTimeoutInMillis": settings.cooldown_millis,
        "executingResourceStabilizationTimeoutInMillis": settings.executing_stabilization_millis,
        "maximumDelayForTriggeringRescaleInMillis": None,
        "rescaleOnFailedCheckpointCount": None,
    }


def rescale(one: Rescale) -> schema.Rescale:
    """The body of GET /jobs/:id/rescales/details/:uuid."""
    return {
        "rescaleUuid": one.rescale_id,
        "resourceRequirementsUuid": one.requirements_id,
        "rescaleAttemptId": one.number,
        "vertices": {vertex.vertex_id: _vertex(vertex) for vertex in one.vertices},
        "slots": {
            group: _slots(group, one.vertices) for group in {vertex.slot_sharing_group for vertex in one.vertices}
        },
        "schedulerStates": [_span(span) for span in one.states],
        "startTimestampInMillis": one.start_millis,
        "endTimestampInMillis": _told(one.end_millis),
        "terminalState": one.state.value if one.state is not None else None,
        "triggerCause": one.cause.value,
        "terminatedReason": one.reason.value if one.reason is not None else None,
        "pauseInMillis": _told(one.pause_millis),
    }


def _vertex(vertex: RescaledVertex) -> schema.RescaledVertex:
    return {
        "jobVertexId": vertex.vertex_id,
        "jobVertexName": vertex.name,
        "slotSharingGroupId": vertex.slot_sharing_group,
        "slotSharingGroupName": vertex.slot_sharing_group,
        "desiredParallelism": vertex.upper,
        "sufficientParallelism": vertex.lower,
        "preRescaleParallelism": _told(vertex.before),
        "postRescaleParallelism": vertex.after,
    }


def _slots(group: str, vertices: Sequence[RescaledVertex]) -> schema.RescaledSlots:
    members = [vertex for vertex in vertices if vertex.slot_sharing_group == group]
    before = None if any(one.before == NOT_TOLD for one in members) else sum(one.before for one in members)
    return {
        "slotSharingGroupId": group,
        "slotSharingGroupName": group,
        "desiredSlots": sum(one.upper for one in members),
        "minimalRequiredSlots": sum(one.lower for one in members),
        "preRescaleSlots": before,
        "postRescaleSlots": sum(one.after for one in members),
    }


def _span(span: StateSpan) -> schema.StateSpan:
    is_over = span.leave_millis != NOT_TOLD
    return {
        "state": span.state,
        "enterTimestampInMillis": span.enter_millis,
        "leaveTimestampInMillis": _told(span.leave_millis),
        "durationInMillis": span.leave_millis - span.enter_millis if is_over else None,
        "stringifiedException": None,
    }


def _counts(of: ArchivedRescales) -> schema.RescalesCounts:
    return {"ignored": 0, "inProgress": of.in_progress, "completed": of.completed, "failed": of.failed}


def _latest(of: ArchivedRescales, state: RescaleState) -> schema.Rescale | None:
    return next((rescale(one) for one in of.history if one.state is state), None)


def _duration(one: Rescale) -> int:
    return max(0, one.end_millis - one.start_millis)


def _stats(of: Sequence[int]) -> schema.RescaleStats:
    ordered = sorted(of)
    p50, p90, p95, p99, p999 = (_quantile(ordered, share) for share in _QUANTILES)
    return {
        "min": ordered[0] if ordered else 0,
        "max": ordered[-1] if ordered else 0,
        "avg": sum(ordered) // len(ordered) if ordered else 0,
        "p50": p50,
        "p90": p90,
        "p95": p95,
        "p99": p99,
        "p999": p999,
    }


def _quantile(ordered: Sequence[int], share: float) -> float | str:
    return float(ordered[min(len(ordered) - 1, int(share * len(ordered)))]) if ordered else _NAN


def _told(number: int) -> int | None:
    return None if number == NOT_TOLD else number
