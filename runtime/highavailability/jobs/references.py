"""The object keys to which durable state refers: R19's collection must not delete them.

Keys are found by their form (`<sha256>-<upload id>`) in the records and in the job graphs, so that a new kind of
reference cannot be forgotten here. An unreadable record or graph stops the collection: it may refer to any object.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

from runtime.highavailability.jobs.job_reader import JobReader
from runtime.highavailability.record_codec import UnreadableRecordError
from runtime.highavailability.records import Payload, StoredJob

_FROM_DASH = re.compile(rb"-(?<=[0-9a-f]{64}-)(?<![0-9a-f]{65}-)[0-9a-f]{32}(?![0-9a-f])")
"""Begins at the dash, which makes the search fast: the leader's loop searches every submit of pickled code."""


async def referenced_objects(reader: JobReader) -> frozenset[str]:
    """A linearizable read. Raises UnreadableRecordError, NotFoundError, PayloadCorruptError, UnavailableError."""
    references: set[str] = set()
    jobs, _ = await reader.jobs()
    for job in jobs:
        references.update(await _of_job(reader, job))
    # An unreadable record stops the collection: it may refer to any object.
    async for done, _ in reader.all_done(skip_unreadable=False):
        references.add(done.archive_key)
    references.discard("")
    return frozenset(references)


async def _of_job(reader: JobReader, job: StoredJob) -> set[str]:
    if job.problem:
        raise UnreadableRecordError(job.problem, key=f"jobs/{job.job_id}/")
    payloads = [job.graph.graph, *await reader.event_payloads(job.job_id)]
    if job.result is not None:
        payloads.append(job.result.archive)
    references = {payload.object_key for payload in payloads}
    references.update(object_keys_in(await reader.load(job.graph.graph)))
    references.update(_keys_in_inline(payloads))
    return references


def _keys_in_inline(payloads: Iterable[Payload]) -> set[str]:
    return {key for payload in payloads for key in object_keys_in(payload.inline)}


def object_keys_in(data: bytes) -> set[str]:
    """All texts in `data` that have the form of an object key."""
    return {data[match.start() - 64 : match.end()].decode() for match in _FROM_DASH.finditer(data)}
