"""The glossary of DECISIONS.md: each word once, in order, with one sentence."""

from __future__ import annotations

import re

from tests.kit.docs import ROOT

_PROTOCOL = {"adoption", "attempt", "census", "dead", "epoch (E)", "fence", "guard", "lost", "owner", "promise"}
_PROTOCOL |= {"takeover", "term", "wish"}


def rows() -> list[tuple[str, str]]:
    page = (ROOT / "DECISIONS.md").read_text(encoding="utf-8").partition("\n# Glossary\n")[2]
    return re.findall(r"^\| ([^|]+) \| ([^|]+) \|$", page, re.MULTILINE)[1:]


def test_words_are_in_order_and_there_once() -> None:
    words = [word for word, _ in rows()]
    assert words == sorted(set(words), key=str.lower)


def test_the_words_of_the_protocol_are_there() -> None:
    assert {word for word, _ in rows()} >= _PROTOCOL


def test_a_meaning_is_one_sentence() -> None:
    assert not [word for word, meaning in rows() if ". " in meaning or meaning.endswith(".")]
