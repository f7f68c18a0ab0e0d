"""What a job is started from: a savepoint, and how it is dealt with (Flink's SavepointRestoreSettings)."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from enum import Enum
from typing import Annotated
from urllib.parse import unquote

from pydantic import Field, TypeAdapter, ValidationError

from runtime.common.errors import InvalidInputError
from runtime.jobgraph.code import JobGraphModel

PATH_LENGTH_MAX = 4096
ALL_QUERIES = "*"
"""In `state_partitions`: every query that has state. No uid is written so."""
STATE_PARTITIONS_MAX = 10_000
_NAMED_MAX = 1000
_DIGITS_MAX = 10
_CONTROL = re.compile(r"[\x00-\x1f\x7f]")


class ClaimMode(Enum):
    """Whose a savepoint is once a job was started from it.

    NO_CLAIM: it stays as it is, and any number of jobs may be started from it. CLAIM: the job takes it over, and it is
    deleted when all queries of the job have what they need of it.
    """

    NO_CLAIM = "NO_CLAIM"
    CLAIM = "CLAIM"


class SavepointRestoreSettings(JobGraphModel):
    """`path`: an absolute path, or a file URL. `allow_non_restored_state`: state of no query here is left behind.

    `state_partitions`: the number of partitions that the state of a query has from now on, by uid, or for all queries
    (ALL_QUERIES) but those that are named; without an entry it keeps the number that it has (R60).
    """

    path: Annotated[str, Field(min_length=1, max_length=PATH_LENGTH_MAX)]
    allow_non_restored_state: bool = False
    claim_mode: ClaimMode = ClaimMode.NO_CLAIM
    state_partitions: dict[str, int] = Field(default={}, exclude_if=lambda partitions: not partitions)

    def state_partitions_of(self, uid: str) -> int | None:
        """The number that is asked for a query, None for none."""
        return self.state_partitions.get(uid, self.state_partitions.get(ALL_QUERIES))


class QueryRestoreSettings(SavepointRestoreSettings):
    """The same as a slot gets it, with all streaming queries of the job.

    `queries`: the parallelism by uid. `splits`: the names of the splits of queries that have some.
    """

    queries: dict[str, int]
    splits: dict[str, tuple[str, ...]] = Field(default={})


def claim_mode_of(text: str) -> ClaimMode:
    """The mode of a text, in any case. Raises InvalidInputError, which says what there is."""
    try:
        return ClaimMode(text.strip().upper())
    except ValueError:
        known = ", ".join(mode.value for mode in ClaimMode)
        message = f"claim mode {text[:40]!r} is none of {known}"
        raise InvalidInputError(message) from None


def state_partitions_of(given: Iterable[str]) -> dict[str, int]:
    """`8` for all queries with state, `uid=8` for one of them. Raises InvalidInputError."""
    found: dict[str, int] = {}
    for text in given:
        uid, _, number = text.rpartition("=")
        if not (number.isascii() and number.isdigit() and len(number) < _DIGITS_MAX):
            message = f"state partitions {text[:200]!r}: expected a number, or UID=NUMBER"
            raise InvalidInputError(message)
        if (uid or ALL_QUERIES) in found:
            message = f"state partitions {text[:200]!r}: there is a number for {uid or 'all queries'!r} already"
            raise InvalidInputError(message)
        found[uid or ALL_QUERIES] = int(number)
    return found


def savepoint_problems(
    settings: SavepointRestoreSettings | None, queries: Mapping[str, int], *, is_of_script: bool = False
) -> Iterator[str]:
    """Every problem of what a job with these queries is started from, as one sentence each.

    `is_of_script`: a script starts the queries, whose names are known when it does so.
    """
    if settings is None:
        return
    if not settings.path.startswith(("/", "file:/")) or _CONTROL.search(settings.path):
        yield (
            f"savepoint {settings.path[:200]!r} is no absolute path and no file URL: TaskManagers have to find it "
            "under that name"
        )
    if ".." in unquote(settings.path).split("/"):
        yield (
            f"savepoint {settings.path[:200]!r} has '..' in it: name it by its own name, by which the cluster knows "
            "that a job reads it"
        )
    if not queries and not is_of_script:
        yield "the job has no streaming query, so there is nothing that a savepoint could be restored into"
    if is_of_script and settings.claim_mode is ClaimMode.CLAIM:
        yield (
            "the savepoint cannot be claimed by a job whose script starts its queries: nobody knows which of them is "
            "the last one that needs it. Leave out the claim mode, and delete it later (flinklike savepoint dispose)"
        )
    yield from _partition_problems(settings.state_partitions, None if is_of_script else queries)


def _partition_problems(partitions: Mapping[str, int], queries: Mapping[str, int] | None) -> Iterator[str]:
    if len(partitions) > _NAMED_MAX:
        yield f"state partitions are named for {len(partitions)} queries, the limit is {_NAMED_MAX}"
        return
    for uid, number in partitions.items():
        if not 1 <= number <= STATE_PARTITIONS_MAX:
            yield f"state of {uid[:80]!r} in {number} partitions: there are 1 to {STATE_PARTITIONS_MAX}"
        if queries is not None and uid != ALL_QUERIES and uid not in queries:
            yield f"state partitions are named for {uid[:80]!r}, which is the uid of no query of the job"


_QUERY_SETTINGS = TypeAdapter(QueryRestoreSettings)


def dump_query_settings(
    settings: SavepointRestoreSettings | None, queries: Mapping[str, int], splits: Mapping[str, tuple[str, ...]]
) -> bytes:
    """The form in which slots get it; b"" for a job that is started from nothing."""
    if settings is None:
        return b""
    return _QUERY_SETTINGS.dump_json(QueryRestoreSettings(**dict(settings), queries=dict(queries), splits=dict(splits)))


def parse_query_settings(data: bytes) -> QueryRestoreSettings | None:
    """The inverse of `dump_query_settings`. Raises InvalidInputError."""
    if not data:
        return None
    try:
        return _QUERY_SETTINGS.validate_json(data)
    except ValidationError as error:
        message = f"the settings of a savepoint of {len(data)} bytes cannot be read"
        raise InvalidInputError(message) from error
