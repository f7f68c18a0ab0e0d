"""Splits SQL text into statements, by the rules of Spark's lexer: quotes, identifiers, comments."""

from __future__ import annotations

import re

_TOKEN = re.compile(
    r"""
    (?P<raw>\b[rR](?:'[^']*'|"[^"]*"))              # a raw string has no escapes
    |(?P<text>'(?:[^'\\]|\\.)*'|"(?:[^"\\]|\\.)*")  # '' within a text is two texts, which is the same here
    |(?P<name>`[^`]*`)
    |(?P<line>--(?:\\\n|[^\n])*)                    # a backslash at its end continues a line comment
    |(?P<open>/\*)
    |(?P<end>;)
    |(?P<broken>['"`])                              # a quote without its end, which Spark refuses
    """,
    re.VERBOSE | re.DOTALL,
)
_EDGE = re.compile(r"/\*|\*/")
_SCRIPT = re.compile(r"(?:\w+\s*:\s*)?BEGIN\b(?!\s+TRANSACTION\b)", re.IGNORECASE)


def split_statements(sql: str) -> list[str]:
    """The statements, without the `;` between them and without parts of comments only.

    A `;` in a text, a quoted name or a comment ends no statement. A compound statement (BEGIN ... END) takes the rest
    of the text: its own statements end with `;` too.
    """
    found: list[str] = []
    begun, position, code = 0, 0, ""
    while (match := _TOKEN.search(sql, position)) is not None:
        code += sql[position : match.start()]
        if match.lastgroup == "broken" or _SCRIPT.match(code.lstrip()):
            code += match.group()
            break
        position = match.end()
        if match.lastgroup == "open":
            position = _comment_end(sql, position)
        elif match.lastgroup == "end":
            if code.strip():
                found.append(sql[begun : match.start()].strip())
            begun, code = position, ""
        elif match.lastgroup != "line":
            code += match.group()
    rest = sql[begun:].strip()
    if rest and (code + sql[position:]).strip():
        found.append(rest)
    return found


def _comment_end(sql: str, position: int) -> int:
    """The position behind a comment, which may contain others; the end of the text for one without an end."""
    depth = 1
    while depth and (match := _EDGE.search(sql, position)) is not None:
        depth += 1 if match.group() == "/*" else -1
        position = match.end()
    return len(sql) if depth else position
