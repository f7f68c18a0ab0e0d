"""What benchmarks measure with: percentiles, CPU and memory of process trees, the machine's calibration loop."""

from __future__ import annotations

import json
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from tests.kit.process_tree import cpu_seconds, tree

__all__ = ["Report", "Row", "calibrate", "cpu_seconds", "percentile", "pss_bytes", "tree"]


def percentile(values: Sequence[float], percent: float) -> float:
    """Nearest-rank percentile; NaN for no values."""
    if not values:
        return float("nan")
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(len(ordered) * percent / 100))]


def calibrate() -> float:
    """Milliseconds of a fixed Python loop, the best of five: 9 to 10 on a quiet machine of the reference kind."""
    best = float("inf")
    for _ in range(5):
        begin = time.perf_counter()
        total = 0
        for number in range(200_000):
            total += number & 7
        best = min(best, time.perf_counter() - begin)
    return best * 1000


def pss_bytes(pid: int) -> int:
    """Proportional set size of one process."""
    for line in Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines():
        if line.startswith("Pss:"):
            return int(line.split()[1]) * 1024
    return 0


@dataclass(frozen=True, slots=True)
class Row:
    """One line of a benchmark's table."""

    name: str
    value: float
    unit: str
    now: str = ""
    goal: str = ""


class Report:
    """Rows of one benchmark, printed as a table and kept as JSON."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.rows: list[Row] = []
        self.calibration_ms = calibrate()

    def add(self, name: str, value: float, unit: str, *, now: str = "", goal: str = "") -> None:
        """One figure, with what was asked for."""
        self.rows.append(Row(name, value, unit, now, goal))

    def add_distribution(self, name: str, values_ms: Sequence[float], *, now: str = "", goal: str = "") -> None:
        """Median and p99 of times in milliseconds."""
        self.add(f"{name} p50", percentile(values_ms, 50), "ms", now=now, goal=goal)
        self.add(f"{name} p99", percentile(values_ms, 99), "ms")

    def add_cpu(self, per: str, before: Mapping[str, float], after: Mapping[str, float], operations: int) -> None:
        """CPU per operation of every role."""
        for role in before:
            self.add(f"CPU of {role} per {per}", 1000 * (after[role] - before[role]) / operations, "ms")

    def table(self) -> str:
        """For people."""
        lines = [f"== {self.name} (calibration loop {self.calibration_ms:.1f} ms)"]
        width = max(len(row.name) for row in self.rows)
        lines += [
            f"{row.name.ljust(width)}  {row.value:12.2f} {row.unit.ljust(6)}"
            + (f"  now {row.now}" if row.now else "")
            + (f"  goal {row.goal}" if row.goal else "")
            for row in self.rows
        ]
        return "\n".join(lines)

    def to_json(self) -> str:
        """For programs."""
        rows = [{name: getattr(row, name) for name in Row.__slots__} for row in self.rows]
        return json.dumps({"benchmark": self.name, "calibration_ms": self.calibration_ms, "rows": rows})
