"""Which heavy tests a run leaves to the next ones: it has a sixteenth of the files of `rotated.txt` (bin/test.sh).

bin/test.sh takes the share from the hash of the commit, so that a commit has the same tests everywhere.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from pathlib import Path

import pytest

SHARES = 16
HEAVY = frozenset({"spark", "airflow", "etcd", "process", "slow"})
"""Markers of tests that are not light; light ones of a listed file run each time."""
LIST = Path(__file__).with_name("rotated.txt")


def shares(text: str) -> dict[str, int]:
    """The share of each file of the list: folders are dealt evenly, as they run beside each other.

    Among the shares that have the fewest files of its folder, a file goes to the one with the fewest seconds.
    """
    spread_files = spread(text)
    seconds = [0] * SHARES
    dealt: dict[str, list[int]] = {}
    found: dict[str, int] = {}
    for line in text.splitlines():
        if line and not line.startswith("#"):
            cost, path = line.split()[:2]
            files = dealt.setdefault(path.rpartition("/")[0], [0] * SHARES)
            share = min(zip(files, seconds, range(SHARES), strict=True))[2]
            found[path] = share
            files[share] += 1
            seconds[share] += 0 if path in spread_files else int(cost)
    return found


def spread(text: str) -> frozenset[str]:
    """The files whose heavy tests are dealt one by one: each run has some of them."""
    rows = (line.split() for line in text.splitlines() if line and not line.startswith("#"))
    return frozenset(path for _, path, *words in rows if words == ["spread"])


def is_left_out(path: str, markers: Iterable[str], share: int, listed: Mapping[str, int]) -> bool:
    """True for a heavy test of a file that has another share."""
    return listed.get(path, share) != share and not HEAVY.isdisjoint(markers)


def rotate(config: pytest.Config, items: list[pytest.Item], share: int) -> None:
    """Leave those of other shares out of a run."""
    text = LIST.read_text(encoding="utf-8")
    by_file, by_test = shares(text), spread(text)
    dealt = Counter[str]()
    left = []
    for item in items:
        path, markers = item.nodeid.partition("::")[0], [one.name for one in item.iter_markers()]
        own = {path: dealt[path] % SHARES} if path in by_test else by_file
        dealt[path] += not HEAVY.isdisjoint(markers)
        if is_left_out(path, markers, share, own):
            left.append(item)
    if left:
        config.hook.pytest_deselected(items=left)
        items[:] = [item for item in items if item not in set(left)]
