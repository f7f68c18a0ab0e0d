"""What benchmarks measure with: percentiles, CPU and memory of process trees, the machine's calibration loop."""

from __future__ import annotations

import json
import math
import os
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from tests.kit.host.process_tree import cpu_seconds, tree

__all__ = ["NO_TARGET", "Report", "Row", "Target", "calibrate", "cpu_seconds", "percentile", "pss_bytes", "tree"]

ALL_PROCESSES = "all processes"


def percentile(values: Sequence[float], percent: float) -> float:
    """Nearest-rank percentile; NaN for no values."""
    if not values:
        return float("nan")
    return sorted(values)[max(0, math.ceil(len(values) * percent / 100) - 1)]


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


def job_prefix() -> int:
    """What the ids of one run's jobs begin with."""
    return int.from_bytes(os.urandom(4), "big")


@dataclass(frozen=True, slots=True)
class Target:
    """What is asked of a figure: now, and where it is to go."""

    now: str = ""
    goal: str = ""


NO_TARGET = Target()


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
        self.notes: list[str] = []
        self.calibration_ms = calibrate()

    def add(self, name: str, value: float, unit: str, target: Target = NO_TARGET) -> None:
        """One figure, with what was asked for."""
        self.rows.append(Row(name, value, unit, target.now, target.goal))

    def note(self, text: str) -> None:
        """What a reader has to know: something that was not measured, and why."""
        self.notes.append(text)

    def add_distribution(
        self, name: str, values: Sequence[float], unit: str = "ms", *, p50: Target = NO_TARGET, p99: Target = NO_TARGET
    ) -> None:
        """Median and p99."""
        self.add(f"{name} p50", percentile(values, 50), unit, p50)
        self.add(f"{name} p99", percentile(values, 99), unit, p99)

    def add_cpu(
        self,
        per: str,
        before: Mapping[str, float],
        after: Mapping[str, float],
        operations: int,
        targets: Mapping[str, Target] | None = None,
    ) -> None:
        """CPU per operation of every role, and of all of them together."""
        asked = targets or {}
        used = {role: 1000 * (after[role] - before[role]) / operations for role in before}
        for role, spent in {**used, ALL_PROCESSES: sum(used.values())}.items():
            self.add(f"CPU of {role} per {per}", spent, "ms", asked.get(role, NO_TARGET))

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
        return "\n".join([*lines, *(f"note: {note}" for note in self.notes)])

    def to_json(self) -> str:
        """For programs."""
        rows = [{name: getattr(row, name) for name in Row.__slots__} for row in self.rows]
        about = {"benchmark": self.name, "calibration_ms": self.calibration_ms}
        return json.dumps({**about, "rows": rows, "notes": self.notes})
