"""Makes `tests.kit` importable wherever pytest is started, and has what all folders share."""

import gc
import logging
import os
import signal
import sys
from collections.abc import Generator
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from tests.kit.fixtures import built_archive, class_archive

__all__ = ["built_archive", "class_archive"]

if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:  # a shell's & does that, and every child would inherit it
    signal.signal(signal.SIGINT, signal.default_int_handler)

gc.set_threshold(100_000, 20, 50)  # thousands of tests make a heap that is slow to look through and hardly ever garbage


def pytest_collection_finish() -> None:
    gc.collect()
    gc.freeze()


FAILED_TESTS = os.environ.pop(
    "FLINKLIKE_FAILED_TESTS", None
)  # no run that a test starts, of a mutation say, adds to it


def note_failure(report: pytest.TestReport | pytest.CollectReport) -> None:
    """For the last words of bin/test.sh, which runs several of us."""
    if report.failed and FAILED_TESTS:
        with Path(FAILED_TESTS).open("a") as noted:
            noted.write(f"FAILED {report.nodeid}\n")


pytest_runtest_logreport = pytest_collectreport = note_failure

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
