"""docs/rules.md defines each rule once; docs/rule-proofs.md has its modules, its tests and its mistakes."""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path
from typing import NamedTuple

import pytest

from tests.kit.mutations import BY_SEEDS, BY_TESTS, PROOFS, ROOT, applies, header, rules_of, with_mistakes

RULES = ROOT / "docs" / "rules.md"

_LINK = re.compile(r"\]\(\.\./([^)#]+)(?:#([^)]+))?\)")
_CITED = re.compile(r"\bR([1-9][0-9]?)\b")


class Proofs(NamedTuple):
    """What the page says of one rule: modules, tests, mutations."""

    modules: list[str]
    tests: list[tuple[str, str]]
    mutations: list[str]


@cache
def proofs() -> dict[str, Proofs]:
    sections = re.split(r"^## (R\d+)\n", PROOFS.read_text(encoding="utf-8"), flags=re.MULTILINE)[1:]
    found = {}
    for rule, text in zip(sections[::2], sections[1::2], strict=True):
        assert rule not in found, rule
        kept_by, _, rest = text.partition("\nProved by\n")
        proved_by, _, mistakes = rest.partition("\nMistakes\n")
        found[rule] = Proofs(
            [path for path, _ in _LINK.findall(kept_by)],
            _LINK.findall(proved_by),
            [path for path, _ in _LINK.findall(mistakes) if path.endswith(".patch")],
        )
    return found


def defined() -> list[str]:
    return re.findall(r"^### (R\d+): ", RULES.read_text(encoding="utf-8"), re.MULTILINE)


@cache
def cited_in(path: Path) -> frozenset[str]:
    return frozenset(f"R{number}" for number in _CITED.findall(path.read_text(encoding="utf-8")))


def test_every_rule_is_defined_once() -> None:
    assert len(defined()) == len({*defined()})


def test_every_rule_has_its_proofs() -> None:
    assert [*proofs()] == defined()


@pytest.mark.parametrize("rule", list(proofs()))
def test_proofs_are_there(rule: str) -> None:
    modules, tests, mutations = proofs()[rule]
    assert modules
    assert tests
    assert mutations
    assert not [path for path in modules if rule not in cited_in(ROOT / path)], "they do not cite it"
    for path, name in tests:
        assert re.search(rf"^ *(?:async )?def {name}\(", (ROOT / path).read_text(encoding="utf-8"), re.MULTILINE), name


@pytest.mark.parametrize("patch", [*BY_SEEDS, *BY_TESTS], ids=lambda patch: patch.stem)
def test_a_mutation_names_rules(patch: Path) -> None:
    assert rules_of(patch), "say in the first line which rules the mistake breaks, such as (R7)"
    assert {*rules_of(patch)} <= {*defined()}


def test_the_lists_of_mistakes_are_fresh() -> None:
    page = PROOFS.read_text(encoding="utf-8")
    assert page == with_mistakes(page), "run python -m tests.kit.mutations"


@pytest.mark.parametrize("patch", [*BY_SEEDS, *BY_TESTS], ids=lambda patch: patch.stem)
def test_a_mutation_is_one_of_these_sources(patch: Path) -> None:
    assert not applies(patch), "make the same mistake in the code as it is now"


@pytest.mark.parametrize("patch", BY_TESTS, ids=lambda patch: patch.stem)
def test_the_test_that_finds_a_mutation_is_there(patch: Path) -> None:
    path, _, name = (header(patch, "Found by") or "").partition("::")
    assert f"def {name.partition('[')[0]}(" in (ROOT / path).read_text(encoding="utf-8")
