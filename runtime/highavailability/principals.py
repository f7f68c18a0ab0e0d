"""Principals in the store: the leader writes them for an admin, and every JobManager follows them (R48).

The record of a revoked principal stays as a mark: an absent record could not be told from one that was never written
(R33).
"""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass

from runtime.common.entropy import Entropy
from runtime.common.errors import ConflictError
from runtime.highavailability.keys import Keys
from runtime.highavailability.kv.conditions import gets, settle, unchanged
from runtime.highavailability.kv.follower import Listed, follow
from runtime.highavailability.kv.key_value_store import Delete, KeyValue, KeyValueStore, Put, Txn
from runtime.highavailability.record_codec import UnreadableRecordError, decode_record, encode_record
from runtime.highavailability.records import PrincipalRecord
from runtime.security.principals import is_principal_name

logger = logging.getLogger(__name__)

_SHOWN_MAX = 127


@dataclass(frozen=True, slots=True)
class StoredPrincipal:
    """A record as read; its next writer names `revision` as what it replaces.

    `problem` says why a record cannot be read, "" when it can: then only the name is known, from the key.
    """

    record: PrincipalRecord
    revision: int
    problem: str = ""


class FollowedPrincipals(dict[str, StoredPrincipal]):
    """All principals by name. `listed_revision`: the revision at which a read has confirmed them, 0 after a watch."""

    listed_revision = 0


class PrincipalStore:
    """Reads, writes and follows the principals of a cluster."""

    def __init__(self, kv: KeyValueStore, keys: Keys, entropy: Entropy, *, timeout: float) -> None:
        self._kv = kv
        self._keys = keys
        self._entropy = entropy
        self._timeout = timeout
        self._told: frozenset[str] = frozenset()
        """Unreadable keys that were logged, once until they change: an attacker in etcd must not fill the log."""

    async def get(self, name: str) -> StoredPrincipal | None:
        """One principal, by a linearizable read."""
        key = self._keys.principal(name)
        answer = await self._kv.range(key, is_prefix=False, timeout=self._timeout)
        return _stored(name, answer.kvs[0]) if answer.kvs else None

    async def put(self, record: PrincipalRecord, *, previous_revision: int) -> StoredPrincipal:
        """Replace the record of `previous_revision` (0: there is none). Raises ConflictError when it has changed."""
        key = self._keys.principal(record.name)
        data = encode_record(record)
        txn = Txn(conditions=(unchanged(key, previous_revision),), success=(Put(key, data),), failure=gets(key))
        settled = await settle(self._kv, txn, timeout=self._timeout, entropy=self._entropy)
        if settled.result.succeeded:
            return StoredPrincipal(record, settled.result.revision)
        (there,) = settled.answers()
        if settled.was_repeated and there is not None and there.value == data:
            return StoredPrincipal(record, there.mod_revision)
        message = f"principal {record.name} was changed by another request meanwhile: look at it, and ask again"
        raise ConflictError(message)

    async def delete(self, name: str, *, previous_revision: int) -> int:
        """Delete the record of `previous_revision`. Returns the revision. Raises ConflictError when it has changed."""
        key = self._keys.principal(name)
        txn = Txn(conditions=(unchanged(key, previous_revision),), success=(Delete(key),), failure=gets(key))
        settled = await settle(self._kv, txn, timeout=self._timeout, entropy=self._entropy)
        if settled.result.succeeded or (settled.was_repeated and settled.answers() == [None]):
            return settled.result.revision
        message = f"principal {name} was changed by another request meanwhile: look at it, and ask again"
        raise ConflictError(message)

    async def follow(self) -> AsyncIterator[FollowedPrincipals]:
        """All principals by name, now and after each change, including unreadable ones (R31).

        A key whose name no principal can have is logged and left out.
        """
        prefix = self._keys.principals
        following = follow(self._kv, prefix, timeout=self._timeout, entropy=self._entropy, tells_lists=True)
        async for found in following:
            there = {name: _stored(name, kv) for name, kv in ((key.removeprefix(prefix), found[key]) for key in found)}
            self._tell({name: stored.problem for name, stored in there.items() if stored.problem})
            followed = FollowedPrincipals({name: one for name, one in there.items() if is_principal_name(name)})
            if isinstance(found, Listed):
                followed.listed_revision = found.revision
            yield followed

    def _tell(self, problems: Mapping[str, str]) -> None:
        for name in sorted(problems.keys() - self._told):
            logger.warning("no client can sign in as principal %a: %s", name[:_SHOWN_MAX], problems[name])
        self._told = frozenset(problems)


def _stored(name: str, kv: KeyValue) -> StoredPrincipal:
    problem = "it is that of another principal"
    try:
        record = decode_record(PrincipalRecord, kv.value, key=kv.key)
        if record.name == name:
            return StoredPrincipal(record, kv.mod_revision)
    except UnreadableRecordError as error:
        problem = error.reason
    return StoredPrincipal(PrincipalRecord(name, "", "", ()), kv.mod_revision, problem)
