"""etcd writes and CPU per operation: group commit at several numbers of callers, and the life of a no-op job."""

from __future__ import annotations

import asyncio
import hashlib
import tempfile
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path

from runtime.aio.clock import LoopClock
from runtime.aio.entropy import SystemEntropy
from runtime.common.ids import Incarnation, JobId
from runtime.common.states import JobStatus
from runtime.highavailability.jobs.job_store import Cleaning, Submitted
from runtime.highavailability.jobs.job_store_kv import CLEAN_JOBS_MAX
from runtime.highavailability.kv.conditions import LeaderTerm, absent
from runtime.highavailability.kv.group_commit import GroupCommitStore
from runtime.highavailability.kv.key_value_store import Put, Txn
from runtime.highavailability.records import DoneRecord, GraphRecord, OwnerRecord, Payload, ResultRecord
from runtime.highavailability.services import HighAvailabilityServices, HighAvailabilitySettings, create
from tests.benchmarks.measure import Report
from tests.kit.control_plane.memory_objects import MemoryObjectStore
from tests.kit.etcd.server import EtcdProcess, seal_of

TIMEOUT = 30.0
CALLERS = (1, 16, 128)


async def measure(
    report: Report,
    name: str,
    etcd: EtcdProcess,
    commits: Callable[[], int],
    operation: Callable[[int], Awaitable[None]],
    *,
    callers: int,
    operations: int,
) -> None:
    """Closed loop: each caller does the next operation when its last one is done."""
    took: list[float] = []
    numbers = iter(range(operations))

    async def call() -> None:
        for number in numbers:
            began = time.perf_counter()
            await operation(number)
            took.append(1000 * (time.perf_counter() - began))

    writes, cpu = commits(), {"client": time.process_time(), "etcd": etcd.cpu_seconds()}
    began = time.perf_counter()
    async with asyncio.TaskGroup() as tasks:
        for _ in range(callers):
            tasks.create_task(call())
    elapsed = time.perf_counter() - began
    after = {"client": time.process_time(), "etcd": etcd.cpu_seconds()}
    title = f"{name}, {callers} callers"
    report.add(f"{title}: per second", operations / elapsed, "1/s")
    report.add_distribution(f"{title}:", took)
    report.add(f"{title}: etcd transactions per operation", (commits() - writes) / operations, "")
    report.add_cpu(title, cpu, after, operations)


async def single_writes(report: Report, etcd: EtcdProcess, *, callers: int, operations: int, grouped: bool) -> None:
    """Guarded puts of 500 bytes, with and without group commit."""
    below = etcd.store()
    await below.open(timeout=TIMEOUT)
    kv = GroupCommitStore(below, in_flight_max=1 if grouped else 1_000_000)
    await kv.open()
    root = f"/bench/{SystemEntropy().hex_id()}/"

    async def put(number: int) -> None:
        key = f"{root}{number}"
        result = await kv.txn(Txn((absent(key),), (Put(key, b"x" * 500),)), timeout=TIMEOUT)
        assert result.succeeded

    name = "guarded put, grouped" if grouped else "guarded put, each alone"
    try:
        await measure(report, name, etcd, lambda: kv.commits, put, callers=callers, operations=operations)
    finally:
        await kv.close()


@asynccontextmanager
async def cluster(etcd: EtcdProcess) -> AsyncIterator[tuple[HighAvailabilityServices, LeaderTerm]]:
    """Services as a process makes them, and a term."""
    settings = HighAvailabilitySettings(
        SystemEntropy().hex_id(),
        lease_ttl=60,
        timeout=TIMEOUT,
        etcd=etcd.settings(allow_unsafe_version=True),
        seal=seal_of(etcd.directory),
    )
    services = create(
        settings, objects=MemoryObjectStore(), clock=LoopClock(), boot_clock=LoopClock(), entropy=SystemEntropy()
    )
    await services.start()
    try:
        lease = await services.kv.grant_lease(60, timeout=TIMEOUT)
        key = services.keys.leader(lease)
        written = await services.kv.txn(Txn((), (Put(key, b"{}", lease),)), timeout=TIMEOUT)
        yield services, LeaderTerm(key, written.revision)
    finally:
        await services.close()


async def noop_jobs(report: Report, etcd: EtcdProcess, *, callers: int, operations: int) -> None:
    """Submit with owner, result, and a share of a cleaning: what a no-op job writes."""
    async with cluster(etcd) as (services, term):
        leader, owner_store = services.leader_job_store(term), services.owner_job_store()
        graph, archive = b"g" * 800, b"a" * 1500
        graph_payload = Payload(hashlib.sha256(graph).hexdigest(), graph, "")
        archive_payload = Payload(hashlib.sha256(archive).hexdigest(), archive, "")
        owner = OwnerRecord(Incarnation("1" * 32), "127.0.0.1:6123")
        done = DoneRecord(graph_payload.sha256, JobStatus.FINISHED, b"s" * 400, "k" * 97, 0, 1500, "0" * 64)
        finished: list[JobId] = []

        async def job(number: int) -> None:
            job_id = JobId(f"{number:032x}")
            answer = await leader.submit(job_id, GraphRecord(graph_payload, "noop", 1, "bench"), owner)
            assert isinstance(answer, Submitted)
            result = ResultRecord(JobStatus.FINISHED, b"s" * 400, archive_payload)
            await owner_store.write_result(job_id, answer.epoch, result)
            finished.append(job_id)
            if len(finished) >= CLEAN_JOBS_MAX:
                batch, finished[:] = list(finished), []
                results = await leader.results(batch)
                await leader.clean([Cleaning(cleaned, done, results[cleaned].revision) for cleaned in batch])

        kv = services.kv
        assert isinstance(kv, GroupCommitStore)
        await measure(report, "no-op job", etcd, lambda: kv.commits, job, callers=callers, operations=operations)


async def _run(report: Report, etcd: EtcdProcess, operations: int) -> None:
    for callers in CALLERS:
        await single_writes(report, etcd, callers=callers, operations=operations, grouped=False)
        await single_writes(report, etcd, callers=callers, operations=operations, grouped=True)
        await noop_jobs(report, etcd, callers=callers, operations=operations)


def etcd_writes(*, small: bool) -> Report:
    """All of it, on an etcd of its own."""
    report = Report("etcd writes")
    with tempfile.TemporaryDirectory() as directory:
        etcd = EtcdProcess(Path(directory))
        etcd.start()
        try:
            asyncio.run(_run(report, etcd, 200 if small else 2000))
        finally:
            etcd.stop()
    return report
