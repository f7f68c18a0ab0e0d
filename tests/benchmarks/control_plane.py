"""No-op jobs: throughput, latency, CPU and durable writes per job; subtasks of one wide job; 500 running jobs."""

from __future__ import annotations

import asyncio
import os
import time

import psutil

from tests.benchmarks.cluster import ScriptCluster, job_graph, job_ids, result, run_to_finish, submit
from tests.benchmarks.measure import Report, percentile, pss_bytes, tree

NO_OP = job_graph("no-op", "tests.benchmarks.programs:no_op")
WITHOUT_SPARK = {"taskmanager.spark.enabled": "false", "taskmanager.numberOfTaskSlots": "2"}


def _prefix() -> int:
    return int.from_bytes(os.urandom(4), "big")


async def _throughput(cluster: ScriptCluster, report: Report, *, clients: int, jobs: int) -> None:
    submits: list[float] = []
    ids = list(job_ids(_prefix(), jobs))

    async def work(mine: list[str]) -> None:
        async with cluster.client(connections=2) as client:
            for job_id in mine:
                begin = time.perf_counter()
                await submit(client, job_id, NO_OP)
                submits.append(1000 * (time.perf_counter() - begin))
                await result(client, job_id)

    async with cluster.client() as client:
        for job_id in job_ids(_prefix(), 20):
            await run_to_finish(client, job_id, NO_OP)
    cpu, etcd = cluster.cpu(), cluster.etcd_metrics()
    begin = time.perf_counter()
    async with asyncio.TaskGroup() as group:
        for number in range(clients):
            group.create_task(work(ids[number::clients]))
    spent = time.perf_counter() - begin
    after_cpu, after_etcd = cluster.cpu(), cluster.etcd_metrics()
    report.add(f"no-op jobs per second, {clients} clients, {jobs} jobs", jobs / spent, "1/s", now="60", goal="150")
    report.add("submit call p50", percentile(submits, 50), "ms", now="100", goal="20")
    report.add("submit call p99", percentile(submits, 99), "ms", now="400", goal="100")
    report.add_cpu("job", cpu, after_cpu, jobs)
    total = sum(after_cpu.values()) - sum(cpu.values())
    report.add("CPU of all processes per job", 1000 * total / jobs, "ms", now="25", goal="8")
    puts = "etcd_mvcc_put_total"
    report.add("etcd keys put per job (with cleaning)", (after_etcd[puts] - etcd[puts]) / jobs, "")
    txns = "etcd_debugging_mvcc_current_revision"
    if txns in etcd:
        report.add("etcd write transactions per job", (after_etcd[txns] - etcd[txns]) / jobs, "", now="2", goal="2")


def no_op(*, small: bool) -> Report:
    """Throughput and latency of jobs that do nothing."""
    report = Report("no-op jobs")
    with ScriptCluster(WITHOUT_SPARK) as cluster:
        asyncio.run(_throughput(cluster, report, clients=4 if small else 16, jobs=20 if small else 300))
        asyncio.run(_latency(cluster, report, jobs=10 if small else 100))
    return report


async def _latency(cluster: ScriptCluster, report: Report, *, jobs: int) -> None:
    times: list[float] = []
    async with cluster.client() as client:
        for job_id in job_ids(_prefix(), jobs):
            begin = time.perf_counter()
            await run_to_finish(client, job_id, NO_OP)
            times.append(1000 * (time.perf_counter() - begin))
    report.add_distribution("submit to FINISHED, idle cluster", times, now="50", goal="12")


async def _wide(cluster: ScriptCluster, report: Report, *, parallelism: int, rounds: int) -> None:
    graph = job_graph("wide", "tests.benchmarks.programs:no_op", parallelism=parallelism)
    rates: list[float] = []
    async with cluster.client() as client:
        await run_to_finish(client, job_ids(_prefix(), 1)[0], graph)
        cpu = cluster.cpu()
        for job_id in job_ids(_prefix(), rounds):
            begin = time.perf_counter()
            await run_to_finish(client, job_id, graph)
            rates.append(parallelism / (time.perf_counter() - begin))
        report.add(
            f"subtasks per second, P = {parallelism}, 2 slots, median",
            percentile(rates, 50),
            "1/s",
            now="1000",
            goal="5000",
        )
        report.add_cpu("subtask", cpu, cluster.cpu(), rounds * parallelism)


def wide(*, small: bool) -> Report:
    """Subtasks per second of one job."""
    report = Report("wide job")
    with ScriptCluster(WITHOUT_SPARK) as cluster:
        asyncio.run(_wide(cluster, report, parallelism=50 if small else 500, rounds=2 if small else 10))
    return report


async def _running(cluster: ScriptCluster, report: Report, *, jobs: int) -> None:
    graph = job_graph("nap", "tests.benchmarks.programs:nap", params={"seconds": 3600})
    before = {pid: psutil.Process(pid).memory_info().rss for pid in cluster.pids()["jobmaster"]}
    async with cluster.client() as client:
        ids = list(job_ids(_prefix(), jobs))
        for job_id in ids:
            await submit(client, job_id, graph)
        while True:
            counts = [one["state"] for one in (await client.get("/jobs/overview")).json()["jobs"]]
            if counts.count("RUNNING") >= jobs:
                break
            await asyncio.sleep(0.5)
        grown = sum(psutil.Process(pid).memory_info().rss - rss for pid, rss in before.items())
        report.add(f"JobMaster processes' RSS per job, {jobs} running", grown / jobs / 1024, "KB", now="256", goal="64")
        times: list[float] = []
        for _ in range(100):
            begin = time.perf_counter()
            await client.get("/jobs/overview")
            times.append(1000 * (time.perf_counter() - begin))
        report.add(f"/jobs/overview with {jobs} jobs p99", percentile(times, 99), "ms", now="100", goal="20")
        for job_id in ids:
            await client.patch(f"/jobs/{job_id}")


def running(*, small: bool) -> Report:
    """Many jobs that run at once."""
    jobs = 20 if small else 500
    report = Report("running jobs")
    with ScriptCluster({**WITHOUT_SPARK, "taskmanager.numberOfTaskSlots": str(jobs)}, job_masters=1) as cluster:
        asyncio.run(_running(cluster, report, jobs=jobs))
    return report


def slot_memory(*, small: bool) -> Report:
    """What an idle slot process costs."""
    report = Report("idle slot process")
    slots = 2 if small else 8
    with ScriptCluster({"taskmanager.numberOfTaskSlots": str(slots)}) as cluster:
        processes = tree(cluster.pids()["taskmanager"][0])
        idle = [one for one in processes if "slot" in " ".join(one.cmdline()) or "slot" in one.name()]
        sizes = [pss_bytes(one.pid) / (1 << 20) for one in idle]
        report.add(
            f"PSS of an idle slot process (of {len(sizes)}), median", percentile(sizes, 50), "MB", now="15", goal="12"
        )
    return report
