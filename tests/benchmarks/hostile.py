"""What floods by strangers do to everybody else: REST, gRPC of who has the token, leadership, memory.

Each flood comes from a process of its own on this host, without the token, so the flood itself takes one of the cores
that the cluster has.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence

from tests.benchmarks.cluster import ClusterBenchmark
from tests.benchmarks.hostile_rest import rest_floods
from tests.benchmarks.measure import Report, Target, cpu_seconds, percentile
from tests.kit.cluster.script_cluster import ScriptCluster
from tests.kit.strangers import bystanders
from tests.kit.strangers.h2_floods import KINDS, flooding

SECONDS = 8.0
SERVED = Target("1000 ms")
KEPT = Target("0")
OTHERS = ("many-continuations", "rapid-reset", "silence")
"""Of the floods, those that come to a JobMaster process and a TaskManager too: the port is the same code everywhere."""


def hostile(cluster: ScriptCluster, report: Report, *, small: bool) -> None:
    """One flood after another."""
    seconds = 2.0 if small else SECONDS
    kinds = ("many-continuations", "rapid-reset") if small else tuple(KINDS)
    victims = bystanders.victims(cluster)
    floods = [(victims["jobmanager"], kind) for kind in kinds]
    if not small:
        floods += [(victims[role], kind) for role in ("jobmaster", "taskmanager") for kind in OTHERS]
    for victim, kind in floods:
        asyncio.run(_flood(cluster, report, victim, kind, seconds))
    rest_floods(cluster, report, small=small)


async def _flood(cluster: ScriptCluster, report: Report, victim: bystanders.Victim, kind: str, seconds: float) -> None:
    terms, lapses = bystanders.terms_of_leaders(cluster), bystanders.lapses(cluster)
    before, cpu = bystanders.resident_mb(victim.pid), cpu_seconds([victim.pid])
    peaks: list[float] = [before]

    def is_over() -> bool:
        peaks.append(bystanders.resident_mb(victim.pid))
        return time.monotonic() > until

    until = time.monotonic() + seconds
    with flooding(kind, victim.address, seconds):
        seen = await bystanders.use(cluster, victim, is_over)
    title = f"{victim.role}, {kind}"
    for name, who in seen.items():
        report.add(f"{title}: {name}, longest", 1000 * _longest(who.seconds), "ms", SERVED)
        report.add(f"{title}: {name}, p50", 1000 * percentile(who.seconds, 50), "ms")
    failures = sum(len(who.failures) for who in seen.values())
    report.add(f"{title}: not served", failures, "", KEPT)
    lost = bystanders.terms_of_leaders(cluster) - terms + bystanders.lapses(cluster) - lapses
    report.add(f"{title}: roles lost", lost, "", KEPT)
    report.add(f"{title}: memory, more than before", max(0.0, max(peaks) - before), "MB")
    report.add(f"{title}: CPU", (cpu_seconds([victim.pid]) - cpu) / seconds, "cores")


def _longest(seconds: Sequence[float]) -> float:
    return max(seconds, default=float("nan"))


BENCHMARKS = {
    "hostile": ClusterBenchmark(
        "hostile: floods on the ports",
        {"taskmanager.spark.enabled": "false"},
        {"taskmanager.spark.enabled": "false"},
        hostile,
    )
}
