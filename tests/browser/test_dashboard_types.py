"""The dashboard's scripts are type-checked (TypeScript's checker over JSDoc), where npm is there and has it."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

pytestmark = [pytest.mark.process, pytest.mark.slow]

ROOT = Path(__file__).parents[2]
COMPILER = "typescript@7.0.2"


def test_the_checker_finds_nothing_and_would_find_a_mistake(tmp_path: Path) -> None:
    npm = shutil.which("npm")
    if npm is None:
        pytest.skip("no npm")
    install = [npm, "install", "--ignore-scripts", "--no-audit", "--no-fund", "--prefix", str(tmp_path), COMPILER]
    installed = subprocess.run(install, capture_output=True, text=True, check=False)
    if installed.returncode != 0:
        pytest.skip(f"npm has no {COMPILER}: {installed.stderr[-300:]}")
    checker = str(tmp_path / "node_modules" / ".bin" / "tsc")
    copy = tmp_path / "dashboard"
    shutil.copytree(ROOT / "runtime" / "rest" / "dashboard", copy, ignore=shutil.ignore_patterns("__pycache__"))

    def found() -> str:
        done = subprocess.run([checker, "-p", str(copy / "jsconfig.json")], capture_output=True, text=True, check=False)
        return done.stdout

    assert found() == ""
    file = copy / "static" / "format.js"
    file.write_text(file.read_text().replace("count.toLocaleString", "count.toLocalString"))
    assert "toLocalString" in found()
