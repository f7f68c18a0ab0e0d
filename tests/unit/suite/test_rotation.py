"""Which heavy tests a run leaves to the next ones."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest

from tests.suite.rotation import HEAVY, LIST, SHARES, is_left_out, shares

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


def test_comments_and_empty_lines_have_no_place() -> None:
    assert shares("# why\n\n9 a.py\n8 b.py\n# more\n7 c.py\n") == {"a.py": 0, "b.py": 1, "c.py": 2}


def test_each_folder_is_dealt_there_and_back_again() -> None:
    dealt = shares("".join(f"9 a/{number}.py\n9 b/{number}.py\n" for number in range(SHARES + 2)))
    last = SHARES - 1
    assert [dealt[f"a/{number}.py"] for number in range(SHARES + 2)] == [*range(SHARES), last, last - 1]
    assert [dealt[f"b/{number}.py"] for number in range(SHARES + 2)] == [*range(1, SHARES), 0, 0, last]
