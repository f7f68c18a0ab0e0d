"""Every kind of fault really happens, and after the healing nothing of it is left."""

from __future__ import annotations

import errno
import logging
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from runtime.blob.directory import open_directory
from runtime.common.errors import StorageExhaustedError
from runtime.common.ids import JobId
from runtime.highavailability.record_codec import UnreadableRecordError, decode_record
from runtime.highavailability.records import GraphRecord
from tests.kit.simulation.etcd import HOST
from tests.kit.simulation.faults import SURVIVABLE, Fate, FaultKind
from tests.kit.simulation.history import TEMPLATE_KILLED, BlobDeleted, Damaged, Fault
from tests.kit.simulation.network import Weather
from tests.kit.simulation.processes import Life, SimulatedLoop, SimulatedProcess
from tests.kit.simulation.seeds import keep, on_virtual_time
from tests.kit.simulation.storage import URL, SimulatedFileSystem
from tests.kit.simulation.world import Shape, World, until

WORDS = {
    FaultKind.COMPACTION: ("forgets history", HOST),
    FaultKind.ETCD_AWAY: ("is ", HOST),
    FaultKind.ETCD_OUTAGE: ("is ", HOST),
    FaultKind.ETCD_FULL: ("has no room", HOST),
    FaultKind.ETCD_MEMBER_BEHIND: ("member ", HOST),
    FaultKind.ETCD_LATE: ("executes late", HOST),
    FaultKind.WATCH_LOSES_CHANGES: ("does not tell", HOST),
    FaultKind.LEADER_CRASH: ("is killed", "jm-"),
    FaultKind.LEADER_FREEZE: ("is frozen", "jm-"),
    FaultKind.LEADER_RESIGN: ("is told to stop", "jm-"),
    FaultKind.LEADER_CUT_OFF: ("cannot send to etcd", "jm-"),
    FaultKind.JOB_MASTER_CRASH: ("is killed", "master-"),
    FaultKind.JOB_MASTER_FREEZE: ("is frozen", "master-"),
    FaultKind.LEADER_DEAF: ("listens no more", "jm-"),
    FaultKind.JOB_MASTER_DEAF: ("listens no more", "master-"),
    FaultKind.JOB_MASTER_STOP: ("is told to stop", "master-"),
    FaultKind.JOB_MASTER_DRAIN: ("drains", "operator"),
    FaultKind.JOB_MOVE: ("wants to move a job", "operator"),
    FaultKind.TASK_MANAGER_CRASH: ("is killed", "tm-"),
    FaultKind.TASK_MANAGER_FREEZE: ("is frozen", "tm-"),
    FaultKind.TASK_MANAGER_STOP: ("is told to stop", "tm-"),
    FaultKind.TASK_MANAGER_DRAIN: ("drains tm-", "operator"),
    FaultKind.TEMPLATE_CRASH: (TEMPLATE_KILLED, "tm-"),
    FaultKind.GUARDS_CRASH: ("has no guard any more", "tm-"),
    FaultKind.POWER_CUT: ("is killed", "etcd"),
    FaultKind.PARTITION: ("cannot send to", ""),
    FaultKind.LEADER_STUCK: ("is stuck", "jm-"),
    FaultKind.JOB_MASTER_STUCK: ("is stuck", "master-"),
}
"""What the history says of a kind, and of whom."""

WEATHER = {
    FaultKind.SLOW_LINKS: ("slow_max",),
    FaultKind.LOST_MESSAGES: ("lost_before", "lost_after"),
    FaultKind.DUPLICATES: ("duplicated",),
    FaultKind.BROKEN_STREAMS: ("broken_wire",),
    FaultKind.BROKEN_TASK_STREAMS: ("broken_task_wire",),
}


@pytest.fixture(autouse=True)
def _quiet() -> Iterator[None]:
    logging.disable(logging.CRITICAL)
    yield
    logging.disable(logging.NOTSET)


Storage = Callable[[SimulatedProcess | None], float]


def suffer(run: Path, kind: FaultKind) -> tuple[World, Weather, Storage]:
    """A world under one kind of fault, after its healing; and the weather and the storage that it had."""

    async def main(loop: SimulatedLoop) -> tuple[World, Weather, Storage]:
        worlds = (keep(World(loop, f"faults/{number}", run, Shape())) for number in range(20))
        fates = ((world, Fate(world, frozenset({kind}), duration=40.0)) for world in worlds)
        world, fate = next((world, fate) for world, fate in fates if fate.kinds and not fate.only_loses_sight)
        world.start()
        await until(lambda: all(map(world.is_ready, world.names[1:])), within=10.0)
        seen: list[tuple[Weather, Storage]] = []
        loop.call_later(1.0, lambda: seen.append((world.network.weather, loop.storage_delay)))
        await fate.run()
        assert all(world.processes[name].life is Life.RUNNING for name in world.names)
        assert await until(lambda: all(map(world.is_ready, world.names[1:])), within=30.0)
        return world, *seen[0]

    return on_virtual_time(main)


@pytest.mark.parametrize("kind", list(WORDS), ids=lambda kind: kind.value)
def test_it_happens(kind: FaultKind, tmp_path: Path) -> None:
    world, _, _ = suffer(tmp_path, kind)
    words, whom = WORDS[kind]
    happened = [
        record
        for record in world.history.records
        if isinstance(record.what, Fault) and words in record.what.what and record.process.startswith(whom)
    ]
    assert happened


def test_records_of_who_is_there_are_of_another_version(tmp_path: Path) -> None:
    world, _, _ = suffer(tmp_path, FaultKind.UNREADABLE_RECORD)
    spoiled = [record.what.key for record in world.history.records if isinstance(record.what, Damaged)]
    assert spoiled


@pytest.mark.parametrize("kind", list(WEATHER), ids=lambda kind: kind.value)
def test_the_weather_is_bad_and_clears_up(kind: FaultKind, tmp_path: Path) -> None:
    world, weather, _ = suffer(tmp_path, kind)
    assert all(getattr(weather, name) > 0 for name in WEATHER[kind])
    assert world.network.weather == Weather()


def test_slow_storage_is_slow(tmp_path: Path) -> None:
    world, _, storage = suffer(tmp_path, FaultKind.STORAGE_SLOW)
    assert max(storage(None) for _ in range(50)) > 0.01
    assert world.loop.storage_delay(None) < 0.001, "healed"


def test_failing_storage_fails_now_and_then_inside_of_its_operations(tmp_path: Path) -> None:
    mishaps: list[int] = []

    async def main(loop: SimulatedLoop) -> None:
        world = keep(World(loop, "storage", tmp_path, Shape()))
        fate = Fate(world, frozenset({FaultKind.STORAGE_FAILS}), duration=5.0)
        fate.kinds = [FaultKind.STORAGE_FAILS]
        world.start()
        loop.call_later(1.0, lambda: mishaps.extend(SimulatedFileSystem.mishap() for _ in range(1000)))
        await fate.run()
        assert SimulatedFileSystem.mishap() == 0, "healed"

    on_virtual_time(main)
    assert {errno.EIO, errno.ENOSPC} < set(mishaps)
    assert mishaps.count(0) > 500


def test_storage_keeps_files_and_tells_what_is_deleted(tmp_path: Path) -> None:
    async def main(loop: SimulatedLoop) -> None:
        world = keep(World(loop, "storage", tmp_path, Shape()))
        directory = open_directory(URL)
        staged = directory.stage("draft")
        staged.write(b"bytes")
        staged.publish("objects/abc")
        assert directory.open("objects/abc").read() == b"bytes"
        assert SimulatedFileSystem.has("abc")
        directory.delete("objects/abc")
        assert [record.what for record in world.history.records] == [BlobDeleted("abc")]
        SimulatedFileSystem.mishap = staticmethod(lambda: errno.ENOSPC)
        with pytest.raises(StorageExhaustedError):
            directory.stage("another")

    on_virtual_time(main)


def test_full_storage_takes_nothing_and_keeps_no_part_of_it(tmp_path: Path) -> None:
    async def main(loop: SimulatedLoop) -> None:
        world = keep(World(loop, "storage", tmp_path, Shape()))
        directory = open_directory(URL)
        SimulatedFileSystem.takes_nothing = errno.ENOSPC
        staged = directory.stage("draft")
        with pytest.raises(StorageExhaustedError):
            staged.write(b"bytes")
        assert SimulatedFileSystem.has("draft"), "a part of it is there"
        staged.discard()
        assert not SimulatedFileSystem.store
        SimulatedFileSystem.heal()
        directory.stage("draft").write(b"bytes")
        assert not [record for record in world.history.records if isinstance(record.what, BlobDeleted)]

    on_virtual_time(main)


def test_a_lost_object_is_told(tmp_path: Path) -> None:
    async def main(loop: SimulatedLoop) -> None:
        world = keep(World(loop, "storage", tmp_path, Shape()))
        directory = open_directory(URL)
        for name in ("probe/abc", "blobs/de/def"):
            staged = directory.stage("draft")
            staged.write(b"bytes")
            staged.publish(name)
        for _ in range(3):
            SimulatedFileSystem.lose(lambda low, _high: low)
        assert [record.what for record in world.history.records] == [Damaged("def")]
        assert SimulatedFileSystem.has("abc")

    on_virtual_time(main)


def test_a_spoiled_record_cannot_be_read_and_its_watchers_see_it(tmp_path: Path) -> None:
    async def main(loop: SimulatedLoop) -> None:
        world = keep(World(loop, "storage", tmp_path, Shape()))
        key = world.keys.graph(JobId("1" * 32))
        seen: list[str] = []
        world.etcd_state.on_change = lambda events: seen.extend(event.kv.key for event in events)
        world.etcd_state.spoil(key)
        (kv,) = world.etcd_state.everything(key)
        with pytest.raises(UnreadableRecordError):
            decode_record(GraphRecord, kv.value, key=key)
        assert seen == [key]
        assert [record.what for record in world.history.records] == [Damaged(key)]

    on_virtual_time(main)


def test_every_kind_is_tested() -> None:
    storage = {kind for kind in FaultKind if kind.value.startswith("storage-")}
    spoiled = {FaultKind.CORRUPT_RECORD, FaultKind.UNREADABLE_RECORD}
    tested = {*WORDS, *WEATHER, *storage, *spoiled, FaultKind.LEASES_LAPSE}
    assert tested == set(FaultKind)
    assert set(FaultKind) >= SURVIVABLE
