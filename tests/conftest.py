"""Makes `tests.kit` importable wherever pytest is started, and has what all folders share."""

import gc
import logging
import os
import signal
import sys
from collections import defaultdict
from collections.abc import Generator
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from tests.kit.fixtures import built_archive, class_archive
from tests.suite.rotation import SHARES, rotate

__all__ = ["built_archive", "class_archive"]

if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:  # a shell's & does that, and every child would inherit it
    signal.signal(signal.SIGINT, signal.default_int_handler)

gc.set_threshold(100_000, 20, 50)  # thousands of tests make a heap that is slow to look through and hardly ever garbage


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--share", type=int, choices=range(SHARES), help="which files of tests/suite/rotated.txt run (default: all)"
    )


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    if (share := config.getoption("--share")) is not None:
        rotate(config, items, share)


def pytest_collection_finish() -> None:
    gc.collect()
    gc.freeze()


NOTES = os.environ.pop("FLINKLIKE_TEST_NOTES", None)  # no run that a test starts, of a mutation say, adds to them
_spent: dict[str, list[float]] = defaultdict(lambda: [0, 0.0])
"""Tests and seconds by file."""


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    file = _spent[report.nodeid.partition("::")[0]]
    file[0] += report.when == "call"
    file[1] += report.duration
    note_failure(report)
    if report.skipped and "no browser" in str(report.longrepr):
        note(f"NO-BROWSER {report.nodeid}")


def note_failure(report: pytest.TestReport | pytest.CollectReport) -> None:
    """For the last words of bin/test.sh, which runs several of us."""
    if report.failed:
        note(f"FAILED {report.nodeid}")


pytest_collectreport = note_failure


def pytest_sessionfinish() -> None:
    for file, (tests, seconds) in _spent.items():
        note(f"SPENT {file} {tests} {seconds:.0f}")


def note(line: str) -> None:
    """A line for bin/test.sh, if it runs us. A process of pytest-xdist says nothing: the one that started it does."""
    if NOTES and "PYTEST_XDIST_WORKER" not in os.environ:
        with Path(NOTES).open("a") as notes:
            notes.write(f"{line}\n")


_told: list[BaseException] = []
"""What fixtures have raised. Pytest raises the same object again for each test that wants a shared fixture."""


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item, call: pytest.CallInfo[None]
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """A shared fixture that fails is one error; the other tests that want it are skipped, as they cannot run."""
    report = yield
    if call.when == "setup" and report.failed and call.excinfo:
        if any(call.excinfo.value is one for one in _told):
            report.outcome = "skipped"
            report.longrepr = (*item.location[:1], 0, f"its fixture has failed before: {call.excinfo.exconly()[:200]}")
        _told.append(call.excinfo.value)
    return report


def pytest_unconfigure() -> None:
    """Objects of a JVM that has ended go last, each with a page of py4j's words below the summary."""
    logging.getLogger("py4j").setLevel(logging.CRITICAL)
