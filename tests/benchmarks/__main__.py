"""`python -m tests.benchmarks NAME | --all [--small] [--json FILE]`."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path

from tests.benchmarks import control_plane, spark
from tests.benchmarks.measure import Report

BENCHMARKS: dict[str, Callable[..., Report]] = {
    "no-op": control_plane.no_op,
    "wide": control_plane.wide,
    "running": control_plane.running,
    "slot-memory": control_plane.slot_memory,
    "spark": spark.overhead,
    "start": spark.start,
}


def main(arguments: list[str]) -> int:
    """Run the named benchmarks one after another."""
    small = "--small" in arguments
    file = Path(arguments[arguments.index("--json") + 1]) if "--json" in arguments else None
    names = list(BENCHMARKS) if "--all" in arguments else [one for one in arguments if one in BENCHMARKS]
    if not names:
        sys.stdout.write(f"Usage: bench.sh ({'|'.join(BENCHMARKS)} | --all) [--small] [--json FILE]\n")
        return 1
    lines = []
    for name in names:
        report = BENCHMARKS[name](small=small)
        sys.stdout.write(report.table() + "\n\n")
        sys.stdout.flush()
        lines.append(report.to_json())
    if file is not None:
        file.write_text("\n".join(lines) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
