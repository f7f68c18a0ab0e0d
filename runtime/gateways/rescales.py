"""How many subtasks the vertices of a running job may have, and how that is changed."""

from __future__ import annotations

from dataclasses import dataclass

from runtime.common.ids import JobId, VertexId


@dataclass(frozen=True, slots=True)
class VertexBounds:
    """A vertex has at least `lower` subtasks when it runs, and at most `upper`."""

    vertex_id: VertexId
    lower: int
    upper: int


@dataclass(frozen=True, slots=True)
class UpdateRequirements:
    """A client wants other bounds for these vertices of a job; the others keep theirs. `request_id` is of this call."""

    job_id: JobId
    request_id: str
    bounds: tuple[VertexBounds, ...]


@dataclass(frozen=True, slots=True)
class RequirementsUpdated:
    """They are durable, and hold from now on: the job is rescaled when its slots allow it."""
