"""Files of a directory as splits of a source, for `splits=files_in(...)`: found when the job runs."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from airflow_flinklike.exceptions import PipelineError
from runtime.common.spark_environments import size_bytes
from runtime.jobgraph.task_context import TaskContext

_BYTES_PER_SPLIT = "64 mb"

FindSplits = Callable[[TaskContext], list[list[str]]]


def files_in(pattern: str, *, bytes_per_split: int | str = _BYTES_PER_SPLIT) -> FindSplits:
    """A function for `splits` of a source: each split is a list of files, of about `bytes_per_split` together.

    `pattern` is a path or URL with `*` and `**`, as fsspec reads it, such as `/data/orders/*.parquet` or
    `s3://shop/orders/**/*.parquet`; a directory stands for all files in it, but for hidden ones (`_SUCCESS`, `.crc`).
    Where no file matches, the source has one subtask without splits. Raises PipelineError for a size that is none.
    """
    size = size_bytes(bytes_per_split.replace(" ", "")) if isinstance(bytes_per_split, str) else bytes_per_split
    if size is None or isinstance(size, bool) or size < 1:
        message = f"files_in: bytes_per_split is a size such as '64 mb', or bytes, not {bytes_per_split!r}"
        raise PipelineError(message)
    return partial(_splits, pattern=pattern, size=size)


def _splits(ctx: TaskContext, *, pattern: str, size: int) -> list[list[str]]:
    import fsspec  # noqa: PLC0415 - for the task that finds them

    del ctx
    files, path = fsspec.core.url_to_fs(pattern)
    found = files.glob(f"{path.rstrip('/')}/*" if files.isdir(path) else path, detail=True)
    splits: list[list[str]] = []
    filled = size
    for name, entry in sorted(found.items()):
        if entry["type"] != "file" or name.rpartition("/")[2].startswith(("_", ".")):
            continue
        if filled + entry["size"] > size or not splits:
            splits.append([])
            filled = 0
        splits[-1].append(files.unstrip_protocol(name))
        filled += entry["size"]
    return splits
