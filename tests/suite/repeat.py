"""The hunt for a flaky test: `bin/test.sh --repeat N [--load K] PYTEST_ARGUMENTS`.

The selection runs N times, each time in another random order; `--load K` has K processes beside it that use all the CPU
that they get. The summary says which test failed how often, with the log of each failure.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
from collections import defaultdict
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from xml.etree import ElementTree as ET

from tests.suite.shuffled import SEED

NO_TESTS = 5
INTERRUPTED = 2
_BUSY = "import os\nwhile os.getppid() == {parent}:\n    sum(range(100_000))"


@contextmanager
def load(processes: int) -> Iterator[None]:
    """So many processes that compute; they end with the block, or with this process."""
    command = [sys.executable, "-c", _BUSY.format(parent=os.getpid())]
    busy = [subprocess.Popen(command) for _ in range(processes)]
    try:
        yield
    finally:
        for process in busy:
            process.kill()
            process.wait()


def failures_of(report: Path) -> list[str]:
    """The tests of a JUnit report that failed, in their setup and teardown too."""
    if not report.exists():
        return []
    cases = ET.parse(report).getroot().iter("testcase")
    return [
        f"{case.get('classname')}::{case.get('name')}"
        for case in cases
        if case.find("failure") is not None or case.find("error") is not None
    ]


def hunt(count: int, arguments: Sequence[str], directory: Path) -> tuple[int, dict[str, list[Path]]]:
    """Run the selection up to `count` times; how often it ran, and the logs of each test that failed.

    Ends early when pytest is interrupted, selects nothing, or takes its arguments for wrong. Logs of good runs go.
    """
    failed: dict[str, list[Path]] = defaultdict(list)
    for number in range(1, count + 1):
        log, report = directory / f"{number}.log", directory / f"{number}.xml"
        command = [sys.executable, "-m", "pytest", "-q", "-p", "tests.suite.shuffled", f"--junitxml={report}"]
        with log.open("wb") as file:
            environment = {**os.environ, SEED: str(number)}
            code = subprocess.run([*command, *arguments], stdout=file, stderr=file, env=environment, check=False)
        for test in failures_of(report) or ["pytest itself"] * bool(code.returncode):
            failed[test].append(log)
        report.unlink(missing_ok=True)
        sys.stdout.write(f"run {number} of {count}: {_last_line(log)}\n")
        sys.stdout.flush()
        if code.returncode not in {0, 1}:
            return number, failed
        if code.returncode == 0:
            log.unlink()
    return count, failed


def _last_line(log: Path) -> str:
    lines = log.read_text(encoding="utf-8", errors="replace").splitlines()
    return lines[-1] if lines else "no output"


def main(argv: Sequence[str]) -> int:
    """0 when every run passed."""
    parser = argparse.ArgumentParser(prog="bin/test.sh --repeat", description=__doc__, allow_abbrev=False)
    parser.add_argument("count", type=int, metavar="N", help="how often")
    parser.add_argument("--load", type=int, default=0, metavar="K", help="busy processes beside it")
    options, arguments = parser.parse_known_args(argv)
    directory = Path(tempfile.mkdtemp(prefix="flinklike-repeat-"))
    with load(options.load):
        runs, failed = hunt(options.count, arguments, directory)
    if not failed:
        directory.rmdir()
        sys.stdout.write(f"No failure in {runs} runs.\n")
        return 0
    sys.stdout.write(f"Of {runs} runs:\n")
    for test, logs in sorted(failed.items(), key=lambda one: -len(one[1])):
        sys.stdout.write(f"{len(logs)} x {test}\n" + "".join(f"    {log}\n" for log in logs))
    return 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
