"""What is counted of a sink's own files: bytes, and rows where every footer says how many."""

from __future__ import annotations

from pathlib import Path

import fsspec
import pytest

from runtime.gateways.task import OutputDirectory
from runtime.taskexecutor.slot_process.written_outputs import WrittenOutputs, made_outputs, written_outputs


def directory(path: Path | str) -> OutputDirectory:
    return OutputDirectory("base", str(path))


def parquet(path: Path, rows: int) -> int:
    import pyarrow as pa
    from pyarrow import parquet as format_

    path.parent.mkdir(parents=True, exist_ok=True)
    format_.write_table(pa.table({"n": list(range(rows))}), path)
    return path.stat().st_size


@pytest.mark.parametrize("prefix", ["", "file:", "file://", "memory://"])
def test_directories_that_were_never_made_are_not_outputs(tmp_path: Path, prefix: str) -> None:
    """A commit takes one that is missing for lost."""
    files, root = fsspec.core.url_to_fs(f"{prefix}{tmp_path}")
    files.makedirs(f"{root}/a", exist_ok=True)
    one, other = (directory(f"{prefix}{tmp_path / name}") for name in "ab")
    assert made_outputs([one, other]) == (one,)


@pytest.mark.parametrize("prefix", ["", "file:", "file://"])
def test_rows_and_bytes_of_parquet(tmp_path: Path, prefix: str) -> None:
    size = parquet(tmp_path / "a" / "day=1" / "part-0.parquet", 3) + parquet(tmp_path / "b" / "part-1.parquet", 4)
    (tmp_path / "a" / "_SUCCESS").touch()
    (tmp_path / "a" / ".part-0.parquet.crc").write_bytes(b"1234")
    parquet(tmp_path / "a" / "_temporary" / "0" / "part-9.parquet", 9)
    outputs = [directory(f"{prefix}{tmp_path / name}") for name in "ab"]
    assert written_outputs(outputs) == WrittenOutputs(size, 7)


def test_rows_that_no_footer_tells_are_not_known(tmp_path: Path) -> None:
    size = parquet(tmp_path / "part-0.parquet", 3)
    (tmp_path / "part-1.csv").write_text("1\n2\n")
    assert written_outputs([directory(tmp_path)]) == WrittenOutputs(size + 4, 0)
    (tmp_path / "part-1.csv").rename(tmp_path / "part-1.parquet")
    assert written_outputs([directory(tmp_path)]) == WrittenOutputs(size + 4, 0)


def test_what_is_not_there_or_not_here_counts_nothing(tmp_path: Path) -> None:
    assert written_outputs([]) == WrittenOutputs()
    assert written_outputs([directory(tmp_path / "gone"), directory("s3://bucket/x")]) == WrittenOutputs()
