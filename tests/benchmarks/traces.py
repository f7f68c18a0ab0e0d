"""What traces cost a no-op job: the same jobs on a cluster without them, and on one that tells each to a collector."""

from __future__ import annotations

import asyncio
from contextlib import ExitStack

from tests.benchmarks.cluster import ScriptCluster
from tests.benchmarks.control_plane import WITHOUT_SPARK
from tests.benchmarks.in_turns import cpu_in_turns
from tests.benchmarks.measure import ALL_PROCESSES, Report, percentile
from tests.kit.services.otlp_receiver import OtlpReceiver

ROUNDS = 12
JOBS = 200
OFF, ON = "without traces", "with a trace each"


def traces(*, small: bool) -> Report:
    """CPU per job, and the ratio of each pair of turns. The collector is this process, and not counted."""
    report = Report("no-op jobs, with and without traces")
    rounds, jobs = (1, 10) if small else (ROUNDS, JOBS)
    with ExitStack() as stack:
        receiver = stack.enter_context(OtlpReceiver().serving())
        endpoint = {"traces.reporters": "otlp", "traces.reporter.otlp.exporter.endpoint": receiver.endpoint}
        clusters = {
            OFF: stack.enter_context(ScriptCluster(WITHOUT_SPARK)),
            ON: stack.enter_context(ScriptCluster({**WITHOUT_SPARK, **endpoint})),
        }
        found = asyncio.run(cpu_in_turns(clusters, rounds, jobs))
        assert receiver.spans, "the collector has got spans"
    spent = {name: by_role[ALL_PROCESSES] for name, by_role in found.items()}
    for name, values in spent.items():
        report.add(
            f"CPU of all processes per no-op job, {name}, median of {rounds} x {jobs}", percentile(values, 50), "ms"
        )
    ratios = [on / off for off, on in zip(spent[OFF], spent[ON], strict=True)]
    report.add("CPU of all processes: with by without, median of pairs", percentile(ratios, 50), "")
    return report
