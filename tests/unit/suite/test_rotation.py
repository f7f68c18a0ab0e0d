"""Which heavy tests a run leaves to the next ones."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from tests.suite.rotation import HEAVY, LIST, SHARES, is_left_out, rotate, shares

ROOT = Path(__file__).resolve().parents[3]
LISTED = shares(LIST.read_text())


def test_each_listed_file_is_there_once_and_shares_are_alike() -> None:
    lines = [line.split() for line in LIST.read_text().splitlines() if not line.startswith("#")]
    assert len(LISTED) == len(lines)
    assert [path for path in LISTED if not (ROOT / path).is_file()] == []
    seconds = [int(line[0]) for line in lines]
    assert seconds == sorted(seconds, reverse=True), "costly ones first"
    for folder in {path.rpartition("/")[0] for path in LISTED}:
        counts = Counter(share for path, share in LISTED.items() if path.startswith(f"{folder}/"))
        assert max(counts.values()) - min(counts[share] for share in range(SHARES)) <= 1


@pytest.mark.parametrize("marker", sorted(HEAVY))
def test_a_heavy_test_of_a_listed_file_is_in_one_share(marker: str) -> None:
    for path in LISTED:
        assert [is_left_out(path, ["timeout", marker], share, LISTED) for share in range(SHARES)].count(False) == 1


def test_light_tests_and_those_of_other_files_are_in_each() -> None:
    for share in range(SHARES):
        assert not is_left_out(next(iter(LISTED)), ["timeout"], share, LISTED)
        assert not is_left_out("tests/process/test_other.py", ["process"], share, LISTED)


class Item:
    def __init__(self, nodeid: str, *markers: str) -> None:
        self.nodeid, self.markers = nodeid, markers

    def iter_markers(self) -> list[SimpleNamespace]:
        return [SimpleNamespace(name=one) for one in self.markers]


def test_tests_of_a_file_that_is_spread_are_dealt_one_by_one(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "list.txt").write_text("9 a.py spread\n8 b.py\n")
    monkeypatch.setattr("tests.suite.rotation.LIST", tmp_path / "list.txt")
    every = [Item("a.py::light"), *(Item(f"a.py::test[{number}]", "slow") for number in range(2 * SHARES + 1))]
    seen = Counter[str]()
    for share in range(SHARES):
        kept: Any = list(every)
        config: Any = SimpleNamespace(hook=SimpleNamespace(pytest_deselected=lambda items: None))
        rotate(config, kept, share)
        assert len(kept) == (4 if share == 0 else 3)
        seen.update(item.nodeid for item in kept)
    assert seen.pop("a.py::light") == SHARES
    assert set(seen.values()) == {1}
    assert len(seen) == 2 * SHARES + 1


def test_comments_and_empty_lines_have_no_place() -> None:
    assert shares("# why\n\n9 a.py\n8 b.py\n# more\n7 c.py\n") == {"a.py": 0, "b.py": 1, "c.py": 2}


def test_a_file_goes_where_its_folder_has_the_fewest_files_and_the_run_the_fewest_seconds() -> None:
    assert shares("9 a/0.py\n9 b/0.py\n8 c/0.py\n") == {"a/0.py": 0, "b/0.py": 1, "c/0.py": 2}
    folder = "".join(f"{number} a/{number}.py\n" for number in range(SHARES + 2, 0, -1))
    dealt = shares(folder)
    assert [dealt[f"a/{number}.py"] for number in range(SHARES + 2, 2, -1)] == [*range(SHARES)]
    assert (dealt["a/2.py"], dealt["a/1.py"]) == (SHARES - 1, SHARES - 2), "where there is least to do"
    assert shares("90 a/0.py spread\n9 b/0.py\n") == {"a/0.py": 0, "b/0.py": 0}, "each run has a part of the first"
