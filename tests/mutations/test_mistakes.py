"""Mistakes that no seed of the simulation can find: a named test fails in a copy of the sources that has one."""

from __future__ import annotations

from pathlib import Path
from xml.etree import ElementTree as ET

import pytest

from tests.kit.mutations import BY_TESTS, header, mutated, run_test

EACH_TIME = next(patch for patch in BY_TESTS if (header(patch, "Found by") or "").startswith("tests/unit/"))
"""The one that proves each time that a mistake is noticed. All others are `extended`: `tests/tidy/test_rules.py` checks
each time that each is a mistake of the sources as they are, and that its test is there."""


def _case(patch: Path) -> object:
    marks = [pytest.mark.slow] if patch == EACH_TIME else [pytest.mark.slow, pytest.mark.extended]
    return pytest.param(patch, id=patch.stem, marks=marks)


@pytest.mark.timeout(600)
@pytest.mark.parametrize("patch", [_case(patch) for patch in BY_TESTS])
def test_a_mistake_fails_its_test(patch: Path, tmp_path: Path) -> None:
    test = header(patch, "Found by")
    assert test, patch
    tree = mutated(patch, tmp_path / "tree", with_tests=True)
    done = run_test(tree, test, tmp_path / "report.xml")
    cases = ET.parse(tmp_path / "report.xml").getroot().findall(".//testcase")
    if cases and all(case.find("skipped") is not None for case in cases):
        pytest.skip(f"{test} does not run here")
    # Not an error of a fixture, nor of an import: the test has looked, and what it saw is wrong.
    assert any(case.find("failure") is not None for case in cases), done.stdout + done.stderr
