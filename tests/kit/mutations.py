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
PROOFS = ROOT / "docs" / "rule-proofs.md"

_RULE = re.compile(r"\bR[1-9][0-9]*\b")
_APPLY = ("git", "apply", "-C1")  # what stands around a mistake may change
_SOURCES = ("runtime", "jobmaster_process", "airflow_flinklike")
_SURROUNDINGS = ("bin", "conf", "dags", "docs", "tests")


def header(patch: Path, name: str) -> str | None:
    """The value of a line above the patch itself, such as `Found by: R3`; None without that line."""
    found = re.search(rf"^{name}: (.+)$", _head(patch), re.MULTILINE)
    return found[1] if found else None


def mistake(patch: Path) -> str:
    """The first line of a patch: the mistake in one sentence, with its rules in brackets."""
    return _head(patch).splitlines()[0]


def rules_of(patch: Path) -> tuple[str, ...]:
    """The rules that the mistake breaks."""
    return tuple(dict.fromkeys(_RULE.findall(mistake(patch))))


def modules_of(patch: Path) -> tuple[str, ...]:
    """The paths of the sources that the mistake is in, from the project's root."""
    return tuple(re.findall(r"^\+\+\+ b/(\S+)", patch.read_text(encoding="utf-8"), re.MULTILINE))


def _head(patch: Path) -> str:
    return patch.read_text(encoding="utf-8").partition("\ndiff --git")[0]


def applies(patch: Path) -> str:
    """An error text if the patch cannot be applied to the present sources, else ""."""
    done = subprocess.run([*_APPLY, "--check", str(patch)], cwd=ROOT, capture_output=True, text=True, check=False)
    return done.stderr if done.returncode else ""


def mutated(patch: Path, tree: Path, *, with_tests: bool = False) -> Path:
    """A copy of the sources with the mistake in it; `with_tests`: also of the tests and their surroundings."""
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


def with_mistakes(page: str) -> str:
    """The page of proofs with fresh lists of mistakes: one below each rule that the first lines of the patches name."""
    by_rule: dict[str, list[str]] = {}
    for patch in sorted((*BY_SEEDS, *BY_TESTS), key=lambda one: one.stem):
        for rule in rules_of(patch):
            by_rule.setdefault(rule, []).append(_line(patch))
    return _LIST.sub(lambda found: found["before"] + "".join(by_rule.get(found["rule"], [])), page)


_LIST = re.compile(r"(?P<before>^## (?P<rule>R\d+)\n(?:(?!## ).*\n)*?Mistakes\n\n)(?:- .*\n)*", re.MULTILINE)
_RULES_NAMED = re.compile(r" \(R[^)]*\)")


def _line(patch: Path) -> str:
    sentence = _RULES_NAMED.sub("", mistake(patch))
    broken = ", ".join(f"[{Path(path).stem}](../{path})" for path in modules_of(patch))
    finder = f"seeds ({header(patch, 'Found by')})" if patch in BY_SEEDS else _test_link(patch)
    return f"- [{patch.stem}](../{patch.relative_to(ROOT)}) in {broken}: {sentence} Found by {finder}.\n"


def _test_link(patch: Path) -> str:
    path, _, name = (header(patch, "Found by") or "").partition("::")
    return f"[{name}](../{path}#{name.partition('[')[0]})"


if __name__ == "__main__":
    PROOFS.write_text(with_mistakes(PROOFS.read_text(encoding="utf-8")), encoding="utf-8")
