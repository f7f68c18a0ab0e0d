"""`python -m tests.benchmarks NAME... | --all [--small] [--json FILE]`."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from tests.benchmarks import (
    adaptive,
    airflow_tasks,
    commit,
    control_plane,
    dashboard,
    denials,
    encryption,
    environments,
    etcd_writes,
    hostile,
    job_lists,
    metrics,
    migration,
    recovery,
    rpc_stream,
    scheduler_core,
    shares,
    soak,
    spark,
    speculation,
    stream_restarts,
    streaming,
    traces,
    triggers,
)
from tests.benchmarks.measure import Report

BENCHMARKS: dict[str, Callable[..., Report]] = {
    **control_plane.BENCHMARKS,
    **spark.BENCHMARKS,
    **environments.BENCHMARKS,
    **adaptive.BENCHMARKS,
    **speculation.BENCHMARKS,
    **triggers.BENCHMARKS,
    **dashboard.BENCHMARKS,
    **denials.BENCHMARKS,
    **hostile.BENCHMARKS,
    **streaming.BENCHMARKS,
    **stream_restarts.BENCHMARKS,
    "scheduler-core": scheduler_core.scheduler_core,
    "shares": shares.shares,
    "job-lists": job_lists.job_lists,
    "rpc-stream": rpc_stream.rpc_stream,
    "encryption": encryption.encryption,
    "metrics": metrics.metrics,
    "traces": traces.traces,
    "etcd-writes": etcd_writes.etcd_writes,
    "recovery": recovery.recovery,
    "commit": commit.commit,
    "soak": soak.soak,
    "airflow": airflow_tasks.airflow_tasks,
    "migration": migration.migration,
}
REPEATED = frozenset({"recovery", "soak"})
"""Those that take `--runs`."""
DRAWN = frozenset({"shares", "soak"})
"""Those that take `--plot`."""


def parse(arguments: Sequence[str]) -> argparse.Namespace:
    """The command line. Exits with a usage message when it names nothing, or something unknown."""
    parser = argparse.ArgumentParser(prog="bench.sh", description="Benchmarks on real processes.", allow_abbrev=False)
    parser.add_argument("names", nargs="*", metavar="NAME", help=", ".join(BENCHMARKS))
    parser.add_argument("--all", action="store_true", help="all of them")
    parser.add_argument("--small", action="store_true", help="quick and imprecise: only shows that they work")
    repeated = ", ".join(sorted(REPEATED))
    parser.add_argument("--runs", type=int, metavar="N", help=f"rounds or jobs of {repeated} instead of its own number")
    parser.add_argument("--plot", type=Path, metavar="FILE", help=f"an SVG with the curves of {', '.join(DRAWN)}")
    parser.add_argument("--json", type=Path, metavar="FILE", help="also write a line of JSON per benchmark")
    given = parser.parse_args(arguments)
    unknown = [name for name in given.names if name not in BENCHMARKS]
    if unknown:
        parser.error(f"no benchmark {', '.join(unknown)}: choose from {', '.join(BENCHMARKS)}")
    if not given.names and not given.all:
        parser.error(f"name one of {', '.join(BENCHMARKS)}, or give --all")
    return given


def main(arguments: Sequence[str]) -> int:
    """Run the named benchmarks one after another; each one's figures are out before the next begins."""
    given = parse(arguments)
    with ExitStack() as stack:
        file = stack.enter_context(given.json.open("w", encoding="utf-8")) if given.json else None
        for name in BENCHMARKS if given.all else given.names:
            more: dict[str, Any] = {"runs": given.runs} if name in REPEATED else {}
            more |= {"figure": given.plot} if name in DRAWN else {}
            report = BENCHMARKS[name](small=given.small, **more)
            sys.stdout.write(report.table() + "\n\n")
            sys.stdout.flush()
            if file is not None:
                file.write(report.to_json() + "\n")
                file.flush()
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
