"""Savepoints that clients want deleted, in the store (R62): each next leader goes on with those in progress.

Each write replaces what its writer has read, under its term: so a process that takes itself for the leader changes
nothing, also where the leader has not written yet.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass

from runtime.common.entropy import Entropy
from runtime.common.errors import ConflictError
from runtime.gateways.operations import OperationState, SavepointDisposal
from runtime.highavailability.keys import Keys
from runtime.highavailability.kv.conditions import LeaderTerm, absent, check_leads, gets, leads, settle, unchanged
from runtime.highavailability.kv.key_value_store import Delete, KeyValue, KeyValueStore, Put, Txn
from runtime.highavailability.record_codec import UnreadableRecordError, decode_record, encode_record
from runtime.highavailability.records import DisposalRecord

logger = logging.getLogger(__name__)

KEPT_MAX = 100
"""Those that have ended and are still answered."""
IN_PROGRESS_MAX = 20
_READ_MAX = 10 * (KEPT_MAX + IN_PROGRESS_MAX)


@dataclass(frozen=True, slots=True)
class StoredDisposal:
    """As read; `revision` is the key's."""

    disposal: SavepointDisposal
    revision: int


class DisposalStore:
    """Reads and writes the records, for one term. Every read is linearizable. A write raises StaleTokenError when the
    term is over.
    """

    def __init__(self, kv: KeyValueStore, keys: Keys, term: LeaderTerm, entropy: Entropy, *, timeout: float) -> None:
        self._kv = kv
        self._keys = keys
        self._term = term
        self._entropy = entropy
        self._timeout = timeout

    async def add(self, disposal: SavepointDisposal) -> SavepointDisposal:
        """Store a new one. Durable on return. What is stored under its id already is returned as it is.

        Raises ConflictError where so many are in progress that no more are taken.
        """
        stored = await self.all()
        in_progress = sum(one.disposal.state is OperationState.IN_PROGRESS for one in stored)
        if in_progress >= IN_PROGRESS_MAX and all(one.disposal.trigger_id != disposal.trigger_id for one in stored):
            message = f"{in_progress} savepoints are being deleted, more are not taken: wait for their end"
            raise ConflictError(message)
        key = self._keys.disposal(disposal.trigger_id)
        put = Put(key, encode_record(DisposalRecord(disposal)))
        txn = Txn((leads(self._term), absent(key)), (put,), gets(self._term.key, key))
        settled = await settle(self._kv, txn, timeout=self._timeout, entropy=self._entropy)
        if not settled.result.succeeded:
            leader, there = settled.answers()
            if there is None:
                check_leads(self._term, leader, f"disposal {disposal.trigger_id}")
            known = None if there is None else _read(there)
            if known is None:
                message = f"disposal {disposal.trigger_id} is stored already, and cannot be read"
                raise ConflictError(message)
            return known.disposal
        ended = [one for one in stored if one.disposal.state is not OperationState.IN_PROGRESS]
        for one in sorted(ended, key=lambda one: one.disposal.ended_millis)[: max(0, len(ended) - KEPT_MAX + 1)]:
            await self._write(one, None)
        return disposal

    async def get(self, trigger_id: str) -> SavepointDisposal | None:
        """One of them, None for an unknown one."""
        answer = await self._kv.range(self._keys.disposal(trigger_id), is_prefix=False, timeout=self._timeout)
        found = _read(answer.kvs[0]) if answer.kvs else None
        return None if found is None else found.disposal

    async def all(self) -> list[StoredDisposal]:
        """All that can be read."""
        prefix = self._keys.disposals
        answer = await self._kv.range(prefix, is_prefix=True, timeout=self._timeout, limit=_READ_MAX)
        return [one for one in map(_read, answer.kvs) if one is not None]

    async def replace(self, there: StoredDisposal, disposal: SavepointDisposal) -> StoredDisposal:
        """Write another form of one. Raises ConflictError when somebody else has written it meanwhile."""
        return StoredDisposal(disposal, await self._write(there, disposal))

    async def _write(self, there: StoredDisposal, disposal: SavepointDisposal | None) -> int:
        key = self._keys.disposal(there.disposal.trigger_id)
        value = b"" if disposal is None else encode_record(DisposalRecord(disposal))
        change = Delete(key) if disposal is None else Put(key, value)
        txn = Txn((leads(self._term), unchanged(key, there.revision)), (change,), gets(self._term.key, key))
        settled = await settle(self._kv, txn, timeout=self._timeout, entropy=self._entropy)
        if settled.result.succeeded:
            return settled.result.revision
        leader, now = settled.answers()
        if now is None and disposal is None:
            return 0
        if settled.was_repeated and now is not None and now.value == value:
            return now.mod_revision  # our own write, whose answer was lost (R2)
        check_leads(self._term, leader, f"disposal {there.disposal.trigger_id}")
        message = f"disposal {there.disposal.trigger_id} was written by another leader"
        raise ConflictError(message)


def _read(kv: KeyValue) -> StoredDisposal | None:
    try:
        return StoredDisposal(decode_record(DisposalRecord, kv.value, key=kv.key).disposal, kv.mod_revision)
    except UnreadableRecordError as error:
        logger.warning("a savepoint that was to be deleted cannot be read, and is left alone: %s", error)
        return None
