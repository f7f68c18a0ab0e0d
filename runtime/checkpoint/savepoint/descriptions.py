"""What Spark says of a source, as it may stand in a savepoint: one line, bounded, and without what signs in there."""

from __future__ import annotations

import re
from collections.abc import Iterable

from runtime.common.masking import MASK, is_secret_key, without_login
from runtime.common.printable import printable

SOURCES_MAX = 100
_LENGTH_MAX = 500
_READ_MAX = 10_000
_NAME = re.compile(r"""([\w.-]{1,100})["']?\s{0,5}(?:=|:(?!/)|->)\s{0,5}""")
"""Of an option, or of a part of the query of a URL, with what stands before its value."""
_VALUE = re.compile(r""""[^"]*"|'[^']*'|[^\s,;&\])}]+""")
_KIND = re.compile(r"\s*([A-Za-z0-9_.]{1,100})")


def source_description(text: str) -> str:
    """One source, from Spark's description of it."""
    line = without_login(" ".join(printable(text[:_READ_MAX]).split()))
    line = _without_secrets(line)
    return line if len(line) <= _LENGTH_MAX else f"{line[: _LENGTH_MAX - 3]}..."


def _without_secrets(line: str) -> str:
    told, at = [], 0
    for name in _NAME.finditer(line):
        if name.start() >= at and is_secret_key(name[1].replace("_", "-")):
            value = _VALUE.match(line, name.end())
            told.append(f"{line[at : name.end()]}{MASK}")
            at = name.end() if value is None else value.end()
    return "".join((*told, line[at:]))


def source_descriptions(texts: Iterable[str]) -> tuple[str, ...]:
    """Those of a query, in the order in which Spark reads them."""
    return tuple(source_description(text) for _, text in zip(range(SOURCES_MAX), texts, strict=False))


def kind_of(description: str) -> str:
    """Which kind of source it is: the word before the first bracket (`FileStreamSource[...]`)."""
    found = _KIND.match(description)
    return found[1] if found is not None else ""
