"""Conditions of transactions (etcd: compares), and the settling of unknown outcomes (R2, R32)."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence
from dataclasses import dataclass

from runtime.aio.retry import RetryPolicy
from runtime.common.entropy import Entropy
from runtime.common.errors import (
    OutcomeUnknownError,
    RetryableError,
    StaleTokenError,
    StorageExhaustedError,
    UnauthenticatedError,
)
from runtime.highavailability.kv.key_value_store import (
    Compare,
    CompareOperator,
    CompareTarget,
    Get,
    KeyValue,
    KeyValueStore,
    OpResult,
    Txn,
    TxnResult,
)

logger = logging.getLogger(__name__)

SETTLE_POLICY = RetryPolicy(delay_initial=0.05, delay_max=2.0)
"""Repeats of a transaction whose outcome is unknown: soon, then every second or so, without an end (R2)."""


@dataclass(frozen=True, slots=True)
class LeaderTerm:
    """A won election: the candidate's key and its create revision, which is the leader epoch."""

    key: str
    epoch: int


def leads(term: LeaderTerm) -> Compare:
    """The leader's term is not over."""
    return Compare(term.key, CompareTarget.CREATE_REVISION, term.epoch)


def absent(key: str) -> Compare:
    """The key does not exist."""
    return Compare(key, CompareTarget.CREATE_REVISION, 0)


def present(key: str) -> Compare:
    """The key exists."""
    return Compare(key, CompareTarget.CREATE_REVISION, 0, CompareOperator.NOT_EQUAL)


def unchanged(key: str, mod_revision: int) -> Compare:
    """The key was last written at `mod_revision`; 0: it does not exist."""
    return Compare(key, CompareTarget.MOD_REVISION, mod_revision)


def gets(*keys: str) -> tuple[Get, ...]:
    """The else-branch: the keys that settle a refused transaction."""
    return tuple(Get(key) for key in keys)


def found(result: OpResult) -> KeyValue | None:
    """The key that a Get of one key has found, None when it does not exist."""
    return result.kvs[0] if result.kvs else None


@dataclass(frozen=True, slots=True)
class Settled:
    """A transaction whose outcome is known.

    `was_repeated`: an earlier try may have been executed, so the else-branch may have found our own write.
    """

    result: TxnResult
    was_repeated: bool

    def answers(self) -> Sequence[KeyValue | None]:
        """The keys that the else-branch's Gets have found, in order."""
        return [found(result) for result in self.result.results]


async def settle(kv: KeyValueStore, txn: Txn, *, timeout: float, entropy: Entropy) -> Settled:
    """Run `txn`; while its outcome is unknown repeat it identically (R2).

    The conditions of a transaction must not hold any more once it is executed (R33): so a repeat recognises it. Raises
    the store's error for a transaction that was surely not executed. Ends only with a known outcome or by cancellation;
    after a cancellation the caller must not decide anything on the write.
    """
    is_unknown = False
    attempt = 0
    while True:
        try:
            return Settled(await kv.txn(txn, timeout=timeout), is_unknown)
        except OutcomeUnknownError:
            is_unknown = True
        except StorageExhaustedError:
            # R32: etcd may answer so for a transaction that it has executed, and takes no others until there is room.
            looked = await _look(kv, txn, timeout=timeout, entropy=entropy)
            if not looked.succeeded:
                return Settled(looked, was_repeated=True)
            # This try is over. An earlier one, which was never answered, may still be executed.
            if not is_unknown:
                raise
        except (RetryableError, UnauthenticatedError):
            # Refused now, but an earlier try may still have been executed.
            if not is_unknown:
                raise
        await _pause(attempt, entropy)
        attempt += 1


async def _look(kv: KeyValueStore, txn: Txn, *, timeout: float, entropy: Entropy) -> TxnResult:
    """What `txn` would find now, by reads alone: whether its conditions hold, else what its else-branch reads."""
    attempt = 0
    while True:
        try:
            return await _look_once(kv, txn, timeout=timeout)
        except (RetryableError, UnauthenticatedError) as error:
            logger.info("what became of a write that found the store full is not known yet: %s", error)
        await _pause(attempt, entropy)
        attempt += 1


async def _look_once(kv: KeyValueStore, txn: Txn, *, timeout: float) -> TxnResult:
    read = [op.key for op in txn.failure if isinstance(op, Get)]
    keys = dict.fromkeys([*(condition.key for condition in txn.conditions), *read])
    there: dict[str, tuple[KeyValue, ...]] = {}
    revision = 0
    for key in keys:
        answer = await kv.range(key, is_prefix=False, timeout=timeout, revision=revision)
        # All keys are read at the revision of the first read, which is after the refusal.
        revision = revision or answer.revision
        there[key] = tuple(answer.kvs)
    holds = all(one.holds(there[one.key][0] if there[one.key] else None) for one in txn.conditions)
    results = () if holds else tuple(OpResult(kvs=there[key]) for key in read)
    return TxnResult(holds, revision, results)


async def _pause(attempt: int, entropy: Entropy) -> None:
    await asyncio.sleep(SETTLE_POLICY.delay(attempt, entropy))


def check_leads(term: LeaderTerm, leader: KeyValue | None, what: str) -> None:
    """Raises StaleTokenError when the else-branch shows that the term is over."""
    if leader is None or leader.create_revision != term.epoch:
        message = f"{what}: leader term {term.epoch} is over"
        raise StaleTokenError(message)
