"""A JobMaster process's real way to a job graph: over its blob client, from storage or from the leader (R20)."""

from __future__ import annotations

import hashlib
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from jobmaster_process.blob_shared_client import SharedGraphs, make_blob_shared_client
from runtime.aio.blocking import BlockingIo
from runtime.aio.entropy import SeededEntropy
from runtime.blob.client import BlobSharedClient
from runtime.blob.directory import LocalDirectory
from runtime.blob.server import CHUNK_SOURCE
from runtime.blob.store import BlobStore, BlobStoreSettings
from runtime.common.ids import Incarnation, JobId
from runtime.common.states import JobStatus
from runtime.rpc.local import LocalRpcService
from runtime.rpc.settings import RpcSettings
from tests.kit.control_plane.job_graphs import lone
from tests.kit.control_plane.job_master_box import JobMasterBox, job_master_box

JOB = JobId("1" * 32)


@asynccontextmanager
async def shared_graphs(box: JobMasterBox, tmp_path: Path, leader: str) -> AsyncIterator[BlobSharedClient]:
    """The box reads graphs as a JobMaster process does that does not see the storage: from the leader, over RPC."""
    io = BlockingIo()
    settings = BlobStoreSettings(object_bytes_max=10**6)
    store = BlobStore(LocalDirectory(tmp_path / "unshared"), settings, io, box.clock, SeededEntropy(3))
    client = make_blob_shared_client(
        tmp_path / "cache",
        cache_bytes_max=10**6,
        store=store,
        rpc=box.rpc,
        blob_address=lambda: leader,
        io=io,
        entropy=SeededEntropy(4),
    )
    await client.start()
    box.graph_source = SharedGraphs(client)
    try:
        yield client
    finally:
        await client.stop()
        io.close()


@pytest.mark.asyncio
async def test_a_job_master_process_shows_why_the_graph_is_not_there_yet(tmp_path: Path) -> None:  # R20
    data = lone().canonical_json()
    key = f"{hashlib.sha256(data).hexdigest()}-{'0' * 32}"

    async def blobs(_key: str) -> AsyncIterator[bytes]:
        yield data

    async with job_master_box() as box, shared_graphs(box, tmp_path, "127.0.0.1:7"):
        runner, running = box.start(await box.assign(JOB, lone(), graph_key=key))
        await box.listener.changes.wait_until(
            lambda _: bool(box.listener.summaries) and "cannot be reached" in box.listener.summaries[-1].pending_reason
        )
        assert runner.summary().status is JobStatus.INITIALIZING
        leader = LocalRpcService(box.network, RpcSettings(Incarnation("d" * 32), None, port=7), box.clock)
        leader.server.add_chunk_source(CHUNK_SOURCE, blobs)
        await leader.start()
        await box.listener.changes.wait_until(lambda _: bool(box.listener.requirements))
        running.cancel()
        await leader.stop(grace=0)


@pytest.mark.asyncio
async def test_a_job_master_process_looks_twice_for_a_graph_that_is_gone(tmp_path: Path) -> None:  # R20
    async with job_master_box() as box, shared_graphs(box, tmp_path, box.address) as client:
        _, running = box.start(await box.assign(JOB, lone(), graph_key=f"{'0' * 64}-{'0' * 32}"))
        result = await running
        assert result.summary is not None
        assert result.summary.status is JobStatus.FAILED
        assert client.downloads == 2
