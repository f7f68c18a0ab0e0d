"""etcd as a process of the simulated world, and the KeyValueStore through which the others reach it.

The state machine is the product's own model of etcd (`highavailability.core.mvcc`, held to the real one by the contract
tests). Around it, as with the real one: a request may be applied long after its caller has given up, or be lost on
either way; a watch ends with its connection and is taken up again at the next revision; leases run on etcd's clock and
start anew with their full time when etcd is restarted. What was applied is on disk: a crash loses nothing of it.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import AsyncGenerator, Callable
from dataclasses import dataclass
from typing import Any

from runtime.aio.entropy import SeededEntropy
from runtime.common.errors import FlinklikeError, OutcomeUnknownError, UnavailableError
from runtime.highavailability.kv.core.mvcc import MvccStore
from runtime.highavailability.kv.key_value_store import (
    CompactedError,
    KeyValue,
    PrefixState,
    Put,
    RangeResult,
    StoreStatus,
    Txn,
    TxnResult,
    WatchBatch,
    WatchEvent,
)
from tests.kit.simulation.etcd_trouble import MEMBERS, EtcdTrouble, no_room
from tests.kit.simulation.history import Applied, Damaged, Expired, History, InContact
from tests.kit.simulation.network import ConnectionLostError, Listener, Network, RefusedError, Reply
from tests.kit.simulation.processes import SimulatedLoop, SimulatedProcess, current_process

HOST = "etcd"
PORT = 2379
ADDRESS = f"{HOST}:{PORT}"
QUOTA_BYTES = 2 * 1024**3
_WATCH_PATIENCE = 10.0
LEASE_SECONDS_MIN = 2.0
"""No lease is shorter, so none that is granted from now on ends before."""


@dataclass(frozen=True, slots=True)
class _Request:
    """`work` runs at etcd. Plain values go in and out, so nothing is shared that a network would not share."""

    client: str
    work: Callable[[EtcdState, str], object]
    member: int = 0
    is_write: bool = False
    is_renewal: bool = False


@dataclass(frozen=True)
class _Watch:
    name: tuple[str, int, int]
    prefix: str
    start_revision: int
    member: int = 0
    is_connection = True


@dataclass(slots=True)
class _Lease:
    ttl: int
    expires_at: float


class EtcdState:
    """What survives etcd's crash: its disk."""

    def __init__(self, loop: SimulatedLoop, history: History, trouble: EtcdTrouble | None = None) -> None:
        self.store = MvccStore(quota_bytes=QUOTA_BYTES)
        self.trouble = trouble or EtcdTrouble(SeededEntropy(0))
        self.leases: dict[int, _Lease] = {}
        self._loop = loop
        self._history = history
        self._lease_count = 0
        self.on_change: Callable[[tuple[WatchEvent, ...]], None] = lambda _: None

    def apply(self, client: str, txn: Txn) -> TxnResult:
        """One transaction."""
        is_refused = self.trouble.check_room()
        before = self.store.revision
        result = self.store.txn(txn, leases=self.leases)
        events = self._changes_after(before)
        self._history.add(self._loop.time(), client, Applied(txn, result, events))
        self.on_change(events)
        if is_refused:
            raise no_room()
        return result

    def grant(self, ttl: int) -> int:
        """A new lease."""
        if self.trouble.is_full:
            raise no_room()
        self._lease_count += 1
        self.leases[self._lease_count] = _Lease(ttl, self._loop.time() + ttl)
        return self._lease_count

    def keep_alive(self, lease: int) -> int:
        """Renew."""
        found = self.leases.get(lease)
        if found is None:
            return 0
        found.expires_at = self._loop.time() + found.ttl
        return found.ttl

    def end_lease(self, lease: int, *, is_revoked: bool = True) -> None:
        """Revoked or expired."""
        if self.leases.pop(lease, None) is not None:
            before = self.store.revision
            self.store.delete_keys_of_lease(lease)
            events = self._changes_after(before)
            self._history.add(self._loop.time(), HOST, Expired(lease, events, is_revoked))
            self.on_change(events)

    def expire(self) -> None:
        """End the leases whose time is over."""
        now = self._loop.time()
        for lease in [number for number, entry in self.leases.items() if entry.expires_at <= now]:
            self.end_lease(lease, is_revoked=False)

    def extend_all(self) -> None:
        """A new etcd process does not know when its leases were last renewed: each gets its full time."""
        for entry in self.leases.values():
            entry.expires_at = self._loop.time() + entry.ttl

    def note_contact(self, client: str) -> None:
        """A TaskManager reads its own keys (R14)."""
        self._history.add(self._loop.time(), client, InContact())

    def spoil(self, key: str, value: bytes = b"spoiled", lease: int = 0) -> None:
        """Somebody has written what nobody can read."""
        self._history.add(self._loop.time(), HOST, Damaged(key))
        self.overwrite(key, value, lease)

    def overwrite(self, key: str, value: bytes, lease: int = 0) -> None:
        """Somebody has written this, and asked nobody."""
        before = self.store.revision
        self.store.txn(Txn((), (Put(key, value, lease),)), leases=self.leases)
        self.on_change(self._changes_after(before))

    def everything(self, prefix: str) -> tuple[KeyValue, ...]:
        """All keys under a prefix, for judges."""
        return self.store.range(
            prefix,
            is_prefix=True,
            limit=0,
            after_key="",
            revision=0,
            max_create_revision=0,
            newest_first=False,
        ).kvs

    def _changes_after(self, revision: int) -> tuple[WatchEvent, ...]:
        if self.store.revision == revision:
            return ()
        batches = self.store.changes("", revision + 1)
        return tuple(event for batch in batches for event in batch.events)


class EtcdServer:
    """One life of the etcd process."""

    def __init__(self, network: Network, state: EtcdState, process: SimulatedProcess) -> None:
        self._loop = network.loop
        self._state = state
        self._process = process
        self._watches: dict[tuple[str, int, int], tuple[_Watch, Reply]] = {}
        state.on_change = self._tell_watches
        state.extend_all()
        network.listen(HOST, PORT, Listener(process, self._on_request))
        self._expire()

    def _expire(self) -> None:
        self._state.expire()
        # A lease that is granted meanwhile lasts longer than this.
        earliest = min((lease.expires_at for lease in self._state.leases.values()), default=math.inf)
        delay = min(earliest - self._loop.time(), LEASE_SECONDS_MIN)
        self._process.post_later(max(delay, 0.001), self._expire)

    def _on_request(self, payload: Any, reply: Reply) -> None:
        if isinstance(payload, _Watch):
            self._on_watch(payload, reply)
            return
        trouble, now = self._state.trouble, self._loop.time()
        if payload.is_renewal:
            self._process.post_later(trouble.renewal_delay(), reply, self._do(payload))
        elif held_up := trouble.held_up(payload.member, now):
            self._process.post_later(held_up, self._on_request, payload, reply)
        elif payload.is_write and (lateness := trouble.lateness()):
            self._process.post_later(lateness, self._do, payload)
        elif not (silence := trouble.silence(payload.member, now)):
            reply(self._do(payload))
        elif payload.is_write:
            self._process.post_later(silence, reply, self._do(payload))
        else:
            self._process.post_later(silence, self._on_request, payload, reply)

    def _do(self, request: _Request) -> object:
        self._state.expire()
        try:
            return request.work(self._state, request.client)
        except FlinklikeError as error:
            return error

    def _on_watch(self, watch: _Watch, reply: Reply) -> None:
        self._watches.pop(watch.name, None)
        if not watch.start_revision:
            reply((self._state.store.revision + 1, ()))
        elif not self._answer(watch, reply):
            self._watches[watch.name] = (watch, reply)

    def _answer(self, watch: _Watch, reply: Reply) -> bool:
        store, trouble = self._state.store, self._state.trouble
        if silence := trouble.silence(watch.member, self._loop.time()):
            self._process.post_later(silence, self._catch_up, watch.name)
            return False
        try:
            batches = tuple(store.changes(watch.prefix, watch.start_revision))
        except CompactedError as error:
            reply(error)
            return True
        if batches:
            reply((store.revision + 1, () if trouble.loses_change() else batches))
        return bool(batches)

    def _catch_up(self, name: tuple[str, int, int]) -> None:
        found = self._watches.get(name)
        if found is not None and self._answer(*found):
            del self._watches[name]

    def _tell_watches(self, events: tuple[WatchEvent, ...]) -> None:
        for name, (watch, reply) in list(self._watches.items()):
            if any(event.kv.key.startswith(watch.prefix) for event in events) and self._answer(watch, reply):
                del self._watches[name]


class SimulatedKeyValueStore:
    """KeyValueStore of one process."""

    def __init__(self, network: Network, entropy: SeededEntropy) -> None:
        self._network = network
        self._entropy = entropy
        self._process = current_process()
        self._watch_count = 0
        self._member = int(entropy.uniform(0, MEMBERS))

    async def _ask(
        self,
        what: str,
        work: Callable[[EtcdState, str], object],
        timeout: float,
        *,
        is_write: bool = False,
        is_renewal: bool = False,
    ) -> Any:
        member = self._member
        request = _Request(self._process.name, work, member, is_write, is_renewal)
        try:
            answer = await self._network.request(self._process, ADDRESS, request, timeout=timeout)
        except RefusedError as error:
            message = f"{what}: etcd is not reachable"
            raise UnavailableError(message) from error
        except (TimeoutError, ConnectionLostError) as error:
            if member == self._member:
                self._member = (member + 1) % MEMBERS
            message = f"{what}: etcd's answer was lost"
            raise (OutcomeUnknownError(message) if is_write else UnavailableError(message)) from error
        if isinstance(answer, CompactedError):
            raise CompactedError(str(answer), compact_revision=answer.compact_revision)
        if isinstance(answer, FlinklikeError):
            raise type(answer)(str(answer))
        return answer

    async def txn(self, txn: Txn, /, *, timeout: float) -> TxnResult:
        """Run one transaction."""
        result: TxnResult = await self._ask(
            "transaction", lambda state, client: state.apply(client, txn), timeout, is_write=True
        )
        return result

    async def range(
        self,
        key: str,
        /,
        *,
        is_prefix: bool,
        timeout: float,
        limit: int = 0,
        after_key: str = "",
        revision: int = 0,
        max_create_revision: int = 0,
        newest_first: bool = False,
    ) -> RangeResult:
        """A linearizable read."""

        def read(state: EtcdState, client: str) -> RangeResult:
            if key.partition("/taskmanagers/")[2]:
                state.note_contact(client)
            return state.store.range(
                key,
                is_prefix=is_prefix,
                limit=limit,
                after_key=after_key,
                revision=revision,
                max_create_revision=max_create_revision,
                newest_first=newest_first,
            )

        result: RangeResult = await self._ask(f"read of {key}", read, timeout)
        return result

    async def prefix_state(self, prefix: str, /, *, timeout: float) -> PrefixState:
        """How many, and the youngest."""
        found: PrefixState = await self._ask(
            f"look at {prefix}", lambda state, _: state.store.prefix_state(prefix), timeout
        )
        return found

    async def grant_lease(self, ttl: int, /, *, timeout: float) -> int:
        """A new lease."""
        lease: int = await self._ask(
            "grant of a lease", lambda state, _client: state.grant(ttl), timeout, is_write=True
        )
        return lease

    async def keep_lease_alive(self, lease: int, /, *, timeout: float) -> int:
        """Renew; 0 when it is gone."""
        ttl: int = await self._ask(
            f"renewal of lease {lease}", lambda state, _: state.keep_alive(lease), timeout, is_renewal=True
        )
        return ttl

    async def revoke_lease(self, lease: int, /, *, timeout: float) -> None:
        """End a lease."""
        await self._ask(f"end of lease {lease}", lambda state, _: state.end_lease(lease), timeout, is_write=True)

    async def watch(self, prefix: str, /, *, start_revision: int) -> AsyncGenerator[WatchBatch, None]:
        """Every change, over all connections."""
        self._watch_count += 1
        name = (self._process.name, self._process.number, self._watch_count)
        is_resumed = False
        while True:
            try:
                watch = _Watch(name, prefix, start_revision, self._member)
                answer = await self._network.request(
                    self._process, ADDRESS, watch, timeout=_WATCH_PATIENCE, is_kept_alive=True
                )
            except TimeoutError:
                continue
            except (RefusedError, ConnectionLostError):
                await asyncio.sleep(self._entropy.uniform(0.05, 0.5))
                is_resumed = bool(start_revision)
                continue
            if isinstance(answer, CompactedError):
                raise CompactedError(str(answer), compact_revision=answer.compact_revision)
            start_revision, batches = answer
            if is_resumed:
                is_resumed = False
                yield WatchBatch(start_revision - 1, ())
            for batch in batches:
                yield batch

    async def compact(self, revision: int, /, *, timeout: float) -> None:
        """Forget history."""
        await self._ask("compaction", lambda state, _: state.store.compact(revision), timeout)

    async def status(self, *, timeout: float) -> StoreStatus:
        """Size and revision."""

        def look(state: EtcdState, _client: str) -> StoreStatus:
            size = state.store.size_bytes
            return StoreStatus("3.6.0", state.store.revision, size, QUOTA_BYTES, size, "etcd")

        status: StoreStatus = await self._ask("status", look, timeout)
        return status

    async def defragment(self, *, timeout: float) -> None:
        """Nothing to do."""
        await self._ask("defragmentation", lambda _state, _client: None, timeout)

    async def close(self) -> None:
        """Nothing is open."""
