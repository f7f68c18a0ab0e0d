"""The proof is proved: each deliberate mistake is found, by the rule that it breaks, within 100 seeds."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.kit.mutations import BY_SEEDS, header, mutated, simulate

SEEDS = 100
AT_ONCE = 10
"""The search ends where it has found something: most mistakes show in the first few seeds."""

pytestmark = [pytest.mark.slow, pytest.mark.timeout(1800)]


EACH_TIME = next(patch for patch in BY_SEEDS if header(patch, "Seen at") == "1")
"""The one that proves each time that a mistake is noticed, by the first seed. All others are `extended`."""


def _case(patch: Path) -> object:
    return pytest.param(patch, id=patch.stem, marks=() if patch == EACH_TIME else pytest.mark.extended)


@pytest.mark.parametrize("patch", [_case(patch) for patch in BY_SEEDS])
def test_a_mistake_is_found(patch: Path, tmp_path: Path) -> None:
    tree = mutated(patch, tmp_path / "tree")
    faults = header(patch, "Faults")
    arguments = ["--faults", faults] if faults else []
    arguments += (header(patch, "Mode") or "").split()
    # Where it was seen last is looked at first: other seeds only if the worlds are drawn in another way since.
    if not finds(tree, patch, "--only", header(patch, "Seen at") or "1", *arguments):
        # It may break other rules as well, and a seed may notice those only.
        some = ("--jobs", "2", "--failures-max", "12", "--seeds", str(AT_ONCE), *arguments)
        assert any(finds(tree, patch, "--from", str(first), *some) for first in range(1, SEEDS + 1, AT_ONCE)), (
            "not found"
        )


def finds(tree: Path, patch: Path, *arguments: str) -> bool:
    """True when a seed fails by a rule that is named."""
    done = simulate(tree, *arguments)
    assert done.returncode == 0 or "replay: " in done.stdout, done.stdout + done.stderr
    broken = ", ".join(re.findall(r"^  broken: (.+)$", done.stdout, re.MULTILINE))
    return not {*(header(patch, "Found by") or "").split(", ")}.isdisjoint(broken.split(", "))
