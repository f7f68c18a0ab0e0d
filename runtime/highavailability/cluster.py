"""The cluster's uuid: made once, by whoever starts first, and part of every token (R1)."""

from __future__ import annotations

from dataclasses import dataclass

from runtime.common.entropy import Entropy
from runtime.common.ids import ClusterUuid
from runtime.highavailability.guards import absent, found, gets, settle
from runtime.highavailability.keys import Keys
from runtime.highavailability.kv import KeyValueStore, Put, Txn
from runtime.highavailability.record_codec import decode_record, encode_record


@dataclass(frozen=True, slots=True)
class ClusterRecord:
    """`cluster`."""

    uuid: ClusterUuid


async def cluster_uuid(kv: KeyValueStore, keys: Keys, entropy: Entropy, *, timeout: float) -> ClusterUuid:
    """The uuid, made now if there is none. Raises UnreadableRecordError."""
    answer = await kv.range(keys.cluster, is_prefix=False, timeout=timeout)
    if answer.kvs:
        return decode_record(ClusterRecord, answer.kvs[0].value, key=keys.cluster).uuid
    mine = ClusterUuid(entropy.hex_id())
    txn = Txn(
        guards=(absent(keys.cluster),),
        success=(Put(keys.cluster, encode_record(ClusterRecord(mine))),),
        failure=gets(keys.cluster),
    )
    settled = await settle(kv, txn, timeout=timeout, entropy=entropy)
    if settled.result.succeeded:
        return mine
    stored = found(settled.result.results[0])
    assert stored is not None, keys.cluster
    return decode_record(ClusterRecord, stored.value, key=keys.cluster).uuid
