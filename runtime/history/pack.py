"""The file of a history: some ended jobs, each with the line of the lists and its archived execution graph.

`flinklike-history 1 <length of the index>`, a line; the index, JSON; then the archives, each compressed for itself.
A reader takes the index alone, and one archive when somebody asks for its job. It believes nothing (R52): what it reads
is bounded before it is read, and a file that breaks a bound is refused as a whole, with a sentence.
"""

from __future__ import annotations

import re
import zlib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import IO

from pydantic import TypeAdapter, ValidationError

from runtime.common.errors import InvalidInputError
from runtime.common.ids import parse_job_id
from runtime.gateways.dispatcher import LABELS_MAX, JobSummary

INDEX_BYTES_MAX = 8 * 1024 * 1024
ARCHIVE_BYTES_MAX = 64 * 1024 * 1024
"""Of one archive, before it is compressed."""
JOBS_MAX = 1000
_LEVEL = 1
_HEAD = re.compile(rb"flinklike-history 1 ([0-9]{1,8})\n")
_HEAD_BYTES_MAX = 64
_NAME_LENGTH_MAX = 2000
_GROWTH, _GROWTH_MIN = 1000, 64
"""What cannot be compressed grows by a part in a thousand and some bytes at most."""
_NUMBER_MAX = 2**47
"""As clients take times in milliseconds: some thousand years."""


@dataclass(frozen=True, slots=True)
class EndedJob:
    """A job as it goes into a file. `archive` is the JSON of its execution graph, b"" if that was lost."""

    summary: JobSummary
    archive: bytes


@dataclass(frozen=True, slots=True)
class IndexedJob:
    """A job in the index of a file: where its archive begins behind the index, and its sizes there and unpacked."""

    summary: JobSummary
    offset: int
    size_bytes: int
    archive_bytes: int


@dataclass(frozen=True, slots=True)
class PackIndex:
    """The index of a file. `begin`: where the archives begin."""

    jobs: tuple[IndexedJob, ...]
    begin: int


@dataclass(frozen=True, slots=True)
class _StoredIndex:
    jobs: tuple[IndexedJob, ...]


_ADAPTER: TypeAdapter[_StoredIndex] = TypeAdapter(_StoredIndex)


def make_pack(jobs: Sequence[EndedJob]) -> bytes:
    """The file. Raises InvalidInputError for what no reader would take."""
    indexed, parts, offset = [], [], 0
    for job in jobs:
        size = len(job.archive)
        if size > ARCHIVE_BYTES_MAX:
            message = f"the archive of job {job.summary.job_id} has {size} bytes: a history takes {ARCHIVE_BYTES_MAX}"
            raise InvalidInputError(message)
        data = zlib.compress(job.archive, _LEVEL) if job.archive else b""
        indexed.append(IndexedJob(job.summary, offset, len(data), size))
        parts.append(data)
        offset += len(data)
    index = _ADAPTER.dump_json(_StoredIndex(tuple(indexed)))
    if len(index) > INDEX_BYTES_MAX or len(indexed) > JOBS_MAX:
        message = f"{len(indexed)} jobs do not fit into one file of a history"
        raise InvalidInputError(message)
    return b"".join([b"flinklike-history 1 %d\n" % len(index), index, *parts])


def read_index(file: IO[bytes], size_bytes: int) -> PackIndex:
    """The index of a file of that size. Raises InvalidInputError with what is wrong about it."""
    head = file.read(_HEAD_BYTES_MAX)
    found = _HEAD.match(head)
    if found is None:
        message = "it does not begin as a file of a history of this release"
        raise InvalidInputError(message)
    length, start = int(found[1]), found.end()
    if length > INDEX_BYTES_MAX or start + length > size_bytes:
        message = f"its index is said to have {length} bytes, and the file has {size_bytes}"
        raise InvalidInputError(message)
    text = head[start : start + length] + file.read(max(0, length - (len(head) - start)))
    try:
        stored = _ADAPTER.validate_json(text)
    except ValidationError as error:
        message = f"its index cannot be read: {error.errors()[0]['msg'][:200]}"
        raise InvalidInputError(message) from error
    if len(stored.jobs) > JOBS_MAX:
        message = f"its index names {len(stored.jobs)} jobs, more than {JOBS_MAX}"
        raise InvalidInputError(message)
    for job in stored.jobs:
        _check(job, size_bytes - start - length)
    return PackIndex(stored.jobs, start + length)


def _check(job: IndexedJob, room: int) -> None:
    summary = job.summary
    parse_job_id(summary.job_id)
    if not summary.status.is_globally_terminal:
        message = f"its job {summary.job_id} has not ended: it is {summary.status.name}"
        raise InvalidInputError(message)
    if not (job.offset >= 0 and job.size_bytes >= 0 and job.offset + job.size_bytes <= room):
        message = f"the archive of its job {summary.job_id} is said to lie outside of the file"
        raise InvalidInputError(message)
    numbers = (summary.start_millis, summary.end_millis, summary.last_modification_millis, summary.epoch)
    texts = (summary.name, summary.pending_reason, summary.submitter, summary.namespace, summary.failure)
    is_bounded = (
        0 <= job.archive_bytes <= ARCHIVE_BYTES_MAX
        and job.size_bytes <= job.archive_bytes + job.archive_bytes // _GROWTH + _GROWTH_MIN
        and all(-1 <= number < _NUMBER_MAX for number in numbers)
        and all(len(text) <= _NAME_LENGTH_MAX for text in (*texts, *summary.failure_labels[: LABELS_MAX + 1]))
        and len(summary.failure_labels) <= LABELS_MAX
    )
    if not is_bounded:
        message = f"its job {summary.job_id} has a value out of bounds"
        raise InvalidInputError(message)


def read_archive(file: IO[bytes], begin: int, job: IndexedJob) -> bytes:
    """The archive of one job. Raises InvalidInputError for a damaged one."""
    file.seek(begin + job.offset)
    unpacking = zlib.decompressobj()
    try:
        # One more than promised: what unpacks to more is found out without unpacking all of it.
        archive = unpacking.decompress(file.read(job.size_bytes), job.archive_bytes + 1)
    except zlib.error as error:
        message = f"it is damaged: {error}"
        raise InvalidInputError(message) from error
    if len(archive) != job.archive_bytes or not unpacking.eof:
        message = "it is damaged: it has another size than its index says"
        raise InvalidInputError(message)
    return archive
