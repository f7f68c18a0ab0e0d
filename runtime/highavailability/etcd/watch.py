"""Watcher: one watch that ends only by compaction, missing rights and the end of its store.

Invariants: batches come in the order of revisions, each revision once and whole; after a reconnect the watch resumes
at the last revision that it delivered + 1, and delivers a batch without events; a watch never ends without an error.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncGenerator
from contextlib import aclosing

import grpc

from runtime.aio.retry import RetryPolicy
from runtime.common.entropy import Entropy
from runtime.common.errors import UnauthenticatedError, UnavailableError
from runtime.highavailability.etcd import messages
from runtime.highavailability.etcd.channels import Connection, Metadata
from runtime.highavailability.etcd.generated import flinklike_etcdpb_pb2 as pb
from runtime.highavailability.etcd.session import EtcdSession
from runtime.highavailability.etcd.status import Verdict, judge, needs_login
from runtime.highavailability.kv.key_value_store import CompactedError, WatchBatch
from runtime.highavailability.record_seal import RecordSeal

logger = logging.getLogger(__name__)

_RECONNECT = RetryPolicy(delay_initial=0.05, delay_max=1.0)
_LOGIN_TIMEOUT = 5.0
_LOGINS_MAX = 2


class Watcher:
    """State of one watch over its reconnects."""

    def __init__(
        self,
        session: EtcdSession,
        entropy: Entropy,
        prefix: str,
        start_revision: int,
        seal: RecordSeal | None = None,
    ) -> None:
        self._session = session
        self._seal = seal
        self._entropy = entropy
        self._prefix = prefix
        self._next_revision = start_revision
        self._failures = 0
        self._logins = 0

    async def batches(self) -> AsyncGenerator[WatchBatch, None]:
        """All changes. Raises CompactedError, UnauthenticatedError, UnavailableError (the store is closed)."""
        is_resumed = False
        while True:
            connection = self._session.connection()
            try:
                metadata = await self._session.metadata(connection, timeout=_LOGIN_TIMEOUT)
                async with aclosing(connection.watch(self._request(), metadata=_with_leader(metadata))) as responses:
                    async for response in responses:
                        if response.canceled:
                            await self._on_cancelled(connection, metadata, response)
                            break
                        if response.created:
                            self._on_created(response)
                            if is_resumed:
                                yield WatchBatch(self._next_revision - 1, ())
                        if response.events:
                            batch = messages.from_events(response, self._seal)
                            self._next_revision = batch.revision + 1
                            yield batch
            except grpc.aio.AioRpcError as error:
                await self._on_error(connection, error)
            except UnavailableError as error:
                logger.info("watch of %s: %s", self._prefix, error)
            is_resumed = True
            self._session.rotate_from(connection)
            await asyncio.sleep(_RECONNECT.delay(self._failures, self._entropy))
            self._failures += 1

    def _request(self) -> pb.WatchRequest:
        key = messages.to_key(self._prefix)
        return pb.WatchRequest(
            create_request=pb.WatchCreateRequest(
                key=key, range_end=messages.prefix_end(key), start_revision=self._next_revision
            )
        )

    def _on_created(self, response: pb.WatchResponse) -> None:
        self._failures = self._logins = 0
        if not self._next_revision:
            # Fixed now, so that a reconnect before the first event misses no change.
            self._next_revision = response.header.revision + 1

    async def _on_cancelled(self, connection: Connection, metadata: Metadata, response: pb.WatchResponse) -> None:
        """etcd answers created + canceled when it refuses a watch, and canceled when it ends one."""
        reason = response.cancel_reason
        if response.compact_revision:
            message = f"watch of {self._prefix} from revision {self._next_revision}: compacted"
            raise CompactedError(message, compact_revision=response.compact_revision)
        # etcd 3.5.1 reports a missing permission also when the token has expired: a new login tells the two apart.
        is_refused = needs_login(reason) or "permission denied" in reason
        if is_refused and await self._logged_in(connection, metadata):
            return
        if is_refused:
            message = f"watch of {self._prefix}: {reason}"
            raise UnauthenticatedError(message)
        logger.info("watch of %s was ended by etcd (%s): resuming at %s", self._prefix, reason, self._next_revision)

    async def _on_error(self, connection: Connection, error: grpc.aio.AioRpcError) -> None:
        details = error.details() or ""
        verdict = judge(error)
        if verdict is Verdict.RELOGIN and await self._logged_in(connection, (("token", connection.token),)):
            return
        if verdict is Verdict.RELOGIN or error.code() in _REFUSALS:
            message = f"watch of {self._prefix}: {details}"
            raise UnauthenticatedError(message) from error
        logger.info("watch of %s is disconnected (%s): resuming at %s", self._prefix, details, self._next_revision)

    async def _logged_in(self, connection: Connection, metadata: Metadata) -> bool:
        """Replace the token with which a stream was refused; False when logins have failed to help."""
        if not self._session.has_user or self._logins >= _LOGINS_MAX:
            return False
        self._logins += 1
        await self._session.login(connection, stale_token=metadata[0][1], timeout=_LOGIN_TIMEOUT)
        return True


_REFUSALS = frozenset({grpc.StatusCode.PERMISSION_DENIED, grpc.StatusCode.UNAUTHENTICATED})


def _with_leader(metadata: Metadata) -> Metadata:
    """With this metadata a member that is cut off from the others ends the stream instead of staying silent."""
    return (*metadata, ("hasleader", "true"))
