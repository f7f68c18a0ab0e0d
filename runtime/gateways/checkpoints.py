"""What a checkpoint holds of one query, as it is decided about, stored and shown."""

from __future__ import annotations

from dataclasses import dataclass

from runtime.common.ids import VertexId
from runtime.common.stream_progress import NO_BATCH


@dataclass(frozen=True, slots=True)
class QueryPosition:
    """How far one query has come: the number of its last committed batch, NO_BATCH before the first.

    `query_id` is Spark's, which stays with the directory; `state_bytes` is what its state takes in memory.
    """

    vertex_id: VertexId
    subtask_index: int
    uid: str
    query_id: str
    batch_id: int = NO_BATCH
    state_rows: int = 0
    state_bytes: int = 0
    acknowledged_millis: int = 0
