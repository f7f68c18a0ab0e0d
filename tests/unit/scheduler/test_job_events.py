"""The durable events of a job: what a newer version must still read, byte by byte.

A field with a default changes the form and not the version: an older release reads it too (D-029).
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from runtime.common.accumulators import AccumulatorKind, UserAccumulator
from runtime.common.exchange import InputShare
from runtime.common.ids import ExecutionAttemptId, JobId, PartitionId, VertexId
from runtime.common.states import ExecutionState
from runtime.executiongraph.archived import ArchivedException
from runtime.executiongraph.archived_rescales import (
    Rescale,
    RescaleCause,
    RescaledVertex,
    RescaleReason,
    RescaleState,
    StateSpan,
)
from runtime.executiongraph.core.execution import TaskManagerLocation
from runtime.gateways.rescales import VertexBounds
from runtime.gateways.spark_work import SparkStage, SparkWork
from runtime.gateways.task import (
    FailureInfo,
    Fault,
    OutputDirectory,
    PartitionDescriptor,
    PartitionFile,
    PartitionKind,
    TaskMetrics,
)
from runtime.scheduler.core.job_events import (
    EVENTS_SCHEMA_VERSION,
    AttemptFinished,
    BatchCommitted,
    FailureHandled,
    HandedSplit,
    JobEvent,
    JobRescaled,
    JobStarted,
    OutputsCommitting,
    ParallelismDecided,
    PartitionsLost,
    PartitionsReleased,
    RequirementsChanged,
    RescaleEnded,
    SpeculativeAttempts,
    SplitsHandedOut,
    SubtasksReset,
    decode_events,
    encode_events,
)
from tests.kit.control_plane.job_master_driver import location

VERTEX = VertexId("a" * 32)
ATTEMPT = ExecutionAttemptId(JobId("1" * 32), VERTEX, 3, 7, 2)
PARTITION = PartitionId(ATTEMPT, 1)
PLACE: TaskManagerLocation = location(1)

FINISHED = AttemptFinished(
    attempt_id=ATTEMPT,
    ordinal=2,
    location=PLACE,
    timestamps={ExecutionState.CREATED: 1, ExecutionState.FINISHED: 9},
    value='{"gr\u00fcn": 1}'.encode(),
    partitions=(
        PartitionDescriptor(PARTITION, PartitionKind.PARQUET, "d", "{}", (PartitionFile("d/f", 10, 1, -1),), b""),
    ),
    outputs=(OutputDirectory("base", "hidden"),),
    metrics=TaskMetrics(read_bytes=1),
)
FAILURE = FailureInfo("ValueError", "no", "stack", "USER", is_recoverable=True, timestamp_millis=5)
EVENTS: dict[str, tuple[JobEvent, ...]] = {
    "1": (FINISHED, PartitionsReleased((PARTITION,))),
    "2": (
        FINISHED,
        PartitionsReleased((PARTITION,)),
        FailureHandled(
            ArchivedException(FAILURE, "read (1/1) - execution #0", "host:1", "tm-1", labels={"type": "USER"}),
            at_millis=5,
            is_concurrent=False,
            backoff_seconds=1.5,
        ),
        PartitionsLost((PARTITION,)),
        SubtasksReset(VERTEX, (0, 3), (1, 3)),
    ),
}
EVENTS["3"] = (
    JobStarted(at_millis=4),
    *(replace(event, attempts=(ATTEMPT,)) if isinstance(event, FailureHandled) else event for event in EVENTS["2"]),
)
EVENTS["3-fault"] = tuple(
    replace(event, exception=replace(event.exception, failure=replace(FAILURE, fault=Fault.USER)))
    if isinstance(event, FailureHandled)
    else event
    for event in EVENTS["3"]
)
EVENTS["4"] = (
    *(
        replace(event, outputs=(OutputDirectory("base", "hidden", "overwrite"),))
        if isinstance(event, AttemptFinished)
        else event
        for event in EVENTS["3-fault"]
    ),
    OutputsCommitting(),
)
EVENTS["4-unbegun"] = tuple(
    replace(event, unbegun=(3,)) if isinstance(event, SubtasksReset) else event for event in EVENTS["4"]
)
EVENTS["4-deployed"] = tuple(
    replace(event, deployed_millis=(3,)) if isinstance(event, FailureHandled) else event
    for event in EVENTS["4-unbegun"]
)
COUNTED = UserAccumulator("rows", AccumulatorKind.COUNTER, 7)
WORK = SparkWork(1, 0, 1, SparkStage(tasks_total=2), (SparkStage(3, name="count", state="COMPLETE", tasks_total=2),))
EVENTS["4-counted"] = tuple(
    replace(event, accumulators=(COUNTED,), spark_work=WORK) if isinstance(event, AttemptFinished) else event
    for event in EVENTS["4-deployed"]
)
EVENTS["5"] = (*EVENTS["4-counted"], BatchCommitted(VERTEX, 1, 41))
EVENTS["6"] = (
    *EVENTS["5"],
    ParallelismDecided(VERTEX, (InputShare(0, 7), InputShare(7, 8, 1, 3, 0)), (1,), "2 for 30.0 MiB and 9 rows"),
)
EVENTS["7"] = (*EVENTS["6"], SpeculativeAttempts(VERTEX, (0, 2), (1, 3)))
RESCALE = Rescale(
    rescale_id="b" * 32,
    requirements_id="c" * 32,
    number=2,
    cause=RescaleCause.NEW_RESOURCE_AVAILABLE,
    start_millis=3,
    vertices=(RescaledVertex(VERTEX, "read", "default", 1, 4, 1, 2),),
)
EVENTS["7-rescaled"] = (
    *EVENTS["7"],
    RequirementsChanged((VertexBounds(VERTEX, 1, 4),)),
    JobRescaled(RESCALE, ((1, 0),), (VERTEX,)),
    RescaleEnded(
        replace(
            RESCALE,
            states=(StateSpan("Restarting", 3, 4),),
            end_millis=9,
            state=RescaleState.COMPLETED,
            reason=RescaleReason.SUCCEEDED,
            pause_millis=6,
        )
    ),
)
EVENTS["8"] = (*EVENTS["7-rescaled"], SplitsHandedOut(VERTEX, (HandedSplit(ATTEMPT, 0, 4), HandedSplit(ATTEMPT, 1, 2))))


def recorded(form: str) -> bytes:
    return Path(__file__).with_name(f"job_events.v{form}.json").read_bytes().strip()


@pytest.mark.parametrize("form", EVENTS)
def test_what_every_version_has_stored_is_read(form: str) -> None:
    assert decode_events(recorded(form)) == EVENTS[form]


def test_the_stored_form_is_recorded() -> None:
    latest = list(EVENTS)[-1]
    assert latest.partition("-")[0] == str(EVENTS_SCHEMA_VERSION)
    assert encode_events(EVENTS[latest]) == recorded(latest)
