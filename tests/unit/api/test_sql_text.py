"""Splitting SQL as Spark's lexer reads it."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from airflow_flinklike.api.sql_text import split_statements

CASES = {
    "one": ("select 1", ["select 1"]),
    "end": ("select 1;", ["select 1"]),
    "two": ("select 1; select 2\n;\n", ["select 1", "select 2"]),
    "empty": (" ;; \n;", []),
    "text": ("select ';', \"a;b\"; select 2", ["select ';', \"a;b\"", "select 2"]),
    "escape": (r"select 'it\';s'; select 2", [r"select 'it\';s'", "select 2"]),
    "backslash": (r"select '\\'; select 2", [r"select '\\'", "select 2"]),
    "doubled": ("select 'it''s;'; select 2", ["select 'it''s;'", "select 2"]),
    "raw": (r"select r'\'; select 2", [r"select r'\'", "select 2"]),
    "not raw": (r"select var'\';'; select 2", [r"select var'\';'", "select 2"]),
    "name": ("select `a;b``;` from t; select 2", ["select `a;b``;` from t", "select 2"]),
    "line": ("select 1 -- no; end\n, 2; select 3", ["select 1 -- no; end\n, 2", "select 3"]),
    "line goes on": ("select 1 -- no \\\n ; end\n; select 2", ["select 1 -- no \\\n ; end", "select 2"]),
    "quote in line": ("select 1 -- it's\n; select 2", ["select 1 -- it's", "select 2"]),
    "block": ("select /* a;b */ 1; select 2", ["select /* a;b */ 1", "select 2"]),
    "blocks in blocks": ("select /* a /* ; */ ; */ 1; select 2", ["select /* a /* ; */ ; */ 1", "select 2"]),
    "hint": ("select /*+ coalesce(1) */ 1;", ["select /*+ coalesce(1) */ 1"]),
    "comment in text": ("select '--', '/*'; select 2", ["select '--', '/*'", "select 2"]),
    "only comments": ("-- nothing\n; /* more */ ; select 1", ["select 1"]),
    "last comment": ("select 1; -- the end", ["select 1"]),
    "no end of a comment": ("select 1; select 2 /* ; ", ["select 1", "select 2 /* ;"]),
    "no end of a text": ("select 1; select 'a; b", ["select 1", "select 'a; b"]),
    "compound": ("select 1; BEGIN select 2; select 3; END", ["select 1", "BEGIN select 2; select 3; END"]),
    "labelled": ("-- c\nmine: begin select 2; end mine;", ["-- c\nmine: begin select 2; end mine;"]),
    "a column": ("select begin; select 2", ["select begin", "select 2"]),
}


@pytest.mark.parametrize(("sql", "expected"), CASES.values(), ids=list(CASES))
def test_statements(sql: str, expected: list[str]) -> None:
    assert split_statements(sql) == expected


@given(st.lists(st.sampled_from([";", "'", '"', "`", "--", "/*", "*/", "\\", "\n", " ", "a", "begin", "r'"])))
def test_nothing_is_lost_and_a_statement_stays_one(pieces: list[str]) -> None:
    sql = "".join(pieces)
    found = split_statements(sql)
    assert all(one in sql for one in found)
    assert [part for one in found for part in split_statements(one)] == found
