"""The proof is proved: each deliberate mistake is found, by the rule that it breaks, within 500 seeds."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
MUTATIONS = sorted(Path(__file__).with_name("mutations").glob("*.patch"))
SEEDS = 500

pytestmark = [pytest.mark.slow, pytest.mark.timeout(1800)]


def rule_of(patch: Path) -> str:
    """The rule that its header names."""
    found = re.search(r"^Found by: (.+)$", patch.read_text(encoding="utf-8"), re.MULTILINE)
    assert found, patch
    return found[1]


def mutated(patch: Path, tree: Path) -> Path:
    """A copy of the sources with the mistake in it."""
    for folder in ("runtime", "jobmaster_process", "airflow_flinklike", "tests/kit"):
        shutil.copytree(ROOT / folder, tree / folder, ignore=shutil.ignore_patterns("__pycache__"))
    subprocess.run(["git", "apply", str(patch)], cwd=tree, check=True)
    return tree


@pytest.mark.parametrize("patch", MUTATIONS, ids=lambda patch: patch.stem)
def test_a_mistake_is_found(patch: Path, tmp_path: Path) -> None:
    tree = mutated(patch, tmp_path / "tree")
    environment = {**os.environ, "PYTHONPATH": str(tree), "PYTHONHASHSEED": "0"}
    command = [sys.executable, "-m", "tests.kit.simulation", "--seeds", str(SEEDS)]
    done = subprocess.run(command, cwd=tree, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 1, f"{SEEDS} seeds are clean"
    assert "replay: " in done.stdout, done.stdout + done.stderr
    broken = re.search(r"^  broken: (.+)$", done.stdout, re.MULTILINE)
    assert broken, done.stdout
    assert rule_of(patch) in broken[1].split(", "), done.stdout
