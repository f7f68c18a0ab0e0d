"""Streaming jobs for tests: their JobGraph, and what their queries tell."""

from __future__ import annotations

from dataclasses import replace

from runtime.common.stream_progress import StreamPhase, StreamProgress
from runtime.jobgraph.graph import FunctionReference, JobGraph, JobVertex, Operator, OperatorKind, vertex_id_of
from runtime.jobgraph.streams import StreamSinkSpec, StreamTrigger, TriggerKind
from tests.kit.control_plane.job_graphs import graph

_CODE = FunctionReference(target="jobs.code:run")
PROGRESS = StreamProgress(
    query_id="0b1f3a52-6c07-4f7e-9a0a-8a3f0f6a3c11",
    run_id="f2d3c9c4-6a51-4c9d-8d4f-2f0f0c8f7b10",
    batch_id=41,
    batches=7,
    rows=7000,
    input_rows_per_second=100.5,
    processed_rows_per_second=250.0,
    trigger_millis=340,
    phases=(StreamPhase("addBatch", 300), StreamPhase("walCommit", 20)),
    state_rows=12,
    state_bytes=4096,
    watermark_millis=1_700_000_000_000,
    backlog=3,
    progressed_millis=2000,
    has_triggered=True,
)


def query(uid: str, *, parallelism: int = 1, ends: bool = False, splits: int = 0) -> JobVertex:
    """A vertex that is a streaming query, with so many splits."""
    trigger = StreamTrigger(kind=TriggerKind.AVAILABLE_NOW) if ends else None
    operators = (
        Operator(name=f"read {uid}", kind=OperatorKind.STREAM_SOURCE, code=_CODE, inputs=()),
        Operator(
            name=uid,
            kind=OperatorKind.STREAM_SINK,
            code=_CODE,
            inputs=(0,),
            stream_sink=StreamSinkSpec(uid=uid, trigger=trigger),
        ),
    )
    name = f"read {uid} -> {uid}"
    return JobVertex(
        id=vertex_id_of(name),
        name=name,
        operators=operators,
        parallelism=parallelism,
        splits=tuple(f"split {number}" for number in range(splits)) or None,
    )


def streaming_job(*uids: str, parallelism: int = 1, ends: bool = False) -> JobGraph:
    """A job of these queries."""
    return graph(*(query(uid, parallelism=parallelism, ends=ends) for uid in uids))


def told(**changes: object) -> StreamProgress:
    """What a query tells, with other fields."""
    return replace(PROGRESS, **changes)  # type: ignore[arg-type]
