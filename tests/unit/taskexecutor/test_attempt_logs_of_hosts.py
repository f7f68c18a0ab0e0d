"""TaskManagers that share a host's log directory: each deletes its own attempts' logs, and those of dead ones."""

from __future__ import annotations

import os
from pathlib import Path

from runtime.common.ids import ExecutionAttemptId
from runtime.taskexecutor.attempt_logs.log_directory import AttemptLogs
from runtime.taskexecutor.attempt_logs.log_retention import LogRetention
from tests.kit.control_plane.task_messages import attempt_id

NOW = 1_000_000.0
RETENTION = LogRetention(bytes_max=1 << 40, age_max=100.0)


def task_manager(root: Path, name: str) -> AttemptLogs:
    logs = AttemptLogs(root, name, RETENTION)
    logs.acquire()
    return logs


def attempt(logs: AttemptLogs, number: int, *, age: float) -> Path:
    directory = logs.directory / str(attempt_id(1, number))
    directory.mkdir()
    (directory / "stdout").write_text("x")
    for path in (directory / "stdout", directory):
        os.utime(path, (NOW - age, NOW - age))
    return directory


def collect(logs: AttemptLogs, *running: ExecutionAttemptId) -> int:
    return logs.collect(now_seconds=NOW, keep=running)


def test_running_attempts_of_a_neighbour_are_kept(tmp_path: Path) -> None:
    own, neighbour = task_manager(tmp_path, "a"), task_manager(tmp_path, "b")
    mine, running, theirs = attempt(own, 0, age=200), attempt(own, 1, age=200), attempt(neighbour, 2, age=200)
    assert collect(own, attempt_id(1, 1)) == 1
    assert [path.exists() for path in (mine, running, theirs)] == [False, True, True]
    own.release()
    neighbour.release()


def test_logs_of_a_dead_one_are_collected_by_age_and_its_directory_with_the_last(tmp_path: Path) -> None:
    own, dead = task_manager(tmp_path, "a"), task_manager(tmp_path, "b")
    old, young = attempt(dead, 0, age=200), attempt(dead, 1, age=50)
    dead.release()
    assert collect(own) == 1
    assert [old.exists(), young.exists()] == [False, True]
    os.utime(young, (0, 0))
    os.utime(young / "stdout", (0, 0))
    assert collect(own) == 1
    assert [path.name for path in tmp_path.iterdir()] == ["a"]
    back = task_manager(tmp_path, "b")
    assert collect(own) == 0
    assert back.directory.is_dir()
    back.release()
    own.release()


def test_two_of_one_name_may_share(tmp_path: Path) -> None:
    first, second = task_manager(tmp_path, "a"), task_manager(tmp_path, "a")
    first.release()
    third = task_manager(tmp_path, "b")
    old = attempt(second, 0, age=200)
    assert collect(third) == 0
    assert old.exists()
    second.release()
    third.release()
