"""Leadership of the JobManager: one candidate key per lease, the oldest leads, its create revision is the epoch.

Each other candidate watches only its predecessor, so a lost leader wakes one candidate. The epoch rises with each term,
and every write of the leader is conditional on it; nothing here relies on a leader that notices in time that its term
is over.

Two short cuts: a candidate that resigns deletes its key before it stops anything, and a candidate whose predecessor is
proved dead does not wait for the predecessor's lease (protocol.md 4). Should the proof be wrong, fencing makes the
writes of the old leader harmless, and before the old leader answers that a job does not exist it looks for its own
candidate key (R4).
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
from runtime.common.ids import ClusterUuid, Incarnation
from runtime.highavailability.keys import Keys
from runtime.highavailability.kv.conditions import LeaderTerm, absent, gets, settle
from runtime.highavailability.kv.follower import follow, patiently
from runtime.highavailability.kv.key_value_store import KeyValue, KeyValueStore, LeaseNotFoundError, Put, Txn
from runtime.highavailability.kv.lease import Lease, LeaseLostError, LeaseSettings
from runtime.highavailability.record_codec import UnreadableRecordError, decode_record, encode_record
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

ProofOfDeath = Callable[[LeaderRecord], Awaitable[str]]
"""Returns the proof in words once the process of a candidate is dead. Cancelled when the proof is not needed."""


async def no_proof(_: LeaderRecord) -> str:
    """Never returns: only the end of the lease proves a candidate dead."""
    never: asyncio.Future[str] = asyncio.get_running_loop().create_future()
    return await never


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
        *,
        proof_of_death: ProofOfDeath = no_proof,
    ) -> None:
        self._kv = kv
        self._keys = keys
        self._cluster = cluster
        self._incarnation = record.incarnation
        self._record = encode_record(record)
        self._settings = settings
        self._clock = clock
        self._entropy = entropy
        self._proof_of_death = proof_of_death
        self._judged: set[Incarnation] = set()
        self._left_behind: Lease | None = None

    async def run(self, contender: Contender) -> None:
        """Stand, lead, lose, stand again, until `contender` returns: then resign, so that the next one leads at once.

        Cancellation resigns too, before `contender` is stopped: its later writes are fenced. Raises what `contender`
        raises, in an ExceptionGroup, except LeaseLostError and StaleTokenError: they say that the term is over.
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
        # A restarted etcd extends every lease by its whole ttl. This candidacy would wait for the last term's lease.
        if self._left_behind is not None and await self._left_behind.revoke():
            self._left_behind = None
        is_done = False
        try:
            async with Scope("election") as scope:
                scope.spawn_eternal("lease", lease.keep_alive())
                epoch = await self._win(lease)
                logger.info("leading with epoch %s", epoch.epoch)
                term = scope.start("term", _lead(contender, epoch))
                try:
                    _ = await asyncio.wait({term})
                except asyncio.CancelledError:
                    await lease.revoke()
                    raise
                is_done = not term.cancelled() and term.exception() is None
                scope.cancel_all()
        except* (LeaseLostError, StaleTokenError) as errors:
            logger.info("the term is over: %s", errors.exceptions[0])
        finally:
            if not await lease.revoke():
                self._left_behind = lease
        return is_done

    async def _win(self, lease: Lease) -> LeadershipEpoch:
        key = self._keys.leader(lease.id)
        create_revision = await self._stand(key, lease)
        while True:
            predecessor = await self._predecessor(create_revision)
            if predecessor is None:
                await self._check_stands(key, lease)
                lease.check()
                return LeadershipEpoch(LeaderTerm(key, create_revision), lease, self._cluster)
            async with Scope("predecessor") as scope:
                scope.spawn("proof", self._outrun(predecessor))
                await self._wait_deleted(predecessor.key)
                scope.cancel_all()

    async def _outrun(self, predecessor: KeyValue) -> None:
        """End the lease of a predecessor that is proved dead: then its key is deleted."""
        try:
            record = decode_record(LeaderRecord, predecessor.value, key=predecessor.key)
        except UnreadableRecordError:
            return
        if record.incarnation == self._incarnation:
            reason = "it is an earlier candidacy of this process"
        elif record.incarnation in self._judged:
            # The process has stood again after it had been found dead: the proof was wrong.
            return
        else:
            reason = await self._proof_of_death(record)
            self._judged.add(record.incarnation)
        logger.warning("the JobManager at %s is dead (%s): its lease is revoked", record.address, reason)
        await patiently(lambda: self._kv.revoke_lease(predecessor.lease, timeout=self._settings.timeout), self._entropy)

    async def _stand(self, key: str, lease: Lease) -> int:
        txn = Txn(conditions=(absent(key),), success=(Put(key, self._record, lease.id),), failure=gets(key))
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

    async def _check_stands(self, key: str, lease: Lease) -> None:
        """Raises LeaseLostError when another process has ended this candidate's lease while it stood by."""
        answer = await patiently(
            lambda: self._kv.range(key, is_prefix=False, timeout=self._settings.timeout), self._entropy
        )
        if not answer.kvs:
            message = f"lease {lease.id:x} was ended by another process"
            raise LeaseLostError(message)

    async def _predecessor(self, create_revision: int) -> KeyValue | None:
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
        return answer.kvs[0] if answer.kvs else None

    async def _wait_deleted(self, key: str) -> None:
        async for current in follow(self._kv, key, timeout=self._settings.timeout, entropy=self._entropy):
            if key not in current:
                return


async def _lead(contender: Contender, epoch: LeadershipEpoch) -> None:
    await contender(epoch)
