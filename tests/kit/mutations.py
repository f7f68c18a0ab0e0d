"""Deliberate mistakes, each a patch, and copies of the sources with one of them in it.

Those in `tests/simulation/mutations` are found by seeds of the simulated cluster, those in `tests/mutations`, which
break what the simulation does not have (Spark, processes, files of one host), by a named test. The first line of each
says what the mistake is and which rules of `docs/rules.md` it breaks.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
BY_SEEDS = sorted((ROOT / "tests" / "simulation" / "mutations").glob("*.patch"))
BY_TESTS = sorted((ROOT / "tests" / "mutations").glob("*.patch"))
SUMMARY = ROOT / "tests" / "simulation" / "README.md"

_RULE = re.compile(r"\bR[1-9][0-9]*\b")
_BEGIN, _END = "<!-- mutations: python -m tests.kit.mutations -->\n", "<!-- end of mutations -->\n"
_APPLY = ("git", "apply", "-C1")  # what stands around a mistake may change
_SOURCES = ("runtime", "jobmaster_process", "airflow_flinklike")
_SURROUNDINGS = ("bin", "conf", "dags", "docs", "tests")


def header(patch: Path, name: str) -> str | None:
    """A line above the patch itself, such as `Found by: R3`."""
    found = re.search(rf"^{name}: (.+)$", _head(patch), re.MULTILINE)
    return found[1] if found else None


def mistake(patch: Path) -> str:
    """What is wrong with the product, in a sentence."""
    return _head(patch).splitlines()[0]


def rules_of(patch: Path) -> tuple[str, ...]:
    """Which rules the mistake breaks."""
    return tuple(dict.fromkeys(_RULE.findall(mistake(patch))))


def _head(patch: Path) -> str:
    return patch.read_text(encoding="utf-8").partition("\ndiff --git")[0]


def applies(patch: Path) -> str:
    """Empty, or why it cannot be applied to the sources as they are."""
    done = subprocess.run([*_APPLY, "--check", str(patch)], cwd=ROOT, capture_output=True, text=True, check=False)
    return done.stderr if done.returncode else ""


def mutated(patch: Path, tree: Path, *, with_tests: bool = False) -> Path:
    """A copy of the sources with the mistake in it; `with_tests`: and of all that tests need to run there."""
    folders = (*_SOURCES, *_SURROUNDINGS) if with_tests else (*_SOURCES, "tests/kit")
    for folder in folders:
        shutil.copytree(ROOT / folder, tree / folder, ignore=shutil.ignore_patterns("__pycache__"))
    if with_tests:
        shutil.copy(ROOT / "pyproject.toml", tree)
        (tree / ".venv").symlink_to(sys.prefix)
    subprocess.run([*_APPLY, str(patch)], cwd=tree, capture_output=True, check=True)
    return tree


def simulate(tree: Path, *arguments: str, hash_seed: str = "0") -> subprocess.CompletedProcess[str]:
    """Run seeds with the sources of a tree."""
    return _run(tree, "tests.kit.simulation", *arguments, PYTHONHASHSEED=hash_seed)


def run_test(tree: Path, test: str, report: Path) -> subprocess.CompletedProcess[str]:
    """Run one test with the sources of a tree; `report` gets its outcome as JUnit XML."""
    return _run(tree, "pytest", "-q", "-p", "no:cacheprovider", "--maxfail=1", f"--junitxml={report}", test)


def _run(tree: Path, module: str, *arguments: str, **variables: str) -> subprocess.CompletedProcess[str]:
    inherited = {name: value for name, value in os.environ.items() if not name.startswith(("PYTEST_", "FLINKLIKE_"))}
    environment = {**inherited, "PYTHONPATH": str(tree), **variables}
    command = [sys.executable, "-m", module, *arguments]
    return subprocess.run(command, cwd=tree, env=environment, capture_output=True, text=True, check=False)


def summary() -> str:
    """The table of all mutations, as it stands in the README of the simulation."""
    rows = [
        f"| {', '.join(rules_of(patch))} | `{patch.stem}` | {_RULES_NAMED.sub('', mistake(patch))} "
        f"| {header(patch, 'Found by')} |\n"
        for patch in sorted((*BY_SEEDS, *BY_TESTS), key=lambda one: (_number(one), one.stem))
    ]
    return "| rules | mutation | mistake | found by |\n|---|---|---|---|\n" + "".join(rows)


_RULES_NAMED = re.compile(r" \(R[^)]*\)")


def _number(patch: Path) -> int:
    return min((int(rule[1:]) for rule in rules_of(patch)), default=0)


def with_summary(page: str) -> str:
    """The README with a fresh table."""
    before, _, rest = page.partition(_BEGIN)
    return before + _BEGIN + summary() + _END + rest.partition(_END)[2]


if __name__ == "__main__":
    SUMMARY.write_text(with_summary(SUMMARY.read_text(encoding="utf-8")), encoding="utf-8")
