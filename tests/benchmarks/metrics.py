"""What metrics cost a no-op job: the same jobs on a cluster without them, and on one whose processes are all scraped.

Both run all the time, and take turns. All processes of the second are scraped once in each of its turns, which is more
often than Prometheus does.
"""

from __future__ import annotations

import asyncio
from contextlib import ExitStack

from tests.benchmarks.cluster import ScriptCluster
from tests.benchmarks.control_plane import WITHOUT_SPARK
from tests.benchmarks.in_turns import cpu_in_turns
from tests.benchmarks.measure import ALL_PROCESSES, Report, Target, percentile

ROUNDS = 16
JOBS = 200
RATIO_MAX = "1.05"
OFF, ON = "without metrics", "with metrics"


async def scrape(cluster: ScriptCluster) -> int:
    """Each process once, as Prometheus does; the bytes of all."""
    async with cluster.client() as client:
        found = (await client.get("/metrics/targets")).json()
        texts = [await client.get(f"http://{one['targets'][0]}/metrics") for one in found]
    assert all(b"flinklike_build_info" in text.content for text in texts)
    assert len(texts) > 1
    return sum(len(text.content) for text in texts)


async def _measured(clusters: dict[str, ScriptCluster], rounds: int, jobs: int) -> tuple[dict[str, list[float]], int]:
    sizes = [0]

    async def beside(name: str) -> None:
        if name == ON:
            sizes.append(await scrape(clusters[name]))

    spent = await cpu_in_turns(clusters, rounds, jobs, beside)
    return {name: by_role[ALL_PROCESSES] for name, by_role in spent.items()}, max(sizes)


def metrics(*, small: bool) -> Report:
    """CPU per job, and the ratio of each pair of turns."""
    report = Report("no-op jobs, with and without metrics")
    with ExitStack() as stack:
        clusters = {
            OFF: stack.enter_context(ScriptCluster(WITHOUT_SPARK)),
            ON: stack.enter_context(ScriptCluster({**WITHOUT_SPARK, "metrics.reporters": "prometheus"})),
        }
        rounds, jobs = (1, 10) if small else (ROUNDS, JOBS)
        spent, size = asyncio.run(_measured(clusters, rounds, jobs))
    for name, values in spent.items():
        report.add(
            f"CPU of all processes per no-op job, {name}, median of {rounds} x {jobs}", percentile(values, 50), "ms"
        )
    ratios = [on / off for off, on in zip(spent[OFF], spent[ON], strict=True)]
    report.add("CPU of all processes: with by without, median of pairs", percentile(ratios, 50), "", Target(RATIO_MAX))
    report.add("text of all processes together", size / 1024, "KB")
    return report
