"""What the submission of a streaming job settles holds under owners with another configuration, and after its end."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace
from typing import cast

import pytest

from runtime.aio.clock import LoopClock
from runtime.common.checkpoint_settings import CheckpointRetention, CheckpointSettings
from runtime.common.ids import Incarnation, JobId
from runtime.common.states import JobStatus
from runtime.executiongraph.archived import ArchivedExecutionGraph
from runtime.gateways.dispatcher import JobSummary, TaskCounts
from runtime.highavailability.jobs.payloads import inline_payload
from runtime.highavailability.keys import Keys
from runtime.highavailability.kv.key_value_store import Op, Put, Txn
from runtime.highavailability.kv.memory import MemoryKeyValueStore
from runtime.highavailability.record_codec import encode_record
from runtime.highavailability.records import DoneRecord, GraphRecord, ResultRecord
from runtime.highavailability.services import HighAvailabilityServices
from runtime.taskexecutor.job_lookups import JobLookups
from tests.kit.control_plane.job_master_box import JobMasterBox, job_master_box
from tests.kit.control_plane.plane import eventually
from tests.kit.control_plane.streaming_jobs import streaming_job

JOB = JobId("1" * 32)
SETTLED = CheckpointSettings(interval=7.0, retention=CheckpointRetention.DELETE_ON_CANCELLATION)


async def interval_of(box: JobMasterBox, settled: CheckpointSettings | None) -> int:
    """What the first owner of a streaming job goes by."""
    runner, _ = box.start(await box.assign(JOB, streaming_job("orders"), settled=settled))

    def shown() -> ArchivedExecutionGraph:
        return ArchivedExecutionGraph.from_json(runner.archived_graph())

    await eventually(lambda: shown().checkpoints is not None)
    found = shown().checkpoints
    assert found is not None
    return found.interval_millis


@pytest.mark.asyncio
async def test_an_owner_goes_by_what_is_stored_with_the_job() -> None:
    async with job_master_box() as box:
        assert await interval_of(box, SETTLED) == 7000


@pytest.mark.asyncio
async def test_a_job_of_an_earlier_release_has_what_its_owner_has() -> None:
    async with job_master_box() as box:
        assert await interval_of(box, None) == 0


@pytest.mark.asyncio
async def test_directories_go_when_the_result_says_so_and_never_before() -> None:
    kv, keys = MemoryKeyValueStore(LoopClock()), Keys("a" * 32)
    services = cast("HighAvailabilityServices", SimpleNamespace(kv=kv, keys=keys))
    jobs = JobLookups(services, Incarnation("b" * 32), 5.0)
    summary = JobSummary(JOB, "job", JobStatus.FINISHED, 1, 1, 1, 2, 2, TaskCounts(), "", deletes_checkpoints=True)

    async def write(*ops: Op) -> bool | None:
        await kv.txn(Txn((), ops), timeout=5)
        return await jobs.deletes_checkpoints(JOB)

    assert await jobs.deletes_checkpoints(JOB) is False, "another cluster's, for all that is known"
    graph = encode_record(GraphRecord(inline_payload(b"graph"), "job", 1, "client"))
    assert await write(Put(keys.graph(JOB), graph)) is None, "it may run"
    result = ResultRecord(JobStatus.FINISHED, encode_record(summary), inline_payload(b"archive"))
    assert await write(Put(keys.result(JOB), encode_record(result))) is True
    kept = replace(result, summary=encode_record(replace(summary, deletes_checkpoints=False)))
    assert await write(Put(keys.result(JOB), encode_record(kept))) is False
    assert await write(Put(keys.result(JOB), b"unreadable")) is False
    done = DoneRecord("d", JobStatus.FINISHED, encode_record(summary), "", 0, 0, "")
    other = JobId("2" * 32)
    await write(Put(keys.done(other), encode_record(done)))
    assert await jobs.deletes_checkpoints(other) is True
