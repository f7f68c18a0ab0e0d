"""Uploaded programs in the store (R54): records that point to blobs, so that each next leader has the same ones.

Bytes come before the record (R20): an upload that dies between both leaves an object to which nothing refers, and which
the collection deletes. A record that cannot be read is listed by its id, and may be deleted.
"""

from __future__ import annotations

from dataclasses import dataclass

from runtime.common.entropy import Entropy
from runtime.common.errors import BugError, ConflictError
from runtime.highavailability.keys import Keys
from runtime.highavailability.kv.conditions import absent, gets, present, settle, unchanged
from runtime.highavailability.kv.key_value_store import Delete, KeyValue, KeyValueStore, Put, Txn
from runtime.highavailability.record_codec import UnreadableRecordError, decode_record, encode_record
from runtime.highavailability.records import JarRecord, LastJarRecord


@dataclass(frozen=True, slots=True)
class StoredJar:
    """A record as read; None, and the `problem`, for one that cannot be read."""

    jar_id: str
    record: JarRecord | None
    problem: str = ""


class JarStore:
    """Reads and writes the records. Every read is linearizable."""

    def __init__(self, kv: KeyValueStore, keys: Keys, entropy: Entropy, *, timeout: float) -> None:
        self._kv = kv
        self._keys = keys
        self._entropy = entropy
        self._timeout = timeout

    async def add(self, record: JarRecord, *, jars_max: int) -> None:
        """Store a new record, whose id nobody else has. Durable on return. Raises ConflictError above `jars_max`.

        Each `add` replaces one key, on the condition that it is as it was before the records were counted: of two that
        have counted the same ones, also in two processes that take themselves for the leader, one counts again.
        """
        key, last = self._keys.jar(record.jar_id), self._keys.last_jar
        value = encode_record(record)
        while True:
            before = await self._kv.range(last, is_prefix=False, timeout=self._timeout)
            await self.check_room(jars_max)
            revision = before.kvs[0].mod_revision if before.kvs else 0
            txn = Txn(
                conditions=(absent(key), unchanged(last, revision)),
                success=(Put(key, value), Put(last, encode_record(LastJarRecord(record.jar_id)))),
                failure=gets(key),
            )
            settled = await settle(self._kv, txn, timeout=self._timeout, entropy=self._entropy)
            (there,) = settled.answers() if not settled.result.succeeded else (None,)
            if there is None and not settled.result.succeeded:
                continue  # another upload came first
            if there is not None and there.value != value:
                message = f"two uploads have the id {record.jar_id}"
                raise BugError(message)
            return

    async def check_room(self, jars_max: int) -> None:
        """Raises ConflictError where there are so many programs that no more are taken. Reads none of them."""
        count = (await self._kv.prefix_state(self._keys.jars, timeout=self._timeout)).count
        if count >= jars_max:
            message = f"there are {count} uploaded programs, the limit is {jars_max}: delete those that nobody runs"
            raise ConflictError(message)

    async def get(self, jar_id: str) -> StoredJar | None:
        """One of them."""
        answer = await self._kv.range(self._keys.jar(jar_id), is_prefix=False, timeout=self._timeout)
        return self._stored(answer.kvs[0]) if answer.kvs else None

    async def all(self) -> list[StoredJar]:
        """All of them; their number is bounded where they are added."""
        answer = await self._kv.range(self._keys.jars, is_prefix=True, timeout=self._timeout)
        return [self._stored(kv) for kv in answer.kvs]

    async def delete(self, jar_id: str) -> None:
        """Forget one. Idempotent; its object is collected later, when no job refers to it either."""
        key = self._keys.jar(jar_id)
        txn = Txn(conditions=(present(key),), success=(Delete(key),), failure=gets(key))
        _ = await settle(self._kv, txn, timeout=self._timeout, entropy=self._entropy)

    async def object_keys(self) -> frozenset[str]:
        """The objects to which they refer. Raises UnreadableRecordError: such a record may refer to any object."""
        found = await self.all()
        for one in found:
            if one.problem:
                raise UnreadableRecordError(one.problem, key=self._keys.jar(one.jar_id))
        return frozenset(one.record.key for one in found if one.record is not None)

    def _stored(self, kv: KeyValue) -> StoredJar:
        jar_id = kv.key.removeprefix(self._keys.jars)
        try:
            return StoredJar(jar_id, decode_record(JarRecord, kv.value, key=kv.key))
        except UnreadableRecordError as error:
            return StoredJar(jar_id, None, str(error))
