"""R41: files of the cluster are private; files of jobs have the umask with which the cluster was started."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from pathlib import Path

import pytest

from runtime.security.file_mask import (
    TASK_UMASK_VARIABLE,
    UNCHANGED,
    keep_files_private,
    make_private,
    make_shared,
    task_umask,
)
from runtime.taskexecutor.task_environment import passed_on


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


@pytest.fixture(autouse=True)
def umask() -> Iterator[None]:
    before = os.umask(0o022)
    yield
    os.umask(before)


def test_the_mask_is_told_to_who_starts_tasks(tmp_path: Path) -> None:
    environment: dict[str, str] = {}
    assert task_umask(environment) == UNCHANGED
    keep_files_private(environment)
    (tmp_path / "file").touch()
    (tmp_path / "directory").mkdir()
    assert [mode(tmp_path / name) for name in ("file", "directory")] == [0o600, 0o700]
    keep_files_private(environment)
    assert task_umask(environment) == 0o022, "that of who began, not the private one"
    assert task_umask({TASK_UMASK_VARIABLE: "x"}) == UNCHANGED


def test_a_directory_is_made_private(tmp_path: Path) -> None:
    assert make_private(tmp_path / "new") == ""
    assert mode(tmp_path / "new") == 0o700
    for open_mode in (0o755, 0o770, 0o712):
        directory = tmp_path / f"{open_mode}"
        directory.mkdir()
        directory.chmod(open_mode)
        assert f"{open_mode:04o}" in make_private(directory)
        assert mode(directory) == 0o700
        assert make_private(directory) == ""


def test_who_may_only_go_through_sees_nothing(tmp_path: Path) -> None:
    """Slots that are users of their own have to (R50)."""
    tmp_path.chmod(0o711)
    assert make_private(tmp_path) == ""
    assert mode(tmp_path) == 0o711


def test_a_directory_for_all_is_none_of_ours(tmp_path: Path) -> None:
    tmp_path.chmod(0o1777)
    with pytest.raises(PermissionError, match="for all"):
        make_private(tmp_path)
    assert mode(tmp_path) == 0o1777
    tmp_path.chmod(0o700)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a directory away")
def test_a_directory_of_another_user_is_refused(tmp_path: Path) -> None:
    directory = tmp_path / "theirs"
    directory.mkdir()
    os.chown(directory, 12345, 12345)
    with pytest.raises(PermissionError, match="is of another user"):
        make_private(directory)


def test_directories_of_outputs_are_as_their_job_would_make_them(tmp_path: Path) -> None:
    os.umask(0o077)
    make_shared(tmp_path / "a" / "b", 0o027)
    assert [mode(tmp_path / name) for name in ("a", "a/b")] == [0o750, 0o750]
    make_shared(tmp_path / "a" / "b" / "c", UNCHANGED)
    assert mode(tmp_path / "a" / "b" / "c") == 0o700
    (tmp_path / "file").touch()
    with pytest.raises(FileExistsError):
        make_shared(tmp_path / "file", 0o022)


def test_what_of_the_environment_passes() -> None:
    kept = {"PATH": "/bin", "LC_ALL": "C", "SPARK_HOME": "/s", "https_proxy": "p", "PYTHONPATH": "x", "TZ": "UTC"}
    dropped = {
        "FLINKLIKE__HIGH_AVAILABILITY__ETCD__PASSWORD": "secret",
        "FLINKLIKE_RUN_DIR": "/run",
        "AWS_SECRET_ACCESS_KEY": "secret",
        "DATABASE_URL": "secret",
        "PATHS": "x",
        "MY_PATH": "x",
        "HADOOP_CREDSTORE_PASSWORD": "secret",
        "SPARK_AUTH_SECRET": "secret",
        "NVIDIA_API_KEY": "secret",
        "CONDA_TOKEN": "secret",
    }
    assert passed_on({**kept, **dropped}) == kept
    assert passed_on(dropped, ("SPARK_AUTH_SECRET", "CONDA_*")) == {
        "SPARK_AUTH_SECRET": "secret",
        "CONDA_TOKEN": "secret",
    }
    assert passed_on({**kept, **dropped}, ("AWS_*", "PATHS")) == {
        **kept,
        "AWS_SECRET_ACCESS_KEY": "secret",
        "PATHS": "x",
    }
    assert passed_on(dropped, ("FLINKLIKE_RUN_DIR", "F*")) == {}, "whatever somebody asks for"
