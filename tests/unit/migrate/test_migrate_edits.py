"""Edits of a source text: what is not named stays as it is, character for character."""

from __future__ import annotations

import ast
import io
import tokenize

import pytest
from hypothesis import given
from hypothesis import strategies as st

from airflow_flinklike.migrate.edits import (
    Edit,
    OverlappingEditsError,
    Source,
    apply_edits,
    insert_element,
    remove_segments,
)
from airflow_flinklike.migrate.rewriting import opening_of


def test_edits_are_applied_in_their_places() -> None:
    assert apply_edits("abcdef", [Edit(4, 5, "X"), Edit(1, 2), Edit(0, 0, ">")]) == ">acdXf"


def test_deletions_may_overlap_and_other_edits_may_not() -> None:
    assert apply_edits("abcdef", [Edit(1, 4), Edit(2, 5)]) == "af"
    with pytest.raises(OverlappingEditsError):
        apply_edits("abcdef", [Edit(1, 4, "x"), Edit(2, 5)])
    with pytest.raises(OverlappingEditsError):
        apply_edits("abcdef", [Edit(1, 4), Edit(2, 2, "x")])


@given(st.text(max_size=30), st.data())
def test_an_edit_changes_what_it_names_and_nothing_else(text: str, data: st.DataObject) -> None:
    bounds = sorted(data.draw(st.lists(st.integers(0, len(text)), max_size=8)))
    spans = list(zip(bounds[::2], bounds[1::2], strict=False))
    edits = [Edit(start, end, data.draw(st.text(max_size=4))) for start, end in spans]
    edits = list({edit.start: edit for edit in edits}.values())
    expected, position = "", 0
    for edit in edits:
        expected += text[position : edit.start] + edit.text
        position = edit.end
    assert apply_edits(text, data.draw(st.permutations(edits))) == expected + text[position:]


# --- elements between brackets -----------------------------------------------------------------------------

_SPACE = st.sampled_from(["", " ", "\n", "\n    ", "  # a comment, with (brackets\n", "\n    # on its own line\n    "])
_VALUES = st.sampled_from(
    [
        '"text, with a comma"',
        "[1, (2, 3)]",
        "{'a': f(b, c=1)}",
        '"""long\n, text"""',
        "(1)",
        "lambda x, y: x",
        "'ü€'",
        "f(  # in\n)",
    ]
)


@st.composite
def calls(draw: st.DrawFn) -> tuple[str, list[str], list[int]]:
    """A call with keywords in any layout, the names of its keywords, and those to take out."""
    names = [f"k{number}" for number in range(draw(st.integers(1, 5)))]
    parts = [f"{draw(_SPACE)}{name}={draw(_VALUES)}{draw(_SPACE)}" for name in names]
    last = draw(st.sampled_from(["", ",", ",  # behind\n"]))
    newline = draw(st.sampled_from(["\n", "\r\n"]))
    text = f"before = 'ä'; call({','.join(parts)}{last})  # end\nafter = 1\n".replace("\n", newline)
    removed = draw(st.lists(st.sampled_from(range(len(names))), unique=True))
    return text, names, removed


def call_in(text: str) -> ast.Call:
    return next(node for node in ast.walk(ast.parse(text)) if isinstance(node, ast.Call))


def comments(text: str) -> list[str]:
    plain = text.replace("\r\n", "\n")
    return [one.string for one in tokenize.generate_tokens(io.StringIO(plain).readline) if one.type == tokenize.COMMENT]


@given(calls())
def test_the_named_keywords_go_and_all_else_stays(case: tuple[str, list[str], list[int]]) -> None:
    text, names, removed = case
    source, call = Source(text), call_in(text)
    segments = source.segments(opening_of(source, call))
    assert len(segments) == len(names)
    changed = apply_edits(text, remove_segments(source, segments, removed))
    left = call_in(changed)
    kept = [word for index, word in enumerate(call.keywords) if index not in removed]
    assert [ast.dump(word) for word in left.keywords] == [ast.dump(word) for word in kept]
    outside = [comment for comment in comments(text) if comment != "# in"]
    assert [comment for comment in comments(changed) if comment != "# in"] == outside
    assert changed.replace("\r\n", "\n").endswith("# end\nafter = 1\n")


@given(calls(), st.data())
def test_a_new_keyword_stands_before_another_one(case: tuple[str, list[str], list[int]], data: st.DataObject) -> None:
    text, names, _ = case
    source, call = Source(text), call_in(text)
    segments = source.segments(opening_of(source, call))
    index = data.draw(st.integers(0, len(names) - 1))
    changed = apply_edits(text, [insert_element(source, segments, index, "new=1")])
    expected = [*names[:index], "new", *names[index:]]
    assert [word.arg for word in call_in(changed).keywords] == expected
    assert comments(changed) == comments(text)


@pytest.mark.parametrize(
    ("text", "removed", "expected"),
    [
        ("f(a=1, b=2, c=3)", [1], "f(a=1, c=3)"),
        ("f(a=1, b=2, c=3)", [2], "f(a=1, b=2)"),
        ("f(a=1, b=2, c=3)", [1, 2], "f(a=1)"),
        ("f(a=1)", [0], "f()"),
        ("f(\n    a=1,\n    b=2,\n)", [1], "f(\n    a=1,\n)"),
        ("f(\n    a=1,\n    b=2\n)", [1], "f(\n    a=1,\n)"),
        ("f(\n    a=1,  # one\n    b=2,\n)", [0], "f(\n    # one\n    b=2,\n)"),
        ("f(\n    a=1, b=2,  # two\n)", [1], "f(\n    a=1,  # two\n)"),
        ("{'a': (1), 'b': 2}", [0], "{'b': 2}"),
    ],
)
def test_the_layout_stays(text: str, removed: list[int], expected: str) -> None:
    source = Source(text)
    segments = source.segments(source.bracket_after(0))
    assert apply_edits(text, remove_segments(source, segments, removed)) == expected
