"""Every object key that anything durable refers to: what R19's collection must not delete.

Keys are found by their form (`<sha256>-<upload id>`) in the records and in the job graphs themselves, so that no new
kind of reference can be forgotten here. A record or graph that cannot be read stops the collection: it might refer to
anything.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

from runtime.highavailability.jobs.job_reader import JobReader
from runtime.highavailability.record_codec import UnreadableRecordError
from runtime.highavailability.records import Payload, StoredJob

_FROM_DASH = re.compile(rb"-(?<=[0-9a-f]{64}-)(?<![0-9a-f]{65}-)[0-9a-f]{32}(?![0-9a-f])")
"""Begins at the dash: a search for it is fast, and every submit of pickled code is searched on the leader's loop."""


async def referenced_objects(reader: JobReader) -> frozenset[str]:
    """A linearizable read. Raises UnreadableRecordError, NotFoundError, PayloadCorruptError, UnavailableError."""
    references: set[str] = set()
    jobs, _ = await reader.jobs()
    for job in jobs:
        references.update(await _of_job(reader, job))
    # What refers to something and cannot be read stops the collection.
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
    """Everything in `data` that has the form of an object key."""
    return {data[match.start() - 64 : match.end()].decode() for match in _FROM_DASH.finditer(data)}
