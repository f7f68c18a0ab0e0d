"""The columns of a query's state, as Spark's own files of its schema tell them. For people: no restore needs them."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator
from itertools import islice
from pathlib import Path
from typing import Any

from runtime.checkpoint.savepoint.file_tree import FileTree
from runtime.checkpoint.savepoint.savepoint_form import SavepointFile

_SCHEMA = re.compile(
    r"state/(?P<operator>\d+)/(?:0/(?:(?P<store>[^/]+)/)?_metadata/schema|_stateSchema/[^/]+/[^/.][^/]*)\Z"
)
"""In the first partition, as all have the same; or beside the partitions, as newer forms of state have it."""
_FILES_MAX = 50
_FILE_BYTES_MAX = 1024 * 1024
_TEXT_MAX = 16 * 1024
_STRUCT = '{"type":"struct"'


def state_schema(directory: Path, files: Iterable[SavepointFile]) -> str:
    """`operator store: (key columns) -> (value columns)`, a line each; "" for a query without state.

    `directory`: of the copy that has these files. Raises OSError.
    """
    tree, lines = FileTree(directory), []
    readable = {file.path for file in files if file.size <= _FILE_BYTES_MAX}
    found = ((path, match) for path in sorted(readable) if (match := _SCHEMA.match(path)) is not None)
    for path, match in islice(found, _FILES_MAX):
        text = tree.read(path, _FILE_BYTES_MAX).decode(errors="replace")
        columns = " -> ".join(f"({', '.join(struct)})" for struct in _structs(text))
        if columns:
            lines.append(f"{' '.join(filter(None, (match['operator'], match['store'])))}: {columns}")
    return "\n".join(lines)[:_TEXT_MAX]


def _structs(text: str) -> Iterator[list[str]]:
    """The columns of each schema in Spark's JSON, whatever stands between them."""
    decoder, at = json.JSONDecoder(), 0
    while (at := text.find(_STRUCT, at)) >= 0:
        try:
            value, at = decoder.raw_decode(text, at)
        except (ValueError, RecursionError):
            return
        fields = value.get("fields")
        yield [_column(field) for field in fields if isinstance(field, dict)] if isinstance(fields, list) else []


def _column(field: dict[str, Any]) -> str:
    kind = field.get("type")
    if isinstance(kind, dict):
        kind = kind.get("type")  # of a nested one its kind
    return f"{field.get('name')} {kind}"
