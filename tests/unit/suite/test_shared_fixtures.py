"""What tests/conftest.py does with a shared fixture that fails, and with the times of tests."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[3]
TESTS = """
import pytest

@pytest.fixture(scope="session")
def shared():
    raise RuntimeError("nothing to share")

@pytest.fixture
def own():
    raise RuntimeError("nothing of one's own")

@pytest.mark.parametrize("number", range(5))
def test_with_the_shared_one(shared, number): pass

@pytest.mark.parametrize("number", range(2))
def test_with_an_own_one(own, number): pass
"""


def test_a_shared_fixture_that_fails_is_one_error(tmp_path: Path) -> None:
    (tmp_path / "pytest.ini").write_text("[pytest]\n")
    (tmp_path / "test_these.py").write_text(TESTS)
    notes = tmp_path / "notes"
    command = [sys.executable, "-m", "pytest", "-q", "-rs", "-p", "no:cacheprovider", "-p", "tests.conftest"]
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "FLINKLIKE_TEST_NOTES": str(notes)}
    environment.pop("PYTEST_XDIST_WORKER", None)
    done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False)
    assert "4 skipped, 3 errors" in done.stdout, done.stdout + done.stderr
    assert "[4] test_these.py:0: its fixture has failed before: RuntimeError: nothing to share" in done.stdout
    assert notes.read_text().splitlines() == [
        "FAILED test_these.py::test_with_the_shared_one[0]",
        "FAILED test_these.py::test_with_an_own_one[0]",
        "FAILED test_these.py::test_with_an_own_one[1]",
        "SPENT test_these.py 0 0",
    ]
