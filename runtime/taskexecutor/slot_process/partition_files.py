"""The files of result partitions: what Spark has written (owner, size, rows), and JSON values."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlparse

import fsspec

from runtime.taskexecutor.slot_process.causes import TaskError

_VALUE = "value.json"
_PART = re.compile(r"part-(\d+)-.*\.parquet\Z")


@dataclass(frozen=True, slots=True)
class WrittenFile:
    """`part` is the number of the Spark partition that wrote it."""

    path: str
    part: int
    size_bytes: int
    rows: int


def written_files(directory: str, besides: frozenset[str] = frozenset()) -> list[WrittenFile]:
    """Files with rows, by part, `besides` known ones. Row counts come from the files' footers, so nothing is counted
    twice.
    """
    files = _local_files(directory, besides) if _is_local(directory) else _remote_files(directory, besides)
    return sorted((file for file in files if file.rows), key=lambda file: (file.part, file.path))


def check_shared(directory: str, frame: Any) -> None:
    """Raises TaskError where a Spark Connect server has written a partition into a directory of its own host."""
    is_of_server = type(frame).__module__.startswith("pyspark.sql.connect")
    if is_of_server and _is_local(directory) and not _local_path(directory).is_dir():
        message = (
            f"the Spark Connect server has written the rows for the next vertex into {directory} on its own host, and "
            "they are not here: set exchange.dir to storage that TaskManagers and the server share"
        )
        raise TaskError(message)


def heaviest(file: WrittenFile, column: str) -> tuple[int, int]:
    """The most frequent value of a column of whole numbers, and in how many rows it is."""
    from pyarrow import compute, parquet

    if _is_local(file.path):
        numbers = parquet.ParquetFile(_local_path(file.path)).read(columns=[column])[column]
    else:
        files, stripped = fsspec.core.url_to_fs(file.path)
        with files.open(stripped) as opened:
            numbers = parquet.ParquetFile(opened).read(columns=[column])[column]
    most = compute.mode(numbers, n=1)[0].as_py()
    return int(most["mode"]), int(most["count"])


def remove(paths: Sequence[str]) -> None:
    """Delete files of `written_files`."""
    for path in paths:
        if _is_local(path):
            _local_path(path).unlink()
        else:
            files, stripped = fsspec.core.url_to_fs(path)
            files.rm_file(stripped)


def _is_local(directory: str) -> bool:
    return urlparse(directory).scheme in {"", "file"}


def _local_files(directory: str, besides: frozenset[str]) -> Iterator[WrittenFile]:
    from pyarrow import parquet

    root = _local_path(directory)
    for path in root.iterdir() if root.is_dir() else ():
        if (match := _PART.match(path.name)) and f"{directory}/{path.name}" not in besides:
            rows = parquet.read_metadata(path).num_rows
            yield WrittenFile(f"{directory}/{path.name}", int(match[1]), path.stat().st_size, rows)


def _remote_files(directory: str, besides: frozenset[str]) -> Iterator[WrittenFile]:
    from pyarrow import parquet

    files: Any = fsspec.core.url_to_fs(directory)[0]
    for entry in files.ls(directory, detail=True) if files.exists(directory) else ():
        name = str(entry["name"]).rpartition("/")[2]
        if (match := _PART.match(name)) and f"{directory}/{name}" not in besides:
            with files.open(entry["name"]) as file:
                rows = parquet.read_metadata(file).num_rows
            yield WrittenFile(f"{directory}/{name}", int(match[1]), int(entry["size"]), rows)


def file_problem(path: str, size_bytes: int, *, reads_content: bool) -> str:
    """The problem of a file that was once written with that size: missing, short, unreadable; "" for none.

    Storage that does not answer is no problem of the file. `reads_content`: open the file too.
    """
    try:
        found = _size_of(path)
    except FileNotFoundError:
        return f"{path} is missing"
    except Exception:  # noqa: BLE001 - storage libraries raise what they like; nothing is known of the file then
        return ""
    if found != size_bytes:
        return f"{path} has {found} bytes, it was written with {size_bytes}"
    if reads_content and not _is_readable(path):
        return f"{path} cannot be read"
    return ""


def _size_of(path: str) -> int:
    if _is_local(path):
        return _local_path(path).stat().st_size
    files, stripped = fsspec.core.url_to_fs(path)
    return int(files.size(stripped))


def _is_readable(path: str) -> bool:
    from pyarrow import ArrowException, parquet

    try:
        if path.endswith(_VALUE):
            json.loads(read_value(path))
        elif _is_local(path):
            parquet.read_metadata(_local_path(path))
        else:
            files, stripped = fsspec.core.url_to_fs(path)
            with files.open(stripped) as file:
                parquet.read_metadata(file)
    except (ArrowException, ValueError):
        return False
    except Exception:  # noqa: BLE001 - as above
        return True
    return True


def _local_path(location: str) -> Path:
    parsed = urlparse(location)
    return Path(unquote(parsed.path) if parsed.scheme else location)


def write_value(directory: str, data: bytes) -> str:
    """Write a JSON value as the only file of a partition. Returns its path."""
    files, root = fsspec.core.url_to_fs(directory)
    files.makedirs(root, exist_ok=True)
    files.pipe_file(f"{root}/{_VALUE}", data)
    return f"{directory}/{_VALUE}"


def let_read(directory: str) -> None:
    """A partition of JSON values is readable for every task that knows its name."""
    if _is_local(directory):
        root = _local_path(directory)
        root.chmod(0o755)
        (root / _VALUE).chmod(0o644)


def read_value(path: str) -> bytes:
    """The content of a file of `write_value`."""
    files, stripped = fsspec.core.url_to_fs(path)
    data: bytes = files.cat_file(stripped)
    return data
