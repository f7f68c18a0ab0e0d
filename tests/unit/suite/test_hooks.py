"""The hooks of a commit: what bin/test.sh checks first, without a network."""

from __future__ import annotations

from pathlib import Path

import yaml

ROOT = Path(__file__).resolve().parents[3]
REQUIRED = {"ruff", "mypy", "pytest"}


def test_hooks_are_local_and_run_the_tools_of_the_environment() -> None:
    repositories = yaml.safe_load((ROOT / ".pre-commit-config.yaml").read_text())["repos"]
    assert [one["repo"] for one in repositories] == ["local"]
    hooks = repositories[0]["hooks"]
    assert [hook["id"] for hook in hooks] == ["ruff", "format", "mypy", "tidy", "changelog"]
    assert {hook["language"] for hook in hooks} == {"system"}
    assert {hook["entry"].split()[0].removeprefix(".venv/bin/") for hook in hooks} == {*REQUIRED, "python"}
    pinned = {line.partition("==")[0] for name in ("dev", "testing") for line in requirements(name)}
    assert pinned >= {*REQUIRED, "coverage"}


def requirements(name: str) -> list[str]:
    return (ROOT / "requirements" / f"{name}.txt").read_text().splitlines()
