"""What a job is started from: a savepoint, and how it is dealt with (Flink's SavepointRestoreSettings)."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from enum import Enum
from typing import Annotated

from pydantic import Field, TypeAdapter, ValidationError

from runtime.common.errors import InvalidInputError
from runtime.jobgraph.code import JobGraphModel

PATH_LENGTH_MAX = 4096
_CONTROL = re.compile(r"[\x00-\x1f\x7f]")


class ClaimMode(Enum):
    """Whose a savepoint is once a job was started from it.

    NO_CLAIM: it stays as it is, and any number of jobs may be started from it. CLAIM: the job takes it over, and it is
    deleted when all queries of the job have what they need of it.
    """

    NO_CLAIM = "NO_CLAIM"
    CLAIM = "CLAIM"


class SavepointRestoreSettings(JobGraphModel):
    """`path`: an absolute path, or a file URL. `allow_non_restored_state`: state of no query here is left behind."""

    path: Annotated[str, Field(min_length=1, max_length=PATH_LENGTH_MAX)]
    allow_non_restored_state: bool = False
    claim_mode: ClaimMode = ClaimMode.NO_CLAIM


class QueryRestoreSettings(SavepointRestoreSettings):
    """The same as a slot gets it, with all streaming queries of the job: the parallelism by uid."""

    queries: dict[str, int]


def claim_mode_of(text: str) -> ClaimMode:
    """The mode of a text, in any case. Raises InvalidInputError, which says what there is."""
    try:
        return ClaimMode(text.strip().upper())
    except ValueError:
        known = ", ".join(mode.value for mode in ClaimMode)
        message = f"claim mode {text[:40]!r} is none of {known}"
        raise InvalidInputError(message) from None


def savepoint_problems(settings: SavepointRestoreSettings | None, queries: Mapping[str, int]) -> Iterator[str]:
    """Every problem of what a job with these queries is started from, as one sentence each."""
    if settings is None:
        return
    if not settings.path.startswith(("/", "file:/")) or _CONTROL.search(settings.path):
        yield (
            f"savepoint {settings.path[:200]!r} is no absolute path and no file URL: TaskManagers have to find it "
            "under that name"
        )
    if not queries:
        yield "the job has no streaming query, so there is nothing that a savepoint could be restored into"


_QUERY_SETTINGS = TypeAdapter(QueryRestoreSettings)


def dump_query_settings(settings: SavepointRestoreSettings | None, queries: Mapping[str, int]) -> bytes:
    """The form in which slots get it; b"" for a job that is started from nothing."""
    if settings is None:
        return b""
    return _QUERY_SETTINGS.dump_json(QueryRestoreSettings(**dict(settings), queries=dict(queries)))


def parse_query_settings(data: bytes) -> QueryRestoreSettings | None:
    """The inverse of `dump_query_settings`. Raises InvalidInputError."""
    if not data:
        return None
    try:
        return _QUERY_SETTINGS.validate_json(data)
    except ValidationError as error:
        message = f"the settings of a savepoint of {len(data)} bytes cannot be read"
        raise InvalidInputError(message) from error
