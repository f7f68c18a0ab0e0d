"""Files of a directory as splits of a source, for `splits=files_in(...)`: found when the job runs."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

from airflow_flinklike.exceptions import PipelineError
from runtime.common.spark_environments import size_bytes
from runtime.jobgraph.task_context import TaskContext

_BYTES_PER_SPLIT = "256 mb"
_PATTERN = re.compile(r"[*?\[\]{}\\]")
"""What Spark's readers take for a pattern, also in the name of one file."""

FindSplits = Callable[[TaskContext], list[list[str]]]


def files_in(pattern: str, *, bytes_per_split: int | str = _BYTES_PER_SPLIT) -> FindSplits:
    """A function for `splits` of a source: each split is a list of files, of about `bytes_per_split` together.

    `pattern` is an absolute path or a URL: of a directory, which stands for all files below it, or with `*`, `?` and
    `**` as fsspec reads them (`/data/orders/*.parquet`, `s3://shop/orders/**/*.parquet`). As for Spark, names that
    begin with `.` or `_` are hidden, with all that is below them, but for `_name=value`. Where no file matches, the
    source has one subtask without splits. Raises PipelineError.
    """
    if not pattern.startswith("/") and "://" not in pattern:
        message = f"files_in: {pattern[:200]!r} is relative to nothing that a task has: give an absolute path, or a URL"
        raise PipelineError(message)
    size = size_bytes(bytes_per_split.replace(" ", "")) if isinstance(bytes_per_split, str) else bytes_per_split
    if size is None or isinstance(size, bool) or size < 1:
        message = f"files_in: bytes_per_split is a size such as '256 mb', or bytes, not {bytes_per_split!r}"
        raise PipelineError(message)
    return partial(_splits, pattern=pattern, size=size)


def _splits(ctx: TaskContext, *, pattern: str, size: int) -> list[list[str]]:
    del ctx
    splits: list[list[str]] = []
    filled = size
    for name, file_size in _files(pattern):
        if _PATTERN.search(name.partition("://")[2] or name):
            message = f"files_in: {name!r} is a pattern for Spark's readers, which would read other files: rename it"
            raise PipelineError(message)
        if filled + file_size > size or not splits:
            splits.append([])
            filled = 0
        splits[-1].append(name)
        filled += file_size
    return splits


def _files(pattern: str) -> Iterator[tuple[str, int]]:
    """Names as URLs and sizes, in order."""
    import fsspec  # noqa: PLC0415 - for the task that finds them

    files, path = fsspec.core.url_to_fs(pattern)
    path = path.rstrip("/")
    if files.isdir(path):
        found: dict[str, Any] = files.find(path, detail=True)
        root = path
    else:
        found = files.glob(path, detail=True)
        root = path[: found_at.start()].rpartition("/")[0] if (found_at := re.search(r"[*?\[]", path)) else path
    for name in sorted(found):
        below = name[len(root) :].strip("/").split("/")
        if any(_is_hidden(part) for part in below):
            continue
        if found[name]["type"] == "file":
            yield files.unstrip_protocol(name), int(found[name]["size"])
        elif files.isfile(name):  # a link, whose own size is that of its text
            yield files.unstrip_protocol(name), int(files.size(name))


def _is_hidden(name: str) -> bool:
    return name.startswith(".") or (name.startswith("_") and "=" not in name)
