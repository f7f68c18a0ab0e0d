"""A process shows its own log files, and nothing that a name, a link or a pipe could lead to."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from runtime.common.errors import InvalidInputError, NotFoundError
from runtime.logs.own_files import FILES_MAX, OwnLogFiles

LOG = "flinklike-me-taskmanager-1-host.example.log"
STEM = LOG.removesuffix(".log")
OWN = [
    LOG,
    f"{STEM}.out",
    f"{LOG}.1",
    f"{STEM}.out.5",
    f"{STEM}-spark-jvm.log",
    f"{STEM}-spark-host.log.2",
    f"{STEM}-spark-0a1b2c3d-jvm.log",
    f"{STEM}-spark-jvm-crash.log",
]
FOREIGN = [
    "flinklike-me-taskmanager-11-host.example.log",
    "flinklike-me-taskmanager-1-host.example2.log",
    "flinklike-me-taskmanager-1-hostXexample.log",
    "flinklike-me-jobmanager-1-host.example.log",
    "audit-me-jobmanager-1-host.example.jsonl",
    "etcd.log",
    f"{STEM}.pid",
    f"{STEM}.log.cut",
    f"{STEM}.log.1.gz",
    f"{STEM}-spark-.log",
    f"{STEM}-spark-../jvm.log",
    f"{LOG}.",
    f"{LOG}\n",
    f" {LOG}",
]
NEVER_NAMES = [
    "",
    ".",
    "..",
    "attempts",
    "/etc/passwd",
    "../token",
    f"../log/{LOG}",
    f"./{LOG}",
    f"attempts/tm/{'a' * 32}/stdout",
    f"{LOG}\0",
    f"{LOG}/",
    "*",
    "\\..\\token",
    "x" * 5000,
    f"{LOG}.{'1' * 5000}",
    "\ud800",
]


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    (tmp_path / "token").write_text("secret")
    logs = tmp_path / "log"
    (logs / "attempts").mkdir(parents=True)
    for name in (*OWN, *(one for one in FOREIGN if "/" not in one)):
        (logs / name).write_text(f"text of {name}")
    return logs


@pytest.fixture
def files(directory: Path) -> OwnLogFiles:
    return OwnLogFiles(directory / LOG)


def test_the_list_has_its_own_files_and_no_other(files: OwnLogFiles, directory: Path) -> None:
    os.utime(directory / OWN[3], (4e9, 4e9))
    found = files.list()
    assert {one.name for one in found} == set(OWN)
    assert (found[0].name, found[0].modified_millis) == (OWN[3], 4_000_000_000_000)
    assert all(one.size_bytes == len(f"text of {one.name}") for one in found)


@pytest.mark.parametrize("name", OWN)
def test_what_is_listed_can_be_read(files: OwnLogFiles, name: str) -> None:
    assert files.read(name, 0, 1000).data == f"text of {name}".encode()


@pytest.mark.parametrize("name", [*FOREIGN, *NEVER_NAMES])
def test_no_other_name_leads_anywhere(files: OwnLogFiles, name: str) -> None:
    with pytest.raises(NotFoundError, match="no log file") as refusal:
        files.read(name, 0, 1000)
    assert len(str(refusal.value)) < 1500


@pytest.mark.parametrize("kind", ["link", "dangling", "pipe", "directory", "parent"])
def test_only_regular_files_are_read(files: OwnLogFiles, directory: Path, kind: str) -> None:
    """R48: whoever can put something into the directory does not have it read by the process."""
    place = directory / LOG
    place.unlink()
    match kind:
        case "link":
            place.symlink_to(directory.parent / "token")
        case "dangling":
            place.symlink_to("/nowhere")
        case "pipe":
            os.mkfifo(place)
        case "directory":
            place.mkdir()
        case _:
            place.symlink_to("..")
    with pytest.raises(NotFoundError, match="no log file"):
        files.read(LOG, 0, 1000)
    assert LOG not in {one.name for one in files.list()}


def test_offsets(files: OwnLogFiles, directory: Path) -> None:
    (directory / LOG).write_bytes(b"0123456789")
    told = [files.read(LOG, offset, 4) for offset in (0, 4, 8, 10, -3, -99)]
    assert [one.data for one in told] == [b"0123", b"4567", b"89", b"", b"789", b"0123"]
    assert [one.next_offset for one in told] == [4, 8, 10, 10, 10, 4]
    assert {one.size_bytes for one in told} == {10}
    assert not any(one.is_restarted for one in told)


def test_a_file_that_was_moved_aside_is_read_from_its_beginning(files: OwnLogFiles, directory: Path) -> None:
    (directory / LOG).write_bytes(b"new")
    piece = files.read(LOG, 10, 100)
    assert (piece.data, piece.next_offset, piece.is_restarted) == (b"new", 3, True)


def test_a_limit_below_one_is_refused(files: OwnLogFiles) -> None:
    with pytest.raises(InvalidInputError, match="limit"):
        files.read(LOG, 0, 0)


def test_without_a_log_file_there_is_nothing() -> None:
    files = OwnLogFiles(None)
    assert files.list() == []
    for name in ("", ".log", ".out", "-spark-jvm.log"):
        with pytest.raises(NotFoundError, match="writes no log files"):
            files.read(name, 0, 1)


def test_the_list_is_bounded(tmp_path: Path) -> None:
    files = OwnLogFiles(tmp_path / LOG)
    for number in range(FILES_MAX + 5):
        (tmp_path / f"{STEM}-spark-{number:08x}-jvm.log").touch()
    assert len(files.list()) == FILES_MAX
