"""The proof is proved: each deliberate mistake is found, by the rule that it breaks, within 500 seeds."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.kit.mutations import MUTATIONS, mutated, simulate

SEEDS = 500

pytestmark = [pytest.mark.slow, pytest.mark.timeout(1800)]


def rule_of(patch: Path) -> str:
    """The rule that its header names."""
    found = re.search(r"^Found by: (.+)$", patch.read_text(encoding="utf-8"), re.MULTILINE)
    assert found, patch
    return found[1]


def faults_of(patch: Path) -> list[str]:
    """Those that it needs, where what must be survived does not show it."""
    found = re.search(r"^Faults: (.+)$", patch.read_text(encoding="utf-8"), re.MULTILINE)
    return ["--faults", found[1]] if found else []


@pytest.mark.parametrize("patch", MUTATIONS, ids=lambda patch: patch.stem)
def test_a_mistake_is_found(patch: Path, tmp_path: Path) -> None:
    tree = mutated(patch, tmp_path / "tree")
    done = simulate(tree, "--jobs", "2", "--seeds", str(SEEDS), *faults_of(patch))
    assert done.returncode == 1, f"{SEEDS} seeds are clean"
    assert "replay: " in done.stdout, done.stdout + done.stderr
    broken = ", ".join(re.findall(r"^  broken: (.+)$", done.stdout, re.MULTILINE))
    assert rule_of(patch) in broken.split(", "), done.stdout
