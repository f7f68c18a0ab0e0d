"""JobManager and JobMaster processes as OS processes: real etcd, real gRPC, real REST; slots without code."""

from __future__ import annotations

import asyncio
import json
import signal
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path

import httpx
import pytest

from runtime.aio.clock import LoopClock
from runtime.aio.entropy import SystemEntropy
from runtime.common.ids import Incarnation
from runtime.rpc.grpc_service import GrpcRpcService
from runtime.rpc.settings import RpcSettings
from tests.kit.cluster.os_processes import JOB_MANAGER, JOB_MASTER, OsCluster, OsProcess, get_json
from tests.kit.control_plane.job_graphs import graph, source
from tests.kit.control_plane.obedient_task_manager import ObedientTaskManager
from tests.kit.etcd.server import EtcdProcess

pytestmark = [pytest.mark.process, pytest.mark.etcd]

TERMINAL = {"FINISHED", "CANCELED", "FAILED"}


@pytest.fixture
def etcd_of_test(tmp_path: Path) -> Iterator[EtcdProcess]:
    process = EtcdProcess(tmp_path / "etcd-dir")
    process.start()
    yield process
    process.stop()


@pytest.fixture
def cluster(tmp_path: Path, etcd_of_test: EtcdProcess) -> Iterator[OsCluster]:
    made = OsCluster(
        tmp_path,
        {
            **etcd_of_test.options(),
            "high-availability.lease-timeout": "2 s",
            "high-availability.etcd.timeout": "1 s",
            "jobmanager.jobmaster.single.enable": "true",
            "jobmanager.rpc.port": "0",
            "rest.port": "0",
        },
    )
    yield made
    made.stop()


@asynccontextmanager
async def task_manager(cluster: OsCluster, leader: OsProcess, *, slots: int = 2) -> AsyncIterator[ObedientTaskManager]:
    """An obedient TaskManager in this process, registered with the leader."""
    clock, incarnation = LoopClock(), Incarnation(SystemEntropy().hex_id())
    rpc = GrpcRpcService(RpcSettings(incarnation, cluster.credential), clock)
    await rpc.start()
    made = ObedientTaskManager(incarnation, rpc, clock, slots=slots)
    try:
        async with asyncio.TaskGroup() as group:
            running = group.create_task(made.run(leader.facts["rpc"]))
            async with asyncio.timeout(100):
                await made.registered.wait()
            yield made
            running.cancel()
    finally:
        await rpc.stop(grace=0)


async def submit(client: httpx.AsyncClient) -> str:
    job_id = SystemEntropy().hex_id()
    body = {"job_id": job_id, "job_graph": json.loads(graph(source("only")).canonical_json())}
    answer = await client.post("/jobs", json=body)
    assert answer.status_code == 202, answer.text
    return job_id


async def finished(client: httpx.AsyncClient, job_id: str) -> str:
    async with asyncio.timeout(100):
        while True:
            body = await get_json(client, f"/jobs/{job_id}/execution-result?wait=10")
            if body["status"]["id"] == "COMPLETED":
                return str((await get_json(client, f"/jobs/{job_id}"))["state"])


async def serving(client: httpx.AsyncClient) -> None:
    """Wait until this JobManager leads."""
    async with asyncio.timeout(100):
        while (await client.get("/jobs/overview")).status_code != 200:
            await asyncio.sleep(0.05)


async def ready_job_masters(client: httpx.AsyncClient, count: int) -> None:
    async with asyncio.timeout(100):
        while True:
            found = (await get_json(client, "/jobmasters"))["jobmasters"]
            if sum(one["state"] == "ready" for one in found) == count:
                return
            await asyncio.sleep(0.05)


@pytest.mark.asyncio
async def test_jobs_run_in_job_master_processes_and_survive_a_new_leader(cluster: OsCluster) -> None:
    first = cluster.start(JOB_MANAGER)
    masters = [cluster.start(JOB_MASTER) for _ in range(2)]
    async with cluster.client(first) as client:
        await ready_job_masters(client, 2)
        async with task_manager(cluster, first):
            jobs = [await submit(client) for _ in range(6)]
            assert [await finished(client, job_id) for job_id in jobs] == ["FINISHED"] * 6
        waiting = await submit(client)
        async with asyncio.timeout(100):
            while "TaskManager" not in (await get_json(client, f"/jobs/{waiting}/status"))["pending-reason"]:
                await asyncio.sleep(0.05)
    first.kill()

    second = cluster.start(JOB_MANAGER)
    async with cluster.client(second) as client:
        await serving(client)
        await ready_job_masters(client, 2)
        states = {one["jid"]: one["state"] for one in (await get_json(client, "/jobs/overview"))["jobs"]}
        assert {states[job_id] for job_id in jobs} == {"FINISHED"}
        assert states[waiting] not in TERMINAL
        async with task_manager(cluster, second):
            assert await finished(client, waiting) == "FINISHED"
    assert [one.terminate() for one in masters] == [0, 0], "nothing is left to hand over"
    assert second.terminate() == 128 + signal.SIGTERM


@pytest.mark.asyncio
async def test_a_job_master_process_moves_to_another_cluster(cluster: OsCluster, etcd_of_test: EtcdProcess) -> None:
    first = cluster.start(JOB_MANAGER)
    master = cluster.start(JOB_MASTER)
    async with cluster.client(first) as client:
        await ready_job_masters(client, 1)
        await submit(client)
    first.kill()
    etcd_of_test.ctl("del", "--prefix", "/flinklike/")
    second = cluster.start(JOB_MANAGER)
    async with cluster.client(second) as client:
        await serving(client)
        await ready_job_masters(client, 1)
        async with task_manager(cluster, second):
            assert await finished(client, await submit(client)) == "FINISHED"
    assert "another cluster than before" in master.output()
    assert master.terminate() == 0


@pytest.mark.asyncio
async def test_a_standby_takes_over_when_the_leader_resigns(cluster: OsCluster) -> None:
    leader = cluster.start(JOB_MANAGER)
    standby = cluster.start(JOB_MANAGER)
    cluster.start(JOB_MASTER)
    async with cluster.client(standby) as client:
        assert (await client.get("/jobs/overview")).status_code == 200, "it answers for the leader"
        assert leader.terminate() == 143
        await serving(client)
        await ready_job_masters(client, 1)


@pytest.mark.asyncio
async def test_in_process_job_masters_without_etcd(tmp_path: Path) -> None:
    cluster = OsCluster(tmp_path, {"jobmanager.rpc.port": "0", "rest.port": "0", "high-availability.type": "none"})
    try:
        problem = cluster.launch(JOB_MANAGER)
        assert problem.popen.wait(100) == 1
        assert "jobmanager.rpc.port" in problem.output()
        leader = cluster.start(JOB_MANAGER, jobmanager__rpc__port=str(free_port()))
        async with cluster.client(leader) as client, task_manager(cluster, leader):
            job_id = await submit(client)
            assert await finished(client, job_id) == "FINISHED"
        assert "a restart forgets every job" in leader.output()
    finally:
        cluster.stop()


def free_port() -> int:
    import socket

    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def test_start_failures_are_one_sentence(tmp_path: Path) -> None:
    cluster = OsCluster(tmp_path, {"rest.port": "0", "high-availability.type": "none"})
    port = str(free_port())
    options = {"jobmanager__rpc__port": port}
    try:
        cluster.start(JOB_MANAGER, **options)
        taken = cluster.launch(JOB_MANAGER, **options)
        assert taken.popen.wait(100) == 1
        sentence = taken.output().strip().splitlines()[-1]
        assert port in sentence, taken.output()
        optimised = cluster.launch(JOB_MANAGER, "-O", **options)
        assert optimised.popen.wait(100) == 1
        assert "python -O" in optimised.output()
        unknown = cluster.launch(JOB_MANAGER, jobmanager__rcp__port="1")
        assert unknown.popen.wait(100) == 1
        assert "jobmanager.rpc.port" in unknown.output(), "the nearest option is named"
        master = cluster.launch(JOB_MASTER, **options)
        assert master.popen.wait(100) == 1
        assert "jobmanager.jobmaster.single.enable" in master.output()
    finally:
        cluster.stop()


def test_who_has_another_cluster_key_says_so_and_does_not_start(cluster: OsCluster, tmp_path: Path) -> None:  # R38
    """On another host, to which the file was not copied, each process would make a key of its own."""
    cluster.start(JOB_MANAGER)
    another = {"security.cluster-key-file": str(tmp_path / "another")}
    for module in (JOB_MANAGER, JOB_MASTER, "runtime.entrypoint.task_manager"):
        process = cluster.launch(module, **another, taskmanager__spark__enabled="false")
        assert process.popen.wait(60) == 1, process.output()
        said = process.output().splitlines()[-1]
        assert "/cluster is refused: its seal is not that of this cluster" in said
        assert "security.cluster-key-file" in said
