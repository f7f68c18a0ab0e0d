"""Leadership of the JobManager: one candidate key per lease, the oldest leads, its create revision is the epoch.

Everybody else watches only his predecessor, so a lost leader wakes one candidate. The epoch rises with each term and
guards every write of the leader; nothing here relies on the leader noticing in time that its term is over.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable

from runtime.aio.retry import RetryPolicy
from runtime.aio.scope import Scope
from runtime.common.clock import Clock
from runtime.common.entropy import Entropy
from runtime.common.errors import RetryableError, StaleTokenError
from runtime.common.fencing import FencingToken
from runtime.common.ids import ClusterUuid
from runtime.highavailability.follower import patiently
from runtime.highavailability.guards import LeaderTerm, absent, gets, settle
from runtime.highavailability.keys import Keys
from runtime.highavailability.kv import CompactedError, KeyValue, KeyValueStore, LeaseNotFoundError, Put, Txn
from runtime.highavailability.lease import Lease, LeaseLostError, LeaseSettings
from runtime.highavailability.record_codec import encode_record
from runtime.highavailability.records import LeaderRecord

logger = logging.getLogger(__name__)

_RETRY = RetryPolicy(delay_initial=0.1, delay_max=2.0)


class LeadershipEpoch:
    """One term of leadership. Built after winning, over on loss, never reused.

    Everything that acts as leader holds this object and dies with it.
    """

    def __init__(self, term: LeaderTerm, lease: Lease, cluster: ClusterUuid) -> None:
        self.term = term
        self.token = FencingToken(cluster, term.epoch)
        self._lease = lease

    @property
    def epoch(self) -> int:
        """The create revision of the candidate's key."""
        return self.term.epoch

    @property
    def is_valid(self) -> bool:
        """False from the moment at which the lease may have ended (R4)."""
        return self._lease.is_valid


Contender = Callable[[LeadershipEpoch], Awaitable[None]]
"""Leads for one term. Cancelled when the term ends; returns to resign for good."""


class LeaderElection:
    """A candidate that stands again after each lost term."""

    def __init__(
        self,
        kv: KeyValueStore,
        keys: Keys,
        cluster: ClusterUuid,
        record: LeaderRecord,
        settings: LeaseSettings,
        clock: Clock,
        entropy: Entropy,
    ) -> None:
        self._kv = kv
        self._keys = keys
        self._cluster = cluster
        self._record = encode_record(record)
        self._settings = settings
        self._clock = clock
        self._entropy = entropy

    async def run(self, contender: Contender) -> None:
        """Stand, lead, lose, stand again, until `contender` returns: then resign, so that the next one leads at once.

        Cancellation resigns too. What `contender` raises comes out (in an ExceptionGroup), except LeaseLostError and
        StaleTokenError: from those it has learned that its term is over.
        """
        failures = 0
        while True:
            try:
                if await self._one_term(contender):
                    return
                failures = 0
            except RetryableError as error:
                logger.info("candidacy failed, standing again: %s", error)
                await asyncio.sleep(_RETRY.delay(failures, self._entropy))
                failures += 1

    async def _one_term(self, contender: Contender) -> bool:
        """True when the contender has returned, False when the term was lost."""
        lease = await Lease.grant(self._kv, self._clock, self._settings)
        is_done = False
        try:
            async with Scope("election") as scope:
                scope.spawn_eternal("lease", lease.keep_alive())
                epoch = await self._win(lease)
                logger.info("leading with epoch %s", epoch.epoch)
                await contender(epoch)
                is_done = True
                scope.cancel_all()
        except* (LeaseLostError, StaleTokenError) as errors:
            logger.info("the term is over: %s", errors.exceptions[0])
        finally:
            await lease.revoke()
        return is_done

    async def _win(self, lease: Lease) -> LeadershipEpoch:
        key = self._keys.leader(lease.id)
        create_revision = await self._stand(key, lease)
        while True:
            predecessor, revision = await self._predecessor(create_revision)
            if predecessor is None:
                lease.check()
                return LeadershipEpoch(LeaderTerm(key, create_revision), lease, self._cluster)
            await self._wait_deleted(predecessor.key, revision + 1)

    async def _stand(self, key: str, lease: Lease) -> int:
        txn = Txn(guards=(absent(key),), success=(Put(key, self._record, lease.id),), failure=gets(key))
        try:
            settled = await patiently(
                lambda: settle(self._kv, txn, timeout=self._settings.timeout, entropy=self._entropy), self._entropy
            )
        except LeaseNotFoundError as error:
            message = f"lease {lease.id:x} ended before the candidacy"
            raise LeaseLostError(message) from error
        if settled.result.succeeded:
            return settled.result.revision
        (own,) = settled.answers()
        assert own is not None, key
        return own.create_revision

    async def _predecessor(self, create_revision: int) -> tuple[KeyValue | None, int]:
        answer = await patiently(
            lambda: self._kv.range(
                self._keys.leaders,
                is_prefix=True,
                timeout=self._settings.timeout,
                limit=1,
                max_create_revision=create_revision - 1,
                newest_first=True,
            ),
            self._entropy,
        )
        return (answer.kvs[0] if answer.kvs else None), answer.revision

    async def _wait_deleted(self, key: str, start_revision: int) -> None:
        try:
            async for batch in self._kv.watch(key, start_revision=start_revision):
                if any(event.is_delete and event.kv.key == key for event in batch.events):
                    return
        except CompactedError:
            # Perhaps it was deleted in what is forgotten: the caller looks again.
            return
