"""A TaskManager that runs for a tenth of the time: the same job with and without a second attempt of slow tasks."""

from __future__ import annotations

import asyncio
import time

from tests.benchmarks.cluster import ClusterBenchmark, ScriptCluster, job_ids, run_to_finish
from tests.benchmarks.measure import Report, Target, job_prefix, percentile
from tests.kit.cluster.busy_programs import READERS, SPECULATION, busy
from tests.kit.cluster.slowed import slowed


def speculation(cluster: ScriptCluster, report: Report, *, small: bool) -> None:
    """Wall times, and their ratio."""
    asyncio.run(_run(cluster, report, small=small))


async def _run(cluster: ScriptCluster, report: Report, *, small: bool) -> None:
    seconds = 0.3 if small else 10.0
    settings = {"without": {}, "with": SPECULATION}
    found: dict[str, list[float]] = {name: [] for name in settings}
    async with cluster.client() as client:
        with slowed(cluster.pids()["taskmanager"][0]):
            for _ in range(1 if small else 2):
                for name, options in settings.items():
                    (job_id,) = job_ids(job_prefix(), 1)
                    begun = time.perf_counter()
                    ended = await run_to_finish(client, job_id, busy(seconds, options))
                    found[name].append(time.perf_counter() - begun)
                    readers = sorted(one["reader"] for one in ended["result"])
                    assert readers == list(range(READERS)), ended
    times = {name: percentile(all_of_them, 50) for name, all_of_them in found.items()}
    for name, taken in times.items():
        report.add(f"a slow TaskManager, {READERS} tasks of {seconds:g} s, {name} speculation", taken, "s")
    report.add("without to with", times["without"] / times["with"], "", Target("", "3"))


_OPTIONS = {"taskmanager.spark.enabled": "false", "taskmanager.numberOfTaskSlots": "4"}


BENCHMARKS = {"speculation": ClusterBenchmark("Speculative execution", _OPTIONS, _OPTIONS, speculation, workers=2)}
