"""RestoredStore: prepares a store that was restored from a snapshot for a new start of the cluster (R35)."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from runtime.common.entropy import Entropy
from runtime.common.errors import PermanentError
from runtime.common.ids import ClusterUuid, JobId
from runtime.highavailability.jobs.job_reader import JobReader
from runtime.highavailability.keys import Keys
from runtime.highavailability.kv.conditions import Settled, absent, gets, present, settle, unchanged
from runtime.highavailability.kv.key_value_store import Delete, KeyValueStore, Put, Txn
from runtime.highavailability.leadership.cluster import ClusterRecord
from runtime.highavailability.record_codec import encode_record
from runtime.highavailability.records import WantedRecord

REASON = "etcd was restored from a snapshot: what became of the job since then is not known"
_LOOK_PERIOD = 0.5
_DISTURBED = (
    "another process writes to the cluster's records in etcd: stop all processes, TaskManagers too, on every host, and "
    "then run this again"
)


class RestoredStore:
    """The steps of the procedure, while no process of the cluster runs. Each step may be repeated."""

    def __init__(self, kv: KeyValueStore, keys: Keys, reader: JobReader, entropy: Entropy, *, timeout: float) -> None:
        self._kv = kv
        self._keys = keys
        self._reader = reader
        self._entropy = entropy
        self._timeout = timeout

    async def wait_for_silence(self, is_over: Callable[[], bool]) -> None:
        """Return when the leases of the snapshot have ended. Raises PermanentError when a process renews one."""
        while alive := await self._count(self._keys.leaders) + await self._count(self._keys.job_masters):
            if is_over():
                message = (
                    f"{alive} JobManager and JobMaster processes of the cluster run: stop all processes, TaskManagers "
                    "too, on every host, and then run this again"
                )
                raise PermanentError(message)
            await asyncio.sleep(_LOOK_PERIOD)

    async def _count(self, prefix: str) -> int:
        return (await self._kv.prefix_state(prefix, timeout=self._timeout)).count

    async def cancel_jobs(self) -> int:
        """Write a wish to cancel for each job without a result, for its next owner. Returns the number of jobs."""
        jobs, _ = await self._reader.jobs()
        unfinished = [job.job_id for job in jobs if job.result is None]
        for job_id in unfinished:
            await self._cancel(job_id)
        return len(unfinished)

    async def _cancel(self, job_id: JobId) -> None:
        key = self._keys.wanted(job_id)
        record = encode_record(WantedRecord(wants_cancel=True, client="", reason=REASON))
        read = await self._kv.range(key, is_prefix=False, timeout=self._timeout)
        before = read.kvs[0].mod_revision if read.kvs else 0
        conditions = (present(self._keys.graph(job_id)), absent(self._keys.result(job_id)), unchanged(key, before))
        txn = Txn(conditions, (Put(key, record),), gets(key))
        settled = await settle(self._kv, txn, timeout=self._timeout, entropy=self._entropy)
        if not settled.result.succeeded and not _is_ours(settled, record):
            raise PermanentError(_DISTURBED)

    async def begin_again(self) -> ClusterUuid:
        """Delete all TaskManagers, and give the cluster a new uuid: a process of the old one stops its work (R1)."""
        cluster = self._keys.cluster
        read = await self._kv.range(cluster, is_prefix=False, timeout=self._timeout)
        before = read.kvs[0].mod_revision if read.kvs else 0
        uuid = ClusterUuid(self._entropy.hex_id())
        record = encode_record(ClusterRecord(uuid))
        writes = (Put(cluster, record), Delete(self._keys.task_managers, is_prefix=True))
        txn = Txn((unchanged(cluster, before),), writes, gets(cluster))
        settled = await settle(self._kv, txn, timeout=self._timeout, entropy=self._entropy)
        if not settled.result.succeeded and not _is_ours(settled, record):
            raise PermanentError(_DISTURBED)
        return uuid


def _is_ours(settled: Settled, record: bytes) -> bool:
    """True when an earlier try of ours, whose answer was lost, has made the conditions fail (R2)."""
    (there,) = settled.answers()
    return settled.was_repeated and there is not None and there.value == record
