"""The tests that a change needs: `bin/test.sh --changed [BASE]`.

From the files that differ from BASE, the import graph leads to the test files that use them. Near files come first, and
the list ends where the estimate of their time exceeds the budget of the inner loop; `left_out` has the others.
"""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from tests.suite.import_graph import ImportGraph

ROOT = Path(__file__).resolve().parents[2]
ALWAYS = ("tests/tidy/test_tidy.py", "tests/tidy/test_rules.py")
DISTANCE_MAX = 6
LIGHT_SECONDS = 60.0
HEAVY_SECONDS = 90.0
SECONDS_PER_TEST = {
    "tests/airflow": 6.0,
    "tests/benchmarks": 15.0,
    "tests/chaos": 60.0,
    "tests/cluster": 0.2,
    "tests/contract": 0.4,
    "tests/dags": 6.0,
    "tests/fuzz": 5.0,
    "tests/model": 1.0,
    "tests/mutations": 15.0,
    "tests/process": 8.0,
    "tests/simulation": 2.0,
    "tests/spark": 8.0,
}
"""Estimates of one test function, by folder, on an idle machine, for files that are not measured."""
LIGHT_SECONDS_PER_TEST = 0.05
HEAVY_FOLDERS = ("tests/airflow/", "tests/spark/")

_HEAVY = re.compile(r"\bmark\.(?:spark|etcd|airflow|process|slow)\b")
_TEST = re.compile(r"^ *(?:async )?def test_", re.MULTILINE)
_WORD = re.compile(r"[a-z0-9]+")


@dataclass(frozen=True, slots=True)
class Selection:
    """Test files by kind, nearest first; a file with tests of both kinds is in both."""

    light: list[str]
    heavy: list[str]
    left_out: list[str]


@dataclass(frozen=True, slots=True)
class _Candidate:
    path: str
    order: tuple[int, int, str]
    seconds_light: float
    seconds_heavy: float


def changed_files(root: Path, base: str) -> list[str]:
    """What differs between the merge base of `base` and the working tree, untracked files too.

    Raises SystemExit when git does not know `base`.
    """
    fork = _git(root, "merge-base", base, "HEAD")[0]
    differing = _git(root, "diff", "--name-only", "--no-renames", fork)
    untracked = _git(root, "ls-files", "--others", "--exclude-standard")
    return sorted({*differing, *untracked})


def _git(root: Path, *arguments: str) -> list[str]:
    done = subprocess.run(["git", *arguments], cwd=root, capture_output=True, text=True, check=False)
    if done.returncode:
        message = f"git {' '.join(arguments)}: {done.stderr.strip() or 'no common commit'}"
        raise SystemExit(message)
    return done.stdout.splitlines()


def select(root: Path, changed: Sequence[str]) -> Selection:
    """The tests that those files need."""
    distances = ImportGraph.of(root).distances(changed, DISTANCE_MAX)
    measured = _measured(root)
    words = {word for path in changed for word in _words(path)}
    found = [
        _candidate(root, path, distance, words, measured)
        for path, distance in distances.items()
        if path.startswith("tests/") and path.rpartition("/")[2].startswith("test_") and (root / path).exists()
    ]
    found.sort(key=lambda one: one.order)
    light = _within(((one, one.seconds_light) for one in found), LIGHT_SECONDS)
    heavy = _within(((one, one.seconds_heavy) for one in found), HEAVY_SECONDS)
    asked = {one.path for one in found if one.seconds_light or one.seconds_heavy}
    always = [path for path in ALWAYS if (root / path).exists() and path not in light]
    return Selection([*light, *always], heavy, sorted(asked - {*light, *heavy}))


def _measured(root: Path) -> dict[str, float]:
    """Seconds of whole files, where tests/suite/rotated.txt has them."""
    listed = root / "tests" / "suite" / "rotated.txt"
    lines = listed.read_text(encoding="utf-8").splitlines() if listed.exists() else []
    pairs = (line.split() for line in lines if line and not line.startswith("#"))
    return {path: float(seconds) for seconds, path, *_ in pairs if float(seconds)}


def _candidate(root: Path, path: str, distance: int, words: set[str], measured: Mapping[str, float]) -> _Candidate:
    text = (root / path).read_text(encoding="utf-8")
    tests = len(_TEST.findall(text))
    in_jvm = path.startswith(HEAVY_FOLDERS)
    is_heavy = in_jvm or bool(_HEAVY.search(text))
    is_light = not in_jvm and "pytestmark = " not in text if is_heavy else True
    folder = "/".join(path.split("/")[:2])
    shared = len(words & _words(path))
    return _Candidate(
        path,
        (distance, -shared, path),
        tests * LIGHT_SECONDS_PER_TEST if is_light else 0.0,
        measured.get(path, tests * SECONDS_PER_TEST.get(folder, 2.0)) if is_heavy else 0.0,
    )


def _words(path: str) -> set[str]:
    """Of a path, without what all tests have and without plurals."""
    return {word.removesuffix("s") for word in _WORD.findall(path.removesuffix(".py").lower())} - {"test", "runtime"}


def _within(costs: Iterable[tuple[_Candidate, float]], budget: float) -> list[str]:
    """The nearest that fit, and all that have changed themselves."""
    chosen: list[str] = []
    spent = 0.0
    for one, seconds in costs:
        if seconds and (one.order[0] == 0 or spent + seconds <= budget):
            chosen.append(one.path)
            spent += seconds
    return chosen


def main(argv: Sequence[str]) -> int:
    """`changed [BASE]`: a line `light FILE` or `heavy FILE` for each; what is left out goes to stderr."""
    changed = changed_files(ROOT, argv[0] if argv else "HEAD")
    selection = select(ROOT, changed)
    lines = [f"light {path}" for path in selection.light] + [f"heavy {path}" for path in selection.heavy]
    sys.stdout.write("".join(f"{line}\n" for line in lines))
    sys.stderr.write(f"{len(changed)} changed files: {len(selection.light)} files with light tests, ")
    sys.stderr.write(f"{len(selection.heavy)} with others.\n")
    if selection.left_out:
        sys.stderr.write(f"Left out, for time: {' '.join(selection.left_out)}\n")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
