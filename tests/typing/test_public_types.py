"""The public API in a type checker: the snippets that it must accept or refuse, and the codes of its errors."""

import re
import subprocess
import sys
from collections import defaultdict
from pathlib import Path

import pytest

pytestmark = pytest.mark.slow

ROOT = Path(__file__).resolve().parents[2]
SNIPPETS = Path(__file__).parent / "snippets"
_EXPECT = re.compile(r"# expect: ([\w-]+)$")
_ERROR = re.compile(r"^(?P<file>[^:]+):(?P<line>\d+): error: .*\[(?P<code>[\w-]+)\]$")


@pytest.fixture(scope="module")
def found() -> dict[str, dict[int, set[str]]]:
    """File name -> line -> codes of the errors that mypy sees there."""
    command = [sys.executable, "-m", "mypy", *map(str, sorted(SNIPPETS.glob("*.py")))]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode in {0, 1}, done.stdout + done.stderr
    errors: defaultdict[str, defaultdict[int, set[str]]] = defaultdict(lambda: defaultdict(set))
    for line in done.stdout.splitlines():
        if match := _ERROR.match(line):
            errors[Path(match["file"]).name][int(match["line"])].add(match["code"])
    return {name: dict(lines) for name, lines in errors.items()}


@pytest.mark.parametrize("path", sorted(SNIPPETS.glob("*.py")), ids=lambda path: path.name)
def test_exactly_what_is_expected_is_refused(found: dict[str, dict[int, set[str]]], path: Path) -> None:
    expected = {
        number: {match.group(1)}
        for number, line in enumerate(path.read_text().splitlines(), 1)
        if (match := _EXPECT.search(line))
    }
    assert bool(expected) == path.name.startswith("wrong_")
    assert found.get(path.name, {}) == expected
