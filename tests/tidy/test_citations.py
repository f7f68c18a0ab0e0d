"""Every citation resolves: rules, decisions, pitfalls, sections of pages, and the files and tests that pages name."""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

from tests.kit.docs import ROOT, headings

_CODE = ("runtime", "airflow_flinklike", "jobmaster_process", "tests", "bin", "dags", "conf")
_SUFFIXES = frozenset({".py", ".java", ".sh", ".proto", ".html", ".js", ".yaml", ""})
_PAGES = (
    *ROOT.glob("*.md"),
    *(ROOT / "conf").glob("*.md"),
    *(ROOT / "docs").glob("*.md"),
    *(ROOT / "tests").rglob("*.md"),
)
_HISTORY = ROOT / "CHANGELOG.md"
"""It names files by the names that they had."""

_MADE_UP = ROOT / "tests" / "unit" / "suite"
"""These tests write pages of their own."""

_SECTION = re.compile(r"([\w-]+)\.md(?: (\d)(?: and (\d))?\b|, ([\w -]+)(?=[)\"]))?")
_PITFALL = re.compile(r"\b[Pp]itfalls?[ _](\d+)(?:(?: |_)and(?: |_)(\d+))?")
_DECISION = re.compile(r"\bD-\d{3}\b")
_RULE = re.compile(r"(?<![-\w])R[1-9]\d?\b(?!-)")
_FILE = re.compile(r"`((?:runtime|airflow_flinklike|jobmaster_process|tests|bin|conf|docs|dags)/[\w./-]+)`")
_TEST = re.compile(r"`(test_\w+)(?:\.py)?`")


@cache
def code() -> tuple[tuple[Path, str], ...]:
    """Every source with its text."""
    paths = (path for folder in _CODE for path in sorted((ROOT / folder).rglob("*")))
    return tuple(
        (path, path.read_text(encoding="utf-8"))
        for path in paths
        if path.is_file() and path.suffix in _SUFFIXES and not {"__pycache__", "generated", "corpus"} & {*path.parts}
    )


@cache
def pages() -> tuple[tuple[Path, str], ...]:
    return tuple((path, path.read_text(encoding="utf-8")) for path in _PAGES)


def everything() -> Iterator[tuple[str, str]]:
    for path, text in (*code(), *pages()):
        yield str(path.relative_to(ROOT)), text


def defined(page: str, pattern: str) -> frozenset[str]:
    return frozenset(re.findall(pattern, (ROOT / page).read_text(encoding="utf-8"), re.MULTILINE))


def test_rules() -> None:
    known = defined("docs/rules.md", r"^### (R\d+): ")
    assert not {name: wrong for name, text in everything() if (wrong := {*_RULE.findall(text)} - known)}


def test_decisions() -> None:
    known = defined("DECISIONS.md", r"^## (D-\d{3}) ")
    assert not {name: wrong for name, text in everything() if (wrong := {*_DECISION.findall(text)} - known)}


def test_pitfalls() -> None:
    known = defined("docs/spark-pitfalls.md", r"^### (\d+)\. ")
    cited = {(name, number) for name, text in everything() for found in _PITFALL.findall(text) for number in found}
    assert cited
    assert not sorted((name, number) for name, number in cited if number and number not in known)


def test_pages_and_their_sections() -> None:
    """A section is cited by its number, or by the first words of its heading."""
    there = {path.stem: path for path in reversed(_PAGES)}
    wrong = []
    for path, text in code():
        if path.is_relative_to(_MADE_UP):
            continue
        for page, first, second, words in _SECTION.findall(text):
            sections = headings(there[page]) if page in there else []
            starts = [f"{number}." for number in (first, second) if number] + [words.lower()] * bool(words)
            if page not in there or not all(
                any(line.lower().startswith(start) for line in sections) for start in starts
            ):
                wrong.append(f"{path.relative_to(ROOT)}: {page}.md {first}{second}{words}")
    assert not wrong


@pytest.mark.parametrize("page", [path for path in _PAGES if path != _HISTORY], ids=lambda path: path.name)
def test_files_and_tests_that_a_page_names(page: Path) -> None:
    text = page.read_text(encoding="utf-8")
    missing = [name for name in _FILE.findall(text) if not (ROOT / name).exists()]
    tests = {name for path, source in code() for name in (path.stem, *re.findall(r"def (test_\w+)", source))}
    assert not missing + [name for name in _TEST.findall(text) if name not in tests]
