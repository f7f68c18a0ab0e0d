"""Which heavy tests a run leaves to the next ones: bin/test.sh runs a twelfth of the files of `rotated.txt` each time.

bin/test.sh takes the share from the hash of the commit, so that a commit has the same tests everywhere.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from pathlib import Path

import pytest

SHARES = 12
HEAVY = frozenset({"spark", "airflow", "etcd", "process", "slow"})
"""Markers of tests that are not light; light ones of a listed file run each time."""
LIST = Path(__file__).with_name("rotated.txt")


def shares(text: str) -> dict[str, int]:
    """The share of each file of the list: files are dealt by folder, as folders run beside each other, there and back.

    Each folder begins with another share.
    """
    dealt: dict[str, int] = {}
    found: dict[str, int] = {}
    for line in text.splitlines():
        if line and not line.startswith("#"):
            path = line.split()[1]
            folder = path.rpartition("/")[0]
            lap, place = divmod(dealt.setdefault(folder, 0), SHARES)
            first = [*dealt].index(folder)
            found[path] = (first + (SHARES - 1 - place if lap % 2 else place)) % SHARES
            dealt[folder] += 1
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
