"""The floors of branch coverage."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.suite import floors


def report(**files: tuple[int, int]) -> dict[str, object]:
    summaries = {
        path: {"summary": {"covered_branches": covered, "num_branches": of}} for path, (covered, of) in files.items()
    }
    return {"files": summaries}


def test_the_core_of_a_component_counts_on_its_own() -> None:
    files = {
        "runtime/a/endpoint.py": (1, 4),
        "runtime/a/deep/other.py": (1, 4),
        "runtime/a/core/decide.py": (3, 3),
        "runtime/a/kv/core/more.py": (0, 1),
        "jobmaster_process/x.py": (0, 0),
    }
    assert floors.covered(report(**files)) == {"jobmaster_process": 100.0, "runtime/a": 25.0, "runtime/a/core": 75.0}


def test_a_component_below_its_floor_a_core_without_one_and_a_floor_without_component_are_told() -> None:
    found = {"a": 50.0, "b": 99.0, "new": 100.0, "new/core": 100.0}
    assert floors.complaints(found, {"a": 50.1, "b": 99, "old": 1}) == [
        "a: 50.0 % of the branches are covered, the floor is 50.1 %",
        "new/core: has no floor, give it one",
        "old: is no component",
    ]


def test_the_command_says_each_and_fails_with_a_complaint(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "report.json"
    file.write_text(json.dumps(report(**{"runtime/common/ids.py": (0, 2)})))
    assert floors.main([str(file)]) == 1
    said = capsys.readouterr()
    assert "   0.0 %" in said.out
    assert "runtime/common: 0.0 % of the branches are covered, the floor is " in said.err


def test_every_core_has_a_floor_of_95_percent() -> None:
    for name, floor in floors.table().items():
        assert floor >= 95 or not name.endswith("/core"), name
