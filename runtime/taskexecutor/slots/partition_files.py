"""The files that Spark has written for a result partition: which consumer's, how large, how many rows."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlparse

import fsspec

_PART = re.compile(r"part-(\d+)-.*\.parquet\Z")


@dataclass(frozen=True, slots=True)
class WrittenFile:
    """`part` is the number of the Spark partition that wrote it."""

    path: str
    part: int
    size_bytes: int
    rows: int


def written_files(directory: str) -> list[WrittenFile]:
    """Files with rows, by part. Row counts come from the files' footers, so nothing is counted twice."""
    files = _local_files(directory) if _is_local(directory) else _remote_files(directory)
    return sorted((file for file in files if file.rows), key=lambda file: (file.part, file.path))


def _is_local(directory: str) -> bool:
    return urlparse(directory).scheme in {"", "file"}


def _local_files(directory: str) -> Iterator[WrittenFile]:
    from pyarrow import parquet

    parsed = urlparse(directory)
    root = Path(unquote(parsed.path) if parsed.scheme else directory)
    for path in root.iterdir() if root.is_dir() else ():
        if match := _PART.match(path.name):
            rows = parquet.read_metadata(path).num_rows
            yield WrittenFile(f"{directory}/{path.name}", int(match[1]), path.stat().st_size, rows)


def _remote_files(directory: str) -> Iterator[WrittenFile]:
    from pyarrow import parquet

    files: Any = fsspec.core.url_to_fs(directory)[0]
    for entry in files.ls(directory, detail=True) if files.exists(directory) else ():
        name = str(entry["name"]).rpartition("/")[2]
        if match := _PART.match(name):
            with files.open(entry["name"]) as file:
                rows = parquet.read_metadata(file).num_rows
            yield WrittenFile(f"{directory}/{name}", int(match[1]), int(entry["size"]), rows)
