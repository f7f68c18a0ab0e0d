"""The hunt for a flaky test."""

from __future__ import annotations

from pathlib import Path

import psutil
import pytest

from tests.suite.repeat import load, main

pytestmark = pytest.mark.slow

TESTS = """
from pathlib import Path

RUNS = Path(__file__).with_name("runs")

def test_good(): pass

def test_flaky():
    with RUNS.open("a") as file:
        file.write("x")
    assert len(RUNS.read_text()) != 2
"""


@pytest.fixture
def tests(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A file of tests, of which one fails in the second run."""
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    (tmp_path / "pytest.ini").write_text("[pytest]\n")
    file = tmp_path / "test_these.py"
    file.write_text(TESTS)
    return file


def test_a_test_that_fails_once_is_named_with_its_log(tests: Path, capfd: pytest.CaptureFixture[str]) -> None:
    assert main(["3", "--load", "1", "-p", "no:cacheprovider", str(tests)]) == 1
    said = capfd.readouterr().out
    (log,) = tests.parent.glob("flinklike-repeat-*/*.log")
    assert said.endswith(f"Of 3 runs:\n1 x test_these::test_flaky\n    {log}\n")
    assert "assert 2 != 2" in log.read_text()
    assert "order: FLINKLIKE_TEST_ORDER=2 pytest -p tests.suite.shuffled" not in said, "that is in the log"


def test_nothing_is_left_of_runs_that_pass(tests: Path, capfd: pytest.CaptureFixture[str]) -> None:
    assert main(["2", "-k", "good", "-p", "no:cacheprovider", str(tests)]) == 0
    assert capfd.readouterr().out.endswith("No failure in 2 runs.\n")
    assert not list(tests.parent.glob("flinklike-repeat-*"))


def test_a_selection_without_a_test_is_a_failure_at_once(tests: Path, capfd: pytest.CaptureFixture[str]) -> None:
    assert main(["9", "-k", "nothing", "-p", "no:cacheprovider", str(tests)]) == 1
    assert "Of 1 runs:\n1 x pytest itself\n" in capfd.readouterr().out


def test_the_load_ends_with_its_block() -> None:
    others = {child.pid for child in psutil.Process().children()}
    with load(2):
        busy = {child.pid for child in psutil.Process().children()} - others
    assert len(busy) >= 2
    assert not busy & {child.pid for child in psutil.Process().children()}
