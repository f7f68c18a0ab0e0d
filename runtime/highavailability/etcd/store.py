"""EtcdKeyValueStore: KeyValueStore over a real etcd. One object per process."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncGenerator, Awaitable, Callable
from typing import Protocol, TypeVar

import grpc

from runtime.common.clock import Clock, Deadline
from runtime.common.entropy import Entropy
from runtime.common.errors import FlinklikeError, UnavailableError
from runtime.highavailability.etcd import messages
from runtime.highavailability.etcd.channels import Connection, Metadata
from runtime.highavailability.etcd.generated import flinklike_etcdpb_pb2 as pb
from runtime.highavailability.etcd.position import Position, store_id_of
from runtime.highavailability.etcd.session import EtcdSession
from runtime.highavailability.etcd.settings import EtcdSettings, check_version
from runtime.highavailability.etcd.status import Verdict, judge, translate
from runtime.highavailability.etcd.watch import Watcher
from runtime.highavailability.kv.core.mvcc import check_txn
from runtime.highavailability.kv.key_value_store import (
    CompactedError,
    LeaseNotFoundError,
    PrefixState,
    RangeResult,
    StoreMember,
    StoreStatus,
    Txn,
    TxnResult,
    WatchBatch,
)
from runtime.highavailability.record_seal import RecordSeal

logger = logging.getLogger(__name__)

RequestT_contra = TypeVar("RequestT_contra", contravariant=True)
ResponseT_co = TypeVar("ResponseT_co", covariant=True)
RequestT = TypeVar("RequestT")
ResponseT = TypeVar("ResponseT")


class _Method(Protocol[RequestT_contra, ResponseT_co]):
    """One call of a connection."""

    def __call__(
        self, request: RequestT_contra, /, *, timeout: float, metadata: Metadata
    ) -> Awaitable[ResponseT_co]: ...


class EtcdKeyValueStore:
    """Every call has a deadline, tries the other endpoints only when it was surely not executed (or is a read), and
    logs in again when etcd asks for it. With a seal it writes sealed records, and returns opened ones (R38).
    """

    def __init__(self, settings: EtcdSettings, clock: Clock, entropy: Entropy, seal: RecordSeal | None = None) -> None:
        self._settings = settings
        self._seal = seal
        self._clock = clock
        self._entropy = entropy
        self._session = EtcdSession(settings, clock)
        self._position = Position()

    async def connect(self) -> None:
        """Make the connections, without a request: another process has checked etcd's version. Idempotent."""
        await self._session.open()

    async def open(self, *, timeout: float) -> None:
        """Connect, log in, and look at the version of every endpoint that answers.

        Raises UnavailableError when none answers, UnauthenticatedError, UnsafeEtcdVersionError.
        """
        await self._session.open()
        failure: FlinklikeError | None = None
        reached = 0
        for connection in self._session.connections:
            try:
                status = await self._status_of(connection, timeout=timeout)
            except UnavailableError as error:
                logger.warning("etcd endpoint %s does not answer: %s", connection.endpoint, error)
                failure = error
                self._session.rotate_from(connection)
                continue
            reached += 1
            check_version(
                status.version, endpoint=connection.endpoint, allow_unsafe=self._settings.allow_unsafe_version
            )
        if not reached:
            message = f"none of the etcd endpoints {', '.join(self._settings.endpoints)} answers: {failure}"
            raise UnavailableError(message) from failure

    async def txn(self, txn: Txn, /, *, timeout: float) -> TxnResult:
        """Run one transaction."""
        check_txn(txn)
        at_least = self._position.revision
        response = await self._call(
            "transaction",
            lambda connection: connection.txn,
            messages.to_txn(txn, self._seal),
            timeout=timeout,
            is_write=True,
        )
        self._position.note(response.header, at_least)
        return messages.from_txn(txn, response, response.header.revision, self._seal)

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
        request = messages.to_range(
            key,
            is_prefix=is_prefix,
            limit=limit,
            after_key=after_key,
            revision=revision,
            max_create_revision=max_create_revision,
            newest_first=newest_first,
        )
        at_least = self._position.revision
        response = await self._call(
            f"read of {key}", lambda connection: connection.range, request, timeout=timeout, is_write=False
        )
        self._position.note(response.header, at_least)
        kvs = tuple(messages.from_kv(kv, self._seal) for kv in response.kvs)
        return RangeResult(response.header.revision, kvs, response.count)

    async def prefix_state(self, prefix: str, /, *, timeout: float) -> PrefixState:
        """Count and youngest revision: etcd sends one key, without its value."""
        at_least = self._position.revision
        response = await self._call(
            f"look at {prefix}",
            lambda connection: connection.range,
            messages.to_youngest(prefix),
            timeout=timeout,
            is_write=False,
        )
        self._position.note(response.header, at_least)
        youngest = response.kvs[0].mod_revision if response.kvs else 0
        return PrefixState(response.header.revision, response.count, youngest)

    async def grant_lease(self, ttl: int, /, *, timeout: float) -> int:
        """A new lease. One whose grant was lost ends by itself."""
        request = pb.LeaseGrantRequest(TTL=ttl)
        response = await self._call(
            "grant of a lease", lambda connection: connection.lease_grant, request, timeout=timeout, is_write=True
        )
        return response.ID

    async def keep_lease_alive(self, lease: int, /, *, timeout: float) -> int:
        """Renew; 0 when the lease has ended. Idempotent, so a lost answer is only UnavailableError."""
        request = pb.LeaseKeepAliveRequest(ID=lease)
        response = await self._call(
            f"renewal of lease {lease:x}",
            lambda connection: connection.keep_alive,
            request,
            timeout=timeout,
            is_write=False,
        )
        return max(0, response.TTL)

    async def revoke_lease(self, lease: int, /, *, timeout: float) -> None:
        """End a lease. Idempotent."""
        request = pb.LeaseRevokeRequest(ID=lease)
        try:
            await self._call(
                f"end of lease {lease:x}",
                lambda connection: connection.lease_revoke,
                request,
                timeout=timeout,
                is_write=True,
            )
        except LeaseNotFoundError:
            return

    def watch(self, prefix: str, /, *, start_revision: int) -> AsyncGenerator[WatchBatch, None]:
        """Every change, also over reconnects."""
        return Watcher(self._session, self._entropy, prefix, start_revision, self._seal).batches()

    async def compact(self, revision: int, /, *, timeout: float) -> None:
        """Forget history. Idempotent."""
        request = pb.CompactionRequest(revision=revision)
        try:
            await self._call(
                f"compaction to {revision}",
                lambda connection: connection.compact,
                request,
                timeout=timeout,
                is_write=False,
            )
        except CompactedError:
            return

    async def status(self, *, timeout: float) -> StoreStatus:
        """The status of the endpoint in use."""
        status = await self._call(
            "status", lambda connection: connection.status, pb.StatusRequest(), timeout=timeout, is_write=False
        )
        quota = status.db_size_quota or self._settings.quota_bytes
        header = status.header
        size, used = status.db_size, status.db_size_in_use
        return StoreStatus(status.version, header.revision, size, quota, used, store_id_of(header))

    async def members(self, *, timeout: float) -> tuple[StoreMember, ...]:
        """All configured endpoints, which are asked side by side. One that does not answer is told, not raised."""
        async with asyncio.TaskGroup() as group:
            connections = self._session.connections
            asked = [group.create_task(self._member(one, timeout=timeout)) for one in connections]
        return tuple(one.result() for one in asked)

    async def _member(self, connection: Connection, *, timeout: float) -> StoreMember:
        begin = self._clock.monotonic()
        try:
            status = await self._status_of(connection, timeout=timeout)
        except FlinklikeError as error:
            return StoreMember(connection.endpoint, problem=str(error))
        spent = 1000 * (self._clock.monotonic() - begin)
        is_leader = status.leader == status.header.member_id
        return StoreMember(connection.endpoint, "", status.version, is_leader, status.db_size, spent)

    async def defragment(self, *, timeout: float) -> None:
        """One member after the other, so that only one is away at a time; then the alarm is lifted."""
        for connection in self._session.connections:
            try:
                metadata = await self._session.metadata(connection, timeout=timeout)
                await connection.defragment(pb.DefragmentRequest(), timeout=timeout, metadata=metadata)
            except grpc.aio.AioRpcError as error:
                raise translate(error, f"defragmentation of {connection.endpoint}", is_write=False) from error
        raised = await self._alarm(pb.AlarmRequest(action=pb.AlarmRequest.GET), timeout=timeout)
        for alarm in raised.alarms:
            if alarm.alarm == pb.ALARM_NOSPACE:
                request = pb.AlarmRequest(
                    action=pb.AlarmRequest.DEACTIVATE, member_id=alarm.member_id, alarm=alarm.alarm
                )
                await self._alarm(request, timeout=timeout)

    async def _alarm(self, request: pb.AlarmRequest, *, timeout: float) -> pb.AlarmResponse:
        # Both requests may be repeated, so a lost answer is no unknown outcome.
        return await self._call("alarm", lambda connection: connection.alarm, request, timeout=timeout, is_write=False)

    async def close(self) -> None:
        """End all watches and connections. Idempotent."""
        await self._session.close()

    async def _call(
        self,
        what: str,
        select: Callable[[Connection], _Method[RequestT, ResponseT]],
        request: RequestT,
        *,
        timeout: float,
        is_write: bool,
    ) -> ResponseT:
        """One call on the connection in use, with at most one new login and one try per endpoint."""
        self._position.check()  # R35
        deadline = Deadline.after(self._clock, timeout)
        logins_left = 1
        endpoints_left = len(self._settings.endpoints)
        while True:
            connection = self._session.connection()
            remaining = max(deadline.remaining(self._clock), 0.001)
            try:
                metadata = await self._session.metadata(connection, timeout=remaining)
            except UnavailableError:
                self._session.rotate_from(connection)
                endpoints_left -= 1
                if endpoints_left and not deadline.has_passed(self._clock):
                    continue
                raise
            try:
                return await select(connection)(request, timeout=remaining, metadata=metadata)
            except grpc.aio.AioRpcError as error:
                verdict = judge(error)
                if verdict is Verdict.RELOGIN and metadata and logins_left:
                    logins_left -= 1
                    await self._session.login(connection, stale_token=metadata[0][1], timeout=remaining)
                    continue
                if verdict in {Verdict.NEXT_ENDPOINT, Verdict.UNKNOWN}:
                    self._session.rotate_from(connection)
                    endpoints_left -= 1
                may_go_on = verdict is Verdict.NEXT_ENDPOINT or (verdict is Verdict.UNKNOWN and not is_write)
                if may_go_on and endpoints_left > 0 and not deadline.has_passed(self._clock):
                    continue
                raise translate(error, what, is_write=is_write) from error

    async def _status_of(self, connection: Connection, *, timeout: float) -> pb.StatusResponse:
        try:
            metadata = await self._session.metadata(connection, timeout=timeout)
            return await connection.status(pb.StatusRequest(), timeout=timeout, metadata=metadata)
        except grpc.aio.AioRpcError as error:
            raise translate(error, f"status of {connection.endpoint}", is_write=False) from error
