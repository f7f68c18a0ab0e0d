"""What savepoints that have failed have left: which goes, and which never does."""

from __future__ import annotations

import logging
from pathlib import Path
from types import SimpleNamespace
from typing import cast

import pytest

from runtime.aio.clock import LoopClock
from runtime.common.ids import Incarnation, JobId
from runtime.gateways.operations import OperationKind, OperationState, StreamOperation
from runtime.highavailability.jobs.payloads import inline_payload
from runtime.highavailability.keys import Keys
from runtime.highavailability.kv.key_value_store import Put, Txn
from runtime.highavailability.kv.memory import MemoryKeyValueStore
from runtime.highavailability.record_codec import encode_record
from runtime.highavailability.records import GraphRecord, OperationRecord
from runtime.highavailability.services import HighAvailabilityServices
from runtime.taskexecutor.directories.failed_savepoints import LeftSavepoints
from runtime.taskexecutor.job_lookups import JobLookups

NAME = "savepoint-aaaaaa-000000000001"


@pytest.fixture
def left(tmp_path: Path) -> Path:
    part = tmp_path / f".{NAME}.part"
    (part / "orders" / "0").mkdir(parents=True)
    (part / "orders" / "0" / "metadata").touch()
    (tmp_path / ".savepoint-bbbbbb-000000000002.part").mkdir()
    (tmp_path / "savepoint-cccccc-000000000003").mkdir()
    return tmp_path


def collector(*directories: Path | str) -> LeftSavepoints:
    async def failed() -> list[str]:
        return [str(one) for one in directories]

    return LeftSavepoints(failed)


def names(directory: Path) -> set[str]:
    return {one.name for one in directory.iterdir()}


@pytest.mark.asyncio
async def test_only_what_a_record_says_has_failed_goes(left: Path) -> None:
    collected = collector(left / NAME, left / "savepoint-cccccc-000000000003", left / "orders", "savepoint-relative")
    assert await collected.activate() == 1
    assert names(left) == {
        ".savepoint-bbbbbb-000000000002.part",
        "savepoint-cccccc-000000000003",
    }
    assert await collected.activate() == 0


@pytest.mark.asyncio
async def test_what_was_half_deleted_goes_too(left: Path) -> None:
    (left / f".{NAME}.part").rename(left / f".{NAME}.part.gone")
    assert await collector(left / NAME).activate() == 1
    assert not {one for one in names(left) if NAME in one}


@pytest.mark.asyncio
async def test_what_cannot_be_deleted_is_tried_again(left: Path, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.WARNING)
    (left / f".{NAME}.part.gone").symlink_to(left)
    assert await collector(left / NAME).activate() == 0
    assert "cannot be deleted, it is tried again" in caplog.text
    assert (left / f".{NAME}.part").exists()


@pytest.mark.asyncio
async def test_what_nobody_completes_any_more_has_failed() -> None:
    kv, keys = MemoryKeyValueStore(LoopClock()), Keys("a" * 32)
    services = cast("HighAvailabilityServices", SimpleNamespace(kv=kv, keys=keys))
    jobs = JobLookups(services, Incarnation("b" * 32), 5.0)
    running, over = JobId("1" * 32), JobId("2" * 32)
    ops = [Put(keys.graph(running), encode_record(GraphRecord(inline_payload(b"graph"), "job", 1, "client")))]
    for job_id in (running, over):
        for number, state in enumerate(OperationState):
            one = StreamOperation(f"{number:032x}", OperationKind.STOP, state, 1, 1, f"/s/{job_id[:1]}-{state.name}")
            ops.append(Put(keys.operation(job_id, one.trigger_id), encode_record(OperationRecord(one))))
    ops.append(Put(keys.operation(over, "f" * 32), b"unreadable"))
    await kv.txn(Txn((), tuple(ops)), timeout=5)
    assert list(await jobs.failed_savepoints()) == ["/s/1-FAILED", "/s/2-IN_PROGRESS", "/s/2-FAILED"]
