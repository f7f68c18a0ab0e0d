"""No-op jobs: throughput, latency, CPU and durable writes per job; subtasks of one wide job; 500 running jobs."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass, field

import httpx
import psutil

from airflow_flinklike import function_job
from runtime.jobgraph.graph import JobGraph
from tests.benchmarks.cluster import (
    ClusterBenchmark,
    ScriptCluster,
    job_graph,
    job_ids,
    result,
    run_to_finish,
    states,
    submit,
    until_running,
)
from tests.benchmarks.measure import ALL_PROCESSES, NO_TARGET, Report, Target, job_prefix, percentile, pss_bytes, tree
from tests.kit.host.levels import reached

NO_OP = job_graph("no-op", "tests.benchmarks.programs:no_op")
WITHOUT_SPARK = {"taskmanager.spark.enabled": "false", "taskmanager.numberOfTaskSlots": "2"}
CPU_TARGETS = {"jobmanager": Target("8", "2"), ALL_PROCESSES: Target("25", "8")}

_REVISION = "etcd_debugging_mvcc_current_revision"
_WAL_SYNCS = "etcd_disk_wal_fsync_duration_seconds_count"


def by_name(_number: int) -> JobGraph:
    """The same code in each job: slot processes are used again."""
    return NO_OP


def by_lambda(number: int) -> JobGraph:
    """Code that no other job has, as people write it: each job gets a slot process of its own."""
    return function_job(lambda ctx: None if number >= 0 else ctx, name="no-op").job_graph()


@dataclass(frozen=True, slots=True)
class Code:
    """How a benchmark's jobs bring their code, and what rows with it are called."""

    label: str
    graph: Callable[[int], JobGraph]
    rate: Target = NO_TARGET
    cpu: Mapping[str, Target] = field(default_factory=dict)


CODES = (
    Code("no-op job", by_name, Target("60", "150"), CPU_TARGETS),
    Code("no-op job, another lambda each", by_lambda),
)


async def _share(client: httpx.AsyncClient, graphs: Mapping[str, JobGraph], submits: list[float]) -> None:
    """One client's jobs, one after another; `submits` gets the milliseconds of the submit calls."""
    for job_id, graph in graphs.items():
        begin = time.perf_counter()
        await submit(client, job_id, graph)
        submits.append(1000 * (time.perf_counter() - begin))
        ended = await result(client, job_id)
        assert ended["application-status"] == "SUCCEEDED", ended


async def _shared(opened: Sequence[httpx.AsyncClient], graphs: Mapping[str, JobGraph]) -> list[float]:
    submits = list[float]()
    async with asyncio.TaskGroup() as group:
        for number, client in enumerate(opened):
            part = dict(list(graphs.items())[number :: len(opened)])
            group.create_task(_share(client, part, submits))
    return submits


def _graphs(code: Code, jobs: int) -> dict[str, JobGraph]:
    return {job_id: code.graph(number) for number, job_id in enumerate(job_ids(job_prefix(), jobs))}


async def _throughput(cluster: ScriptCluster, report: Report, code: Code, *, clients: int, jobs: int) -> None:
    async with AsyncExitStack() as stack:
        opened = [await stack.enter_async_context(cluster.client(connections=2)) for _ in range(clients)]
        # Every connection is open, every process has run a job.
        await _shared(opened, _graphs(code, max(20, 2 * clients)))
        graphs = _graphs(code, jobs)
        cpu, own = cluster.cpu(), time.process_time()
        begin = time.perf_counter()
        submits = await _shared(opened, graphs)
        spent = time.perf_counter() - begin
        own, after = time.process_time() - own, cluster.cpu()
    report.add(f"{code.label}: per second, {clients} clients, {jobs} jobs", jobs / spent, "1/s", code.rate)
    report.add_distribution(f"{code.label}: submit call", submits, p50=Target("100", "20"), p99=Target("400", "100"))
    report.add_cpu(code.label, cpu, after, jobs, code.cpu)
    report.add(f"CPU of the load generator per {code.label} (not counted above)", 1000 * own / jobs, "ms")


async def _latency(cluster: ScriptCluster, report: Report, *, jobs: int) -> None:
    """One job at a time. What etcd counted meanwhile is one job's; only jobs that met a cleaning see more."""
    times, writes, syncs = list[float](), list[float](), list[float]()
    async with cluster.client() as client:
        await run_to_finish(client, job_ids(job_prefix(), 1)[0], NO_OP)
        files = cluster.stored_files()
        for job_id in job_ids(job_prefix(), jobs):
            before = cluster.etcd_metrics()
            begin = time.perf_counter()
            await run_to_finish(client, job_id, NO_OP)
            times.append(1000 * (time.perf_counter() - begin))
            after = cluster.etcd_metrics()
            writes.append(after[_REVISION] - before[_REVISION])
            syncs.append(after[_WAL_SYNCS] - before[_WAL_SYNCS])
        made = len(cluster.stored_files() - files)
    report.add_distribution("submit to FINISHED, idle cluster", times, p50=Target("50", "12"))
    report.add("etcd write transactions per no-op job before FINISHED", percentile(writes, 50), "", Target("2", "2"))
    report.add("files written to the storage per no-op job", made / jobs, "", Target("0", "0"))
    report.add("syncs of etcd's own log per no-op job before FINISHED", percentile(syncs, 50), "")


def no_op(cluster: ScriptCluster, report: Report, *, small: bool) -> None:
    """Throughput of jobs that do nothing, with code by name and with code of their own, and latency."""
    for code in CODES:
        asyncio.run(_throughput(cluster, report, code, clients=4 if small else 16, jobs=20 if small else 300))
    asyncio.run(_latency(cluster, report, jobs=10 if small else 100))


async def _wide(cluster: ScriptCluster, report: Report, *, parallelism: int, rounds: int) -> None:
    graph = job_graph("wide", "tests.benchmarks.programs:no_op", parallelism=parallelism)
    times: list[float] = []
    async with cluster.client() as client:
        await run_to_finish(client, job_ids(job_prefix(), 1)[0], graph)
        cpu = cluster.cpu()
        for job_id in job_ids(job_prefix(), rounds):
            begin = time.perf_counter()
            await run_to_finish(client, job_id, graph)
            times.append(1000 * (time.perf_counter() - begin))
        after = cluster.cpu()
    title = f"subtasks per second, P = {parallelism}, 2 slots, median"
    report.add(title, 1000 * parallelism / percentile(times, 50), "1/s", Target("1000", "5000"))
    report.add_distribution("submit to FINISHED", times)
    report.add_cpu("subtask", cpu, after, rounds * parallelism)


def wide(cluster: ScriptCluster, report: Report, *, small: bool) -> None:
    """Subtasks per second of one job."""
    asyncio.run(_wide(cluster, report, parallelism=50 if small else 500, rounds=2 if small else 10))


async def _running(cluster: ScriptCluster, report: Report, *, jobs: int) -> None:
    graph = job_graph("nap", "tests.benchmarks.programs:nap", params={"seconds": 3600})
    before = {pid: psutil.Process(pid).memory_info().rss for pid in cluster.pids()["jobmaster"]}
    async with cluster.client() as client:
        ids, cpu = job_ids(job_prefix(), jobs), cluster.cpu()
        for job_id in ids:
            await submit(client, job_id, graph)
        await until_running(client, ids)
        grown = sum(psutil.Process(pid).memory_info().rss - rss for pid, rss in before.items())
        title = f"JobMaster processes' RSS per job, {jobs} running"
        report.add(title, grown / jobs / 1024, "KB", Target("256", "64"))
        report.add_cpu("job until it runs", cpu, cluster.cpu(), jobs)
        times, cpu = list[float](), cluster.cpu()
        for _ in range(100):
            begin = time.perf_counter()
            await states(client)
            times.append(1000 * (time.perf_counter() - begin))
        report.add_distribution(f"/jobs/overview with {jobs} jobs", times, p99=Target("100", "20"))
        report.add_cpu("/jobs/overview", cpu, cluster.cpu(), len(times))
        for job_id in ids:
            answer = await client.patch(f"/jobs/{job_id}")
            assert answer.status_code == 202, answer.text


def running(cluster: ScriptCluster, report: Report, *, small: bool) -> None:
    """Many jobs that run at once."""
    asyncio.run(_running(cluster, report, jobs=20 if small else 500))


def _slot_processes(cluster: ScriptCluster) -> list[psutil.Process]:
    (task_manager,) = cluster.pids()["taskmanager"]
    return [one for one in tree(task_manager) if one.name() == "slot-process"]


def slot_memory(cluster: ScriptCluster, report: Report, *, small: bool) -> None:
    """What an idle slot process costs."""
    slots = 2 if small else 8
    reached(lambda: len(_slot_processes(cluster)) == slots, f"{slots} slot processes")
    found = _slot_processes(cluster)
    title = f"PSS of an idle slot process (of {slots})"
    sizes = [pss_bytes(one.pid) / (1 << 20) for one in found]
    report.add_distribution(title, sizes, "MB", p50=Target("15", "12"))
    used = [1000 * sum(one.cpu_times()[:2]) for one in found]
    report.add_distribution("CPU of a slot process from its start until it is idle", used)


def _slots(count: int, options: Mapping[str, str]) -> dict[str, str]:
    return {**options, "taskmanager.numberOfTaskSlots": str(count)}


BENCHMARKS = {
    "no-op": ClusterBenchmark("no-op jobs", WITHOUT_SPARK, WITHOUT_SPARK, no_op),
    "wide": ClusterBenchmark("wide job", WITHOUT_SPARK, WITHOUT_SPARK, wide),
    "running": ClusterBenchmark(
        "running jobs", _slots(500, WITHOUT_SPARK), _slots(20, WITHOUT_SPARK), running, job_masters=1
    ),
    "slot-memory": ClusterBenchmark("idle slot process", _slots(8, {}), _slots(2, {}), slot_memory),
}
