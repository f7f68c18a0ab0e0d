"""What an attempt has written with `ctx.output_path()`: for its metrics, so 0 where the figure would be expensive."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import unquote, urlparse

from runtime.gateways.task import OutputDirectory

_FOOTERS_MAX = 1_000


@dataclass(frozen=True, slots=True)
class WrittenOutputs:
    """`rows` is 0 unless every file has a footer that says how many it holds."""

    size_bytes: int = 0
    rows: int = 0


def made_outputs(outputs: Iterable[OutputDirectory]) -> tuple[OutputDirectory, ...]:
    """The outputs whose directories the task has made: a commit would take a missing directory for lost."""
    return tuple(output for output in outputs if _is_made(output.directory))


def _is_made(directory: str) -> bool:
    from runtime.common.errors import FlinklikeError
    from runtime.taskexecutor.storage.directory_tree import driver_errors, local_path, remote_files

    path = local_path(directory)
    if path is not None:
        return os.path.lexists(path)
    try:
        with driver_errors(directory):
            files = remote_files(directory)
            files.invalidate_cache()
            return bool(files.exists(directory))
    except (OSError, FlinklikeError):
        return True  # the commit looks again


def written_outputs(outputs: Iterable[OutputDirectory]) -> WrittenOutputs:
    """Bytes and rows in local directories. Other storage is not asked: each file would be a request."""
    try:
        files = [file for output in outputs for file in _files(output.directory)]
        return WrittenOutputs(sum(file.stat().st_size for file in files), _rows(files))
    except OSError:
        return WrittenOutputs()  # user code may do with its directory what it likes


def _files(directory: str) -> Iterator[Path]:
    address = urlparse(directory)
    if address.scheme not in {"", "file"}:
        return
    for parent, directories, names in os.walk(unquote(address.path) if address.scheme else directory):
        directories[:] = [name for name in directories if not name.startswith(("_", "."))]
        yield from (Path(parent, name) for name in names if not name.startswith(("_", ".")))


def _rows(files: list[Path]) -> int:
    if not files or len(files) > _FOOTERS_MAX or any(file.suffix != ".parquet" for file in files):
        return 0
    from pyarrow import ArrowException, parquet

    try:
        return sum(parquet.read_metadata(file).num_rows for file in files)
    except ArrowException:
        return 0
