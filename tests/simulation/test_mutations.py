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


@pytest.mark.parametrize("patch", MUTATIONS, ids=lambda patch: patch.stem)
def test_a_mistake_is_found(patch: Path, tmp_path: Path) -> None:
    tree = mutated(patch, tmp_path / "tree")
    done = simulate(tree, "--seeds", str(SEEDS))
    assert done.returncode == 1, f"{SEEDS} seeds are clean"
    assert "replay: " in done.stdout, done.stdout + done.stderr
    broken = re.search(r"^  broken: (.+)$", done.stdout, re.MULTILINE)
    assert broken, done.stdout
    assert rule_of(patch) in broken[1].split(", "), done.stdout
