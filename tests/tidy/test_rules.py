"""docs/rules.md is true: who cites a rule finds it there, and each has code, a test, and a mistake that is found."""

from __future__ import annotations

import re
from collections import defaultdict
from functools import cache
from pathlib import Path
from typing import NamedTuple

import pytest

from tests.kit.mutations import BY_SEEDS, BY_TESTS, ROOT, SUMMARY, applies, header, rules_of, with_summary

RULES = ROOT / "docs" / "rules.md"
CITING = ("runtime", "airflow_flinklike", "jobmaster_process", "bin", "dags")

_LINK = re.compile(r"\]\(\.\./([^)#]+)(?:#([^)]+))?\)")
_CITED = re.compile(r"\bR([1-9][0-9]?)\b")


class Row(NamedTuple):
    """What the table says of one rule: modules, tests, mutations."""

    modules: list[str]
    tests: list[tuple[str, str]]
    mutations: list[str]


def rows() -> dict[str, Row]:
    table = RULES.read_text(encoding="utf-8").partition("| rule | modules | tests | mutations |\n")[2]
    found = {}
    for line in table.splitlines()[1:]:
        if not line.startswith("|"):
            break
        rule, modules, tests, mutations = (cell.strip() for cell in line.strip("|").split("|"))
        assert rule not in found, rule
        found[rule] = Row(
            [path for path, _ in _LINK.findall(modules)],
            _LINK.findall(tests),
            [path for path, _ in _LINK.findall(mutations)],
        )
    return found


def defined() -> list[str]:
    return re.findall(r"^- \*\*(R\d+)\*\*", RULES.read_text(encoding="utf-8"), re.MULTILINE)


@cache
def cited_in(path: Path) -> frozenset[str]:
    return frozenset(f"R{number}" for number in _CITED.findall(path.read_text(encoding="utf-8")))


def citing() -> list[Path]:
    return [
        path
        for folder in CITING
        for path in sorted((ROOT / folder).rglob("*"))
        if path.is_file() and path.suffix in {".py", ".sh", ".proto", ""} and "__pycache__" not in path.parts
    ]


def test_every_rule_that_the_code_cites_is_defined_once() -> None:
    known = defined()
    assert len(known) == len(set(known))
    unknown = {str(path.relative_to(ROOT)): rules for path in citing() if (rules := cited_in(path) - {*known})}
    assert not unknown


def test_every_rule_has_a_row() -> None:
    assert [*rows()] == defined()


@pytest.mark.parametrize("rule", list(rows()))
def test_a_row_is_true(rule: str) -> None:
    row = rows()[rule]
    assert row.modules
    assert row.tests
    assert row.mutations
    assert not [path for path in row.modules if rule not in cited_in(ROOT / path)], "they do not cite it"
    for path, name in row.tests:
        assert re.search(rf"^ *(?:async )?def {name}\(", (ROOT / path).read_text(encoding="utf-8"), re.MULTILINE), name


def test_every_mutation_is_in_the_rows_of_its_rules() -> None:
    """Which the first line of the patch names."""
    named = defaultdict(set)
    for patch in (*BY_SEEDS, *BY_TESTS):
        assert rules_of(patch), f"{patch.name}: say in its first line which rules it breaks, such as (R7)"
        for rule in rules_of(patch):
            named[rule].add(str(patch.relative_to(ROOT)))
    for rule, row in rows().items():
        assert {*row.mutations} == named[rule], f"the row of {rule} in docs/rules.md"


@pytest.mark.parametrize("patch", [*BY_SEEDS, *BY_TESTS], ids=lambda patch: patch.stem)
def test_a_mutation_is_one_of_these_sources(patch: Path) -> None:
    assert not applies(patch), "make the same mistake in the code as it is now"


@pytest.mark.parametrize("patch", BY_TESTS, ids=lambda patch: patch.stem)
def test_the_test_that_finds_a_mutation_is_there(patch: Path) -> None:
    path, _, name = (header(patch, "Found by") or "").partition("::")
    assert f"def {name.partition('[')[0]}(" in (ROOT / path).read_text(encoding="utf-8")


def test_the_summary_of_mutations_is_fresh() -> None:
    page = SUMMARY.read_text(encoding="utf-8")
    assert page == with_summary(page), "run python -m tests.kit.mutations"
