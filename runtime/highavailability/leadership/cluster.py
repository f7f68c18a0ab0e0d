"""The cluster's uuid: made once, by the first process that starts, and part of every token (R1)."""

from __future__ import annotations

from dataclasses import dataclass

from runtime.common.entropy import Entropy
from runtime.common.errors import PermanentError
from runtime.common.ids import ClusterUuid
from runtime.highavailability.keys import Keys
from runtime.highavailability.kv.conditions import absent, found, gets, settle, unchanged
from runtime.highavailability.kv.key_value_store import KeyValueStore, Put, Txn
from runtime.highavailability.record_codec import decode_record, encode_record


@dataclass(frozen=True, slots=True)
class ClusterRecord:
    """`cluster`."""

    uuid: ClusterUuid


class ClusterChangedError(PermanentError):
    """The store belongs to another cluster than when this process connected to it (R1)."""


async def check_cluster(kv: KeyValueStore, keys: Keys, cluster: ClusterUuid, *, timeout: float) -> None:
    """Raises ClusterChangedError when the stored uuid is not `cluster`. A missing one proves nothing."""
    stored = await stored_cluster(kv, keys, timeout=timeout)
    if stored not in (None, cluster):
        message = f"cluster {cluster} has become cluster {stored}"
        raise ClusterChangedError(message)


async def stored_cluster(kv: KeyValueStore, keys: Keys, *, timeout: float) -> ClusterUuid | None:
    """The uuid; None when no process of the cluster has ever started. Raises UnreadableRecordError."""
    answer = await kv.range(keys.cluster, is_prefix=False, timeout=timeout)
    return decode_record(ClusterRecord, answer.kvs[0].value, key=keys.cluster).uuid if answer.kvs else None


async def cluster_uuid(kv: KeyValueStore, keys: Keys, entropy: Entropy, *, timeout: float) -> ClusterUuid:
    """The uuid, made now if there is none. Raises UnreadableRecordError."""
    known = await stored_cluster(kv, keys, timeout=timeout)
    if known is not None:
        return known
    mine = ClusterUuid(entropy.hex_id())
    txn = Txn(
        conditions=(absent(keys.cluster),),
        success=(Put(keys.cluster, encode_record(ClusterRecord(mine))),),
        failure=gets(keys.cluster),
    )
    settled = await settle(kv, txn, timeout=timeout, entropy=entropy)
    if settled.result.succeeded:
        return mine
    stored = found(settled.result.results[0])
    assert stored is not None, keys.cluster
    return decode_record(ClusterRecord, stored.value, key=keys.cluster).uuid


async def seal_cluster(kv: KeyValueStore, keys: Keys, entropy: Entropy, *, timeout: float) -> None:
    """Write the record again, unchanged, so that a record of an earlier release gets a seal (D-029, R38)."""
    read = await kv.range(keys.cluster, is_prefix=False, timeout=timeout)
    if not read.kvs:
        return
    (there,) = read.kvs
    txn = Txn((unchanged(keys.cluster, there.mod_revision),), (Put(keys.cluster, there.value),), gets(keys.cluster))
    await settle(kv, txn, timeout=timeout, entropy=entropy)
