"""R21: what is compacted when, and when submits are refused."""

from __future__ import annotations

from dataclasses import replace

import pytest

from runtime.aio.clock import LoopClock
from runtime.common.errors import StorageExhaustedError
from runtime.highavailability.kv.compaction import COMPACTION_PERIOD, HISTORY_REVISIONS, LOOK_PERIOD, Compactor
from runtime.highavailability.kv.key_value_store import CompactedError, Put, StoreStatus, Txn
from runtime.highavailability.kv.memory import MemoryKeyValueStore
from tests.kit.control_plane.virtual_time import ManualClock, run_virtual

KEY = "/a"


async def write(kv: MemoryKeyValueStore, value: bytes = b"") -> int:
    return (await kv.txn(Txn((), (Put(KEY, value),)), timeout=1)).revision


async def is_kept(kv: MemoryKeyValueStore, revision: int) -> bool:
    try:
        await kv.range(KEY, is_prefix=False, timeout=1, revision=revision)
    except CompactedError:
        return False
    return True


def test_every_minute_to_the_revision_of_five_minutes_ago() -> None:
    async def main() -> None:
        kv, clock = MemoryKeyValueStore(LoopClock()), ManualClock()
        compactor = Compactor(kv, clock, timeout=1)
        revisions = []
        for minute in range(12):
            revisions.append(await write(kv))
            await write(kv)
            await compactor.activate()
            for past, revision in enumerate(revisions):
                # Whoever lags by less than five minutes can still follow.
                if minute - past < 5:
                    assert await is_kept(kv, revision), (minute, past)
                if minute - past > 5:
                    assert not await is_kept(kv, revision), (minute, past)
            clock.advance(COMPACTION_PERIOD)

    run_virtual(main())


def test_from_80_percent_of_the_quota_on_submits_are_refused_until_it_shrinks() -> None:
    async def main() -> None:
        kv, clock = MemoryKeyValueStore(LoopClock(), quota_bytes=10_000), ManualClock()
        compactor = Compactor(kv, clock, timeout=1)
        compactor.check_capacity()
        for _ in range(3):
            await write(kv, bytes(2000))
        await compactor.activate()
        compactor.check_capacity()
        await write(kv, bytes(2000))
        await compactor.activate()
        with pytest.raises(StorageExhaustedError):
            compactor.check_capacity()
        with pytest.raises(StorageExhaustedError):
            await write(kv, bytes(2000))
        for _ in range(6):
            clock.advance(COMPACTION_PERIOD)
            await compactor.activate()
        compactor.check_capacity()

    run_virtual(main())


class HollowStore(MemoryKeyValueStore):
    """Says that its file is nearly full with `used_bytes` in use, until it is defragmented."""

    def __init__(self, used_bytes: int) -> None:
        super().__init__(LoopClock())
        self.used_bytes = used_bytes
        self.is_defragmented = False

    async def status(self, *, timeout: float) -> StoreStatus:
        status = replace(await super().status(timeout=timeout), quota_bytes=1000, used_bytes=self.used_bytes)
        return replace(status, size_bytes=self.used_bytes if self.is_defragmented else 900)

    async def defragment(self, *, timeout: float) -> None:
        self.is_defragmented = True


@pytest.mark.parametrize("used_bytes", [100, 500, 790])
def test_a_full_file_with_room_in_it_is_defragmented(used_bytes: int) -> None:
    async def main() -> None:
        kv = HollowStore(used_bytes)
        compactor = Compactor(kv, ManualClock(), timeout=1)
        status = await compactor.activate()
        assert status.has_defragmented
        assert kv.is_defragmented
        compactor.check_capacity()

    run_virtual(main())


def test_a_file_full_of_data_is_not_defragmented_and_no_file_every_minute() -> None:
    async def main() -> None:
        kv, clock = HollowStore(used_bytes=800), ManualClock()
        compactor = Compactor(kv, clock, timeout=1)
        assert not (await compactor.activate()).has_defragmented
        kv.used_bytes = 790
        outcomes = []
        for _ in range(11):
            outcomes.append((await compactor.activate()).has_defragmented)
            kv.is_defragmented = False
            clock.advance(COMPACTION_PERIOD)
        assert outcomes == [True, *[False] * 9, True]

    run_virtual(main())


def test_a_busy_store_keeps_so_many_revisions_and_no_more() -> None:
    """Of a follower that is not further behind than that nothing is forgotten."""

    async def main() -> None:
        kv, clock = MemoryKeyValueStore(LoopClock()), ManualClock()
        compactor = Compactor(kv, clock, timeout=1)
        kept = []
        revision = 0
        for _ in range(9):
            for _ in range(HISTORY_REVISIONS // 3):
                revision = await write(kv)
            status = await compactor.activate()
            kept.append(status.revision - status.compacted_to)
            assert await is_kept(kv, revision - HISTORY_REVISIONS if revision > HISTORY_REVISIONS else revision)
            clock.advance(LOOK_PERIOD)
        assert max(kept) <= 2 * HISTORY_REVISIONS
        assert min(kept[6:]) >= HISTORY_REVISIONS

    run_virtual(main())


class WastefulStore(HollowStore):
    """A file far from its quota, most of which is not in use."""

    async def status(self, *, timeout: float) -> StoreStatus:
        status = await super().status(timeout=timeout)
        size = self.used_bytes if self.is_defragmented else self.used_bytes + (40 << 20)
        return replace(status, quota_bytes=1 << 31, size_bytes=size)


def test_the_last_answer_stays_for_who_looks() -> None:
    async def main() -> None:
        clock = ManualClock()
        compactor = Compactor(MemoryKeyValueStore(LoopClock()), clock, timeout=1)
        assert (compactor.status, compactor.looked_millis) == (None, 0)
        await compactor.activate()
        assert compactor.status is not None
        assert compactor.looked_millis == clock.epoch_millis()

    run_virtual(main())


def test_a_wasteful_file_of_an_idle_etcd_of_ours_is_defragmented() -> None:
    async def main() -> None:
        outcomes = {}
        for is_ours, writes, used in (
            (True, 0, 1 << 20),
            (True, 30, 1 << 20),
            (False, 0, 1 << 20),
            (True, 0, 90 << 20),
        ):
            kv, clock = WastefulStore(used_bytes=used), ManualClock()
            compactor = Compactor(kv, clock, timeout=1, defragments_when_idle=is_ours)
            done = []
            for _ in range(8):
                for _ in range(writes):
                    await write(kv)
                done.append((await compactor.activate()).has_defragmented)
                clock.advance(LOOK_PERIOD)
            outcomes[is_ours, writes, used] = done
        assert outcomes[True, 0, 1 << 20] == [False] * 6 + [True, False], "when it has been idle for a minute"
        assert not any(any(done) for case, done in outcomes.items() if case != (True, 0, 1 << 20))

    run_virtual(main())
