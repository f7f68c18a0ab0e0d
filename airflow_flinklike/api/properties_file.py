"""Reads a spark-defaults.conf, as spark-submit does for `--properties-file`."""

from __future__ import annotations

import re

_SEPARATOR = re.compile(r"(?<!\\)[=:]|(?<!\\)[ \t]")
_ESCAPED = re.compile(r"\\(u[0-9a-fA-F]{4}|.)", re.DOTALL)
_LETTERS = {"t": "\t", "n": "\n", "r": "\r", "f": "\f"}


def parse_properties(text: str) -> tuple[dict[str, str], list[str]]:
    """Spark's settings of a Java properties file, and the keys that are not Spark's."""
    found: dict[str, str] = {}
    others: list[str] = []
    for line in _logical_lines(text):
        match = _SEPARATOR.search(line)
        key = line if match is None else line[: match.start()]
        rest = "" if match is None else line[match.start() :].lstrip(" \t")
        value = rest[1:].lstrip(" \t") if rest[:1] in {"=", ":"} else rest
        name = _unescaped(key)
        if name.startswith("spark."):
            found[name] = _unescaped(value).strip()
        else:
            others.append(name)
    return found, others


def _logical_lines(text: str) -> list[str]:
    """Lines without comments and empty ones. A backslash at its end continues a line."""
    lines: list[str] = []
    pending = ""
    for raw in text.splitlines():
        line = raw.lstrip(" \t\f")
        if not pending and (not line or line[0] in "#!"):
            continue
        backslashes = len(line) - len(line.rstrip("\\"))
        if backslashes % 2:
            pending += line[:-1]
            continue
        lines.append(pending + line)
        pending = ""
    return [*lines, pending] if pending else lines


def _unescaped(text: str) -> str:
    def letter(match: re.Match[str]) -> str:
        code = match.group(1)
        return chr(int(code[1:], 16)) if len(code) == 5 else _LETTERS.get(code, code)

    return _ESCAPED.sub(letter, text)
