"""etcd writes and CPU per operation: group commit at several numbers of callers, and the life of a no-op job.

`python -m tests.benchmarks.etcd_writes [--operations N]` prints a table; `--json` the same figures as JSON.
"""

from __future__ import annotations

import argparse
import asyncio
import hashlib
import json
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import asdict, dataclass
from pathlib import Path

from runtime.aio.clock import LoopClock
from runtime.aio.entropy import SystemEntropy
from runtime.common.ids import Incarnation, JobId
from runtime.common.states import JobStatus
from runtime.highavailability.group_commit import GroupCommitStore
from runtime.highavailability.guards import LeaderTerm, absent
from runtime.highavailability.job_store import Submitted
from runtime.highavailability.job_store_kv import CLEAN_JOBS_MAX
from runtime.highavailability.kv import Put, Txn
from runtime.highavailability.payloads import MemoryObjectStore
from runtime.highavailability.records import DoneRecord, GraphRecord, OwnerRecord, Payload, ResultRecord
from runtime.highavailability.services import HighAvailabilityServices, HighAvailabilitySettings, create
from tests.kit.etcd import EtcdProcess

TIMEOUT = 30.0
CALLERS = (1, 2, 16, 128)


@dataclass(frozen=True)
class Figures:
    """Of one run. CPU in microseconds per operation."""

    name: str
    callers: int
    per_second: float
    p50_ms: float
    p99_ms: float
    writes_per_operation: float
    client_cpu_us: float
    etcd_cpu_us: float


async def measure(
    name: str,
    etcd: EtcdProcess,
    commits: Callable[[], int],
    operation: Callable[[int], Awaitable[None]],
    *,
    callers: int,
    operations: int,
) -> Figures:
    """Closed loop: each caller does the next operation when its last one is done."""
    took: list[float] = []
    numbers = iter(range(operations))

    async def call() -> None:
        for number in numbers:
            began = time.perf_counter()
            await operation(number)
            took.append(time.perf_counter() - began)

    commits_before, cpu, etcd_cpu = commits(), time.process_time(), etcd.cpu_seconds()
    began = time.perf_counter()
    async with asyncio.TaskGroup() as tasks:
        for _ in range(callers):
            tasks.create_task(call())
    elapsed = time.perf_counter() - began
    took.sort()
    return Figures(
        name=name,
        callers=callers,
        per_second=operations / elapsed,
        p50_ms=took[len(took) // 2] * 1e3,
        p99_ms=took[len(took) * 99 // 100] * 1e3,
        writes_per_operation=(commits() - commits_before) / operations,
        client_cpu_us=(time.process_time() - cpu) / operations * 1e6,
        etcd_cpu_us=(etcd.cpu_seconds() - etcd_cpu) / operations * 1e6,
    )


async def single_writes(etcd: EtcdProcess, *, callers: int, operations: int, grouped: bool) -> Figures:
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
        return await measure(name, etcd, lambda: kv.commits, put, callers=callers, operations=operations)
    finally:
        await kv.close()


@asynccontextmanager
async def cluster(etcd: EtcdProcess) -> AsyncIterator[tuple[HighAvailabilityServices, LeaderTerm]]:
    """Services as a process makes them, and a term."""
    settings = HighAvailabilitySettings(
        SystemEntropy().hex_id(), lease_ttl=60, timeout=TIMEOUT, etcd=etcd.settings(allow_unsafe_version=True)
    )
    services = create(settings, objects=MemoryObjectStore(), clock=LoopClock(), entropy=SystemEntropy())
    await services.start()
    try:
        lease = await services.kv.grant_lease(60, timeout=TIMEOUT)
        key = services.keys.leader(lease)
        written = await services.kv.txn(Txn((), (Put(key, b"", lease),)), timeout=TIMEOUT)
        yield services, LeaderTerm(key, written.revision)
    finally:
        await services.close()


async def noop_jobs(etcd: EtcdProcess, *, callers: int, operations: int) -> Figures:
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
                await leader.clean([(cleaned, done) for cleaned in batch])

        kv = services.kv
        assert isinstance(kv, GroupCommitStore)
        return await measure("no-op job", etcd, lambda: kv.commits, job, callers=callers, operations=operations)


async def run(operations: int) -> list[Figures]:
    """All of it, on an etcd of its own."""
    with tempfile.TemporaryDirectory() as directory:
        etcd = EtcdProcess(Path(directory))
        etcd.start()
        try:
            figures = []
            for callers in CALLERS:
                figures += [
                    await single_writes(etcd, callers=callers, operations=operations, grouped=False),
                    await single_writes(etcd, callers=callers, operations=operations, grouped=True),
                    await noop_jobs(etcd, callers=callers, operations=operations),
                ]
            return figures
        finally:
            etcd.stop()


def calibration() -> float:
    """Seconds for a fixed loop: how fast this machine is at this moment."""
    began = time.perf_counter()
    sum(range(10_000_000))
    return time.perf_counter() - began


def main(arguments: list[str]) -> None:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--operations", type=int, default=2000)
    parser.add_argument("--json", action="store_true")
    given = parser.parse_args(arguments)
    loop_seconds = calibration()
    figures = asyncio.run(run(given.operations))
    if given.json:
        print(json.dumps({"calibration_seconds": loop_seconds, "figures": [asdict(one) for one in figures]}))
        return
    print(f"calibration loop: {loop_seconds * 1e3:.0f} ms")
    print(f"{'':24} callers     /s    p50 ms  p99 ms  writes/op  client us/op  etcd us/op")
    for one in figures:
        print(
            f"{one.name:24} {one.callers:7} {one.per_second:7.0f} {one.p50_ms:8.2f} {one.p99_ms:7.2f} "
            f"{one.writes_per_operation:10.3f} {one.client_cpu_us:13.0f} {one.etcd_cpu_us:11.0f}"
        )


if __name__ == "__main__":
    main(sys.argv[1:])
