"""The columns of state are read from Spark's files of its schema, and nothing of them stops a savepoint."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from runtime.checkpoint.savepoint.savepoint_form import SavepointFile
from runtime.checkpoint.savepoint.state_schemas import state_schema


def struct(**columns: object) -> bytes:
    fields = [{"name": name, "type": kind, "nullable": True, "metadata": {}} for name, kind in columns.items()]
    return json.dumps({"type": "struct", "fields": fields}, separators=(",", ":")).encode()


def second_form(key: bytes, value: bytes) -> bytes:
    """As Spark 4 writes it: Java's UTF texts, each with its length, and counts of them."""
    chunks = b"".join(b"\0\0\0\1" + (len(text) % 65536).to_bytes(2, "big") + text for text in (key, value))
    return b"\0\2v2" + chunks


def told(directory: Path, **files: bytes) -> str:
    found = []
    for path, data in files.items():
        (directory / path).parent.mkdir(parents=True, exist_ok=True)
        (directory / path).write_bytes(data)
        found.append(SavepointFile(path=path, size=len(data), sha256="0" * 64))
    return state_schema(directory, found)


def test_columns_of_keys_and_values_are_told_once_for_all_partitions(tmp_path: Path) -> None:
    counts = second_form(struct(region="string"), struct(count="long", window={"type": "struct", "fields": []}))
    files = {f"state/0/{partition}/_metadata/schema": counts for partition in range(3)}
    files["state/1/0/left-keyToNumValues/_metadata/schema"] = second_form(struct(id="long"), struct(value="long"))
    assert told(tmp_path, **files) == (
        "0: (region string) -> (count long, window struct)\n1 left-keyToNumValues: (id long) -> (value long)"
    )


def test_a_schema_beside_the_partitions(tmp_path: Path) -> None:
    files = {"state/0/_stateSchema/default/0_1f": b"\0\2v3xx" + struct(k="string") + b"\0\1" + struct(n="long")}
    assert told(tmp_path, **files) == "0: (k string) -> (n long)"


@pytest.mark.parametrize(
    "data",
    [b"", b"schema", b'{"type":"struct"', b'{"type":"struct","fields":7}', b"\xff" * 100],
)
def test_what_cannot_be_read_is_left_out(tmp_path: Path, data: bytes) -> None:
    assert told(tmp_path, **{"state/0/0/_metadata/schema": data}) in {"", "0: ()"}


def test_a_file_that_is_too_large_is_left_out(tmp_path: Path) -> None:
    assert (
        told(tmp_path, **{"state/0/0/_metadata/schema": second_form(struct(k="string"), b" " * (1 << 20))[:-1]}) == ""
    )


def test_a_query_without_state_has_none(tmp_path: Path) -> None:
    assert told(tmp_path, metadata=b"{}") == ""
