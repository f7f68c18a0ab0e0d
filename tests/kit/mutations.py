"""Copies of the sources with a deliberate mistake in them (`tests/simulation/mutations`)."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
MUTATIONS = sorted((ROOT / "tests" / "simulation" / "mutations").glob("*.patch"))


def mutated(patch: Path, tree: Path) -> Path:
    """A copy of the sources with the mistake in it."""
    for folder in ("runtime", "jobmaster_process", "airflow_flinklike", "tests/kit"):
        shutil.copytree(ROOT / folder, tree / folder, ignore=shutil.ignore_patterns("__pycache__"))
    subprocess.run(["git", "apply", str(patch)], cwd=tree, check=True)
    return tree


def simulate(tree: Path, *arguments: str, hash_seed: str = "0") -> subprocess.CompletedProcess[str]:
    """Run seeds with the sources of a tree."""
    environment = {**os.environ, "PYTHONPATH": str(tree), "PYTHONHASHSEED": hash_seed}
    command = [sys.executable, "-m", "tests.kit.simulation", *arguments]
    return subprocess.run(command, cwd=tree, env=environment, capture_output=True, text=True, check=False)
