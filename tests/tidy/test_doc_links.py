"""The tests that pages link as proofs exist, and every claim has one."""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
_LINK = re.compile(r"\]\((?!https?://)([^)#\s]+)(?:#([^)\s]+))?\)")
_PROOFS = ("airflow.md", "protocol.md", "fault-tolerance.md", "security.md")
"""Pages on which every line of a table has a test."""


def links() -> list[tuple[str, str, str]]:
    """Page, file, and anchor of each link."""
    return [
        (page.name, match.group(1), match.group(2) or "")
        for page in sorted((ROOT / "docs").glob("*.md"))
        for match in _LINK.finditer(page.read_text(encoding="utf-8"))
    ]


@cache
def proofs_in(path: Path) -> frozenset[str]:
    return frozenset(re.findall(r"^ *(?:async )?def (test_\w+)", path.read_text(encoding="utf-8"), re.MULTILINE))


def test_every_test_is_there() -> None:
    wanted = {(file, name) for _, file, name in links() if file.endswith(".py") and name}
    assert wanted
    assert not sorted((file, name) for file, name in wanted if name not in proofs_in((ROOT / "docs" / file).resolve()))


@pytest.mark.parametrize("page", [name for name in _PROOFS if (ROOT / "docs" / name).exists()])
def test_every_claim_of_a_table_has_its_test(page: str) -> None:
    """Tables of figures have no column for tests."""
    text = (ROOT / "docs" / page).read_text(encoding="utf-8")
    tables = re.findall(r"^\|.*test \|\n\|[-|]+\|\n((?:\|.*\n)+)", text, re.MULTILINE)
    assert tables
    rows = [row for table in tables for row in table.splitlines()]
    assert not [row for row in rows if "](../tests/" not in row]
