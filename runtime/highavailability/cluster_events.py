"""The cluster's events in the store: the leader alone writes them, under its term (R55)."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import asdict
from typing import NamedTuple

from runtime.common.entropy import Entropy
from runtime.common.errors import ConflictError
from runtime.gateways.cluster_events import ClusterEvent, EventKind
from runtime.highavailability.keys import Keys
from runtime.highavailability.kv.conditions import LeaderTerm, absent, check_leads, gets, leads, settle
from runtime.highavailability.kv.key_value_store import Delete, KeyValue, KeyValueStore, Put, Txn
from runtime.highavailability.record_codec import UnreadableRecordError, decode_record, encode_record
from runtime.highavailability.records import ClusterEventRecord

logger = logging.getLogger(__name__)

_READ_MAX = 2000
"""More than any release keeps: what a meddler adds to it is deleted unread, from the oldest on."""


class StoredEvents(NamedTuple):
    """What is stored, oldest first, and the numbers of what cannot be used: unreadable, or of a later release."""

    events: Sequence[tuple[str, ClusterEvent]]
    unusable: Sequence[str]


class ClusterEventStore:
    """Reads and writes the events of a cluster, by their numbers."""

    def __init__(self, kv: KeyValueStore, keys: Keys, term: LeaderTerm, entropy: Entropy, *, timeout: float) -> None:
        self._kv = kv
        self._keys = keys
        self._term = term
        self._entropy = entropy
        self._timeout = timeout

    async def read(self) -> StoredEvents:
        """All that is stored. Raises UnavailableError."""
        prefix = self._keys.cluster_events
        answer = await self._kv.range(prefix, is_prefix=True, timeout=self._timeout, limit=_READ_MAX)
        events: list[tuple[str, ClusterEvent]] = []
        unusable: list[str] = []
        for kv in answer.kvs:
            number = kv.key.removeprefix(prefix)
            event = _event(kv)
            if event is None:
                unusable.append(number)
            else:
                events.append((number, event))
        if unusable:
            logger.warning("%d stored events of the cluster cannot be used, and are deleted", len(unusable))
        return StoredEvents(events, unusable)

    async def write(self, puts: Sequence[tuple[str, ClusterEvent]], deletes: Sequence[str]) -> None:
        """Store new events under new numbers, and delete others, in one transaction.

        Raises StaleTokenError when the term is over, ConflictError when a number is taken: only a meddler takes one.
        What a late repeat would delete is never written again (R33).
        """
        records = [(self._keys.cluster_event(number), encode_record(_record(event))) for number, event in puts]
        keys = [key for key, _ in records]
        txn = Txn(
            conditions=(leads(self._term), *map(absent, keys)),
            success=(
                *(Put(key, record) for key, record in records),
                *(Delete(self._keys.cluster_event(number)) for number in deletes),
            ),
            failure=gets(self._term.key, *keys[:1]),
        )
        settled = await settle(self._kv, txn, timeout=self._timeout, entropy=self._entropy)
        if settled.result.succeeded:
            return
        leader, *there = settled.answers()
        if settled.was_repeated and there and there[0] is not None and there[0].value == records[0][1]:
            return  # our own write, whose answer was lost (R2)
        check_leads(self._term, leader, "events of the cluster")
        message = f"the number {puts[0][0] if puts else ''} of an event of the cluster is taken in the store"
        raise ConflictError(message)


def _record(event: ClusterEvent) -> ClusterEventRecord:
    return ClusterEventRecord(**{**asdict(event), "kind": event.kind.value})


def _event(kv: KeyValue) -> ClusterEvent | None:
    try:
        record = decode_record(ClusterEventRecord, kv.value, key=kv.key)
        return ClusterEvent(**{**asdict(record), "kind": EventKind(record.kind)})
    except (UnreadableRecordError, ValueError) as error:
        logger.debug("an event of the cluster cannot be used: %s", error)
        return None
