"""What encryption costs a no-op job: the same jobs on a cluster in plain text and on one with TLS on every link.

Both run all the time, and take turns, so that what else the host does is the same for both. Etcd, which is always
encrypted, is in both. A client keeps its connections, as Airflow's workers and triggerers do.
"""

from __future__ import annotations

import asyncio
from contextlib import ExitStack

from tests.benchmarks.cluster import ScriptCluster
from tests.benchmarks.control_plane import WITHOUT_SPARK
from tests.benchmarks.in_turns import cpu_in_turns
from tests.benchmarks.measure import ALL_PROCESSES, Report, Target, percentile

ROUNDS = 8
JOBS = 100
RATIO_MAX = "1.3"


def encryption(*, small: bool) -> Report:
    """CPU per job by role, and the ratio."""
    report = Report("no-op jobs, with and without TLS")
    with ExitStack() as stack:
        clusters = {name: ScriptCluster(WITHOUT_SPARK) for name in ("plain text", "TLS")}
        clusters["TLS"].encrypt()
        for cluster in clusters.values():
            stack.enter_context(cluster)
        rounds, jobs = (1, 10) if small else (ROUNDS, JOBS)
        spent = asyncio.run(cpu_in_turns(clusters, rounds, jobs))
    for name, by_role in spent.items():
        for role, values in by_role.items():
            report.add(
                f"CPU of {role} per no-op job, {name}, median of {len(values)} x {jobs}", percentile(values, 50), "ms"
            )
    plain, encrypted = (percentile(spent[name][ALL_PROCESSES], 50) for name in ("plain text", "TLS"))
    report.add("CPU of all processes: TLS by plain text", encrypted / plain, "", Target(RATIO_MAX, RATIO_MAX))
    return report
