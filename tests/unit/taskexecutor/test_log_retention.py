"""Which attempt logs are deleted, and how many of them a look reads."""

from __future__ import annotations

import os
from pathlib import Path

from runtime.taskexecutor.attempt_logs.log_files import attempt_directory
from runtime.taskexecutor.attempt_logs.log_retention import LogCollector, LogRetention
from tests.kit.control_plane.task_messages import attempt_id

NOW = 1_000_000
UNBOUNDED = LogRetention(bytes_max=1 << 40, age_max=1e9)


def write(root: Path, subtask: int, *, size_bytes: int = 10_000, age: float = 0) -> None:
    directory = attempt_directory(root, attempt_id(1, subtask))
    directory.mkdir(parents=True, exist_ok=True)
    (directory / "stdout").write_bytes(b"x" * size_bytes)
    for item in (directory / "stdout", directory):
        os.utime(item, (NOW - age, NOW - age))


def look(collector: LogCollector, root: Path, *keep: int) -> set[str]:
    """The subtasks whose logs were deleted."""
    deleted = collector.collect([root], now_seconds=NOW, keep=[attempt_id(1, subtask) for subtask in keep])
    assert not any(path.exists() for path in deleted)
    return {path.name.split("_")[2] for path in deleted}


def collect(root: Path, *keep: int, **bounds: float) -> set[str]:
    retention = LogRetention(
        bytes_max=int(bounds.get("bytes_max", 1 << 40)),
        age_max=bounds.get("age_max", 1e9),
        attempts_max=int(bounds.get("attempts_max", 1000)),
    )
    return look(LogCollector(retention), root, *keep)


def test_old_attempts_go_first(tmp_path: Path) -> None:
    for subtask in range(5):
        write(tmp_path, subtask, age=100 * subtask)
    assert collect(tmp_path) == set()
    assert collect(tmp_path, age_max=350) == {"4"}
    assert collect(tmp_path, attempts_max=3) == {"3"}
    assert collect(tmp_path, 1, bytes_max=30_000) == {"2"}
    assert collect(tmp_path, 0, bytes_max=1) == {"1"}


def test_no_logs_at_all(tmp_path: Path) -> None:
    assert collect(tmp_path / "none") == set()


def test_what_has_ended_is_not_read_again(tmp_path: Path) -> None:
    collector = LogCollector(UNBOUNDED)
    for subtask in range(100):
        write(tmp_path, subtask)
    look(collector, tmp_path)
    look(collector, tmp_path)
    reads = collector.reads
    assert reads <= 200
    look(collector, tmp_path)
    assert collector.reads == reads
    write(tmp_path, 100)
    for running in ((100,), (100,), (), (), (), ()):
        look(collector, tmp_path, *running)
    assert collector.reads <= reads + 4, "twice while it ran, and at most twice after its end"


def test_what_an_attempt_writes_after_a_look_counts(tmp_path: Path) -> None:
    """Also of one that had begun when the look did not know yet that it runs."""
    collector = LogCollector(LogRetention(bytes_max=100_000, age_max=1e9))
    write(tmp_path, 0, age=9)
    write(tmp_path, 1)
    assert look(collector, tmp_path) == set()
    write(tmp_path, 1, size_bytes=200_000)
    assert look(collector, tmp_path) == {"0", "1"}


def test_what_runs_counts_and_stays(tmp_path: Path) -> None:
    collector = LogCollector(LogRetention(bytes_max=100_000, age_max=1e9))
    write(tmp_path, 0, size_bytes=200_000, age=9)
    write(tmp_path, 1)
    assert look(collector, tmp_path, 0) == {"1"}
    assert look(collector, tmp_path) == {"0"}
