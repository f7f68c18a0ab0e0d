"""The floors of branch coverage: `bin/test.sh --coverage` compares the light tests with `coverage_floors.toml`.

A component is a folder of `runtime`, or another package. The `core` of a component, where its decisions are, counts on
its own and has the highest floor.
"""

from __future__ import annotations

import json
import sys
import tomllib
from collections import defaultdict
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

FLOORS = Path(__file__).with_name("coverage_floors.toml")


def component(path: str) -> str:
    """`runtime/rest`, `runtime/rest/core`, `airflow_flinklike`."""
    parts = path.split("/")[:-1]
    name = "/".join(parts[:2] if parts[0] == "runtime" else parts[:1])
    return f"{name}/core" if "core" in parts else name


def covered(report: Mapping[str, Any]) -> dict[str, float]:
    """Percent of branches by component, from coverage's JSON report; 100 where there is no branch."""
    branches: dict[str, list[int]] = defaultdict(lambda: [0, 0])
    for path, file in report["files"].items():
        counts = branches[component(path)]
        counts[0] += file["summary"]["covered_branches"]
        counts[1] += file["summary"]["num_branches"]
    return {name: 100.0 * hit / of if of else 100.0 for name, (hit, of) in sorted(branches.items())}


def complaints(found: Mapping[str, float], floors: Mapping[str, float]) -> list[str]:
    """A sentence for each component below its floor, each core without one, and each floor without a component."""
    below = [
        f"{name}: {found[name]:.1f} % of the branches are covered, the floor is {floor} %"
        for name, floor in floors.items()
        if name in found and found[name] < floor
    ]
    unknown = [f"{name}: has no floor, give it one" for name in found if name.endswith("/core") and name not in floors]
    return [*below, *unknown, *(f"{name}: is no component" for name in floors if name not in found)]


def table() -> dict[str, float]:
    """The floors, in percent, by component."""
    floors: dict[str, float] = tomllib.loads(FLOORS.read_text(encoding="utf-8"))["branches"]
    return floors


def main(argv: Sequence[str]) -> int:
    """`floors REPORT.json`: the table, and 1 when there is a complaint."""
    found = covered(json.loads(Path(argv[0]).read_text(encoding="utf-8")))
    floors = table()
    for name, percent in found.items():
        sys.stdout.write(f"{percent:6.1f} %  (floor {floors.get(name, 0):>3} %)  {name}\n")
    wrong = complaints(found, floors)
    sys.stderr.write("".join(f"{line} ({FLOORS.name})\n" for line in wrong))
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
