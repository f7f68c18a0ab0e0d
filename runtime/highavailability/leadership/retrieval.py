"""LeaderRetrieval: follows the candidates' keys, and tells the leader's addresses and epoch."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from runtime.aio.watch import Watch
from runtime.common.entropy import Entropy
from runtime.common.fencing import FencingToken
from runtime.common.ids import ClusterUuid
from runtime.highavailability.keys import Keys
from runtime.highavailability.kv.follower import follow
from runtime.highavailability.kv.key_value_store import KeyValue, KeyValueStore
from runtime.highavailability.record_codec import UnreadableRecordError, decode_record
from runtime.highavailability.records import LeaderRecord

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class LeaderInformation:
    """The leader and its epoch, which calls carry as *target* (R1)."""

    record: LeaderRecord
    epoch: int
    token: FencingToken


class LeaderRetrieval:
    """`leader` is the latest known leader, None while there is none. `run` keeps it up to date."""

    def __init__(
        self, kv: KeyValueStore, keys: Keys, cluster: ClusterUuid, entropy: Entropy, *, timeout: float
    ) -> None:
        self._kv = kv
        self._keys = keys
        self._cluster = cluster
        self._entropy = entropy
        self._timeout = timeout
        self.leader: Watch[LeaderInformation | None] = Watch(None)
        self.present: Watch[tuple[LeaderRecord, ...]] = Watch(())
        """The JobManagers that lead or stand by, the leader first; without those whose records cannot be read."""

    @property
    def candidates(self) -> tuple[LeaderRecord, ...]:
        """The latest known ones."""
        return self.present.value

    async def run(self) -> None:
        """Follow until cancelled."""
        async for candidates in follow(self._kv, self._keys.leaders, timeout=self._timeout, entropy=self._entropy):
            if (records := tuple(_records(candidates))) != self.present.value:
                self.present.set(records)
            leader = self._leader_of(candidates)
            if leader != self.leader.value:
                self.leader.set(leader)

    def _leader_of(self, candidates: Mapping[str, KeyValue]) -> LeaderInformation | None:
        oldest = min(candidates.values(), key=lambda kv: kv.create_revision, default=None)
        if oldest is None:
            return None
        try:
            record = decode_record(LeaderRecord, oldest.value, key=oldest.key)
        except UnreadableRecordError:
            logger.exception("the leader's record cannot be read")
            return None
        return LeaderInformation(record, oldest.create_revision, FencingToken(self._cluster, oldest.create_revision))


def _records(candidates: Mapping[str, KeyValue]) -> Iterator[LeaderRecord]:
    for kv in sorted(candidates.values(), key=lambda one: one.create_revision):
        try:
            yield decode_record(LeaderRecord, kv.value, key=kv.key)
        except UnreadableRecordError as error:
            logger.debug("a candidate's record cannot be read: %s", error)
