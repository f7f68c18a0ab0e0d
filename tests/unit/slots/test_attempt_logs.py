"""Reading, bounding and collecting attempt logs."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from runtime.common.errors import InvalidInputError, NotFoundError, UnavailableError
from runtime.gateways.task_executor import AttemptLogRequest, AttemptLogsRequest, LogStream
from runtime.taskexecutor.attempt_logs.log_files import (
    are_logs_above,
    attempt_directory,
    bound_logs,
    read_log,
    read_logs,
)
from tests.kit.control_plane.task_messages import attempt_id

ATTEMPT = attempt_id(1, 0)


def write(root: Path, text: bytes, *, subtask: int = 0, stream: str = "stdout", age: float = 0) -> Path:
    directory = attempt_directory(root, attempt_id(1, subtask))
    directory.mkdir(parents=True, exist_ok=True)
    path = directory / stream
    path.write_bytes(text)
    for item in (path, directory):
        os.utime(item, (1_000_000 - age, 1_000_000 - age))
    return path


def read(root: Path, offset: int, limit: int = 100) -> tuple[bytes, int, int]:
    answer = read_log(root, AttemptLogRequest(ATTEMPT, LogStream.STDOUT, offset, limit))
    return answer.data, answer.next_offset, answer.size_bytes


def dropped(root: Path, offset: int) -> int:
    return read_log(root, AttemptLogRequest(ATTEMPT, LogStream.STDOUT, offset, 200)).dropped_bytes


@pytest.mark.parametrize(
    ("offset", "limit", "expected"),
    [
        pytest.param(0, 100, (b"0123456789", 10, 10), id="all"),
        pytest.param(3, 4, (b"3456", 7, 10), id="piece"),
        pytest.param(-3, 100, (b"789", 10, 10), id="tail"),
        pytest.param(-30, 100, (b"0123456789", 10, 10), id="tail longer than the log"),
        pytest.param(10, 100, (b"", 10, 10), id="end"),
        pytest.param(99, 100, (b"", 10, 10), id="beyond"),
    ],
)
def test_pieces(tmp_path: Path, offset: int, limit: int, expected: tuple[bytes, int, int]) -> None:
    write(tmp_path, b"0123456789")
    assert read(tmp_path, offset, limit) == expected


def test_a_hole_is_passed_over(tmp_path: Path) -> None:
    """A task that makes its log 8 TB long by one call had who reads it receive as many zeros (R52)."""
    path = write(tmp_path, b"begin\n".rjust(4096, b"."))
    far = 1 << 43
    os.truncate(path, far)
    assert read(tmp_path, 4090) == (b"begin\n", 4096, far)
    assert read(tmp_path, 4096) == (b"", far, far)
    assert read(tmp_path, -1000) == (b"", far, far)
    with path.open("ab") as log:
        log.write(b"end\n")
    assert read(tmp_path, 4096) == (b"end\n", far + 4, far + 4)
    assert read(tmp_path, far) == (b"end\n", far + 4, far + 4)


@pytest.mark.parametrize("before", ["lseek", "pread"])
@pytest.mark.parametrize("offset", [0, 12_000])
def test_a_head_that_is_dropped_while_it_is_read_leaves_no_zeros_and_no_part_of_a_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, before: str, offset: int
) -> None:
    lines = b"".join(b"line %06d\n" % n for n in range(20_000))
    path = write(tmp_path, lines)
    real, calls = getattr(os, before), []

    def dropped_before(*arguments: int) -> object:
        calls.append(arguments)
        if before == "pread" or len(calls) == 2:  # the second seek follows the look for the beginning
            bound_logs(path.parent, bytes_max=50_000)
        return real(*arguments)

    monkeypatch.setattr(os, before, dropped_before)
    answer = read_log(tmp_path, AttemptLogRequest(ATTEMPT, LogStream.STDOUT, offset, 200))
    monkeypatch.undo()
    begin = answer.next_offset - len(answer.data)
    assert answer.data == lines[begin : answer.next_offset]
    assert (begin % 12, answer.dropped_bytes) == (0, begin - offset)
    assert read(tmp_path, answer.next_offset, 12)[0] == lines[answer.next_offset :][:12]


def test_what_is_not_there(tmp_path: Path) -> None:
    root = tmp_path / "own"
    with pytest.raises(NotFoundError):
        read(root, 0)
    write(root, b"x", stream="stderr")
    assert read(root, 0) == (b"", 0, 0)
    with pytest.raises(InvalidInputError):
        read(root, 0, limit=0)


def test_many_pieces_until_there_is_no_room(tmp_path: Path) -> None:
    root = tmp_path / "own"
    write(root, b"0123456789")
    write(root, b"abcdef", subtask=1)
    reads = tuple(
        AttemptLogRequest(attempt_id(1, subtask), LogStream.STDOUT, offset, 8)
        for subtask, offset in ((0, 0), (7, 0), (1, 1), (0, 8), (1, 0))
    )

    def found(room: int) -> list[tuple[int, bytes | None]]:
        answer = read_logs(root, AttemptLogsRequest(reads, room))
        return [(one.index, None if one.piece is None else one.piece.data) for one in answer.pieces]

    everything = [(0, b"01234567"), (1, None), (2, b"bcdef"), (3, b"89"), (4, b"abcdef")]
    assert found(100) == everything
    assert found(10) == [*everything[:2], (2, b"bc")]
    assert found(8) == everything[:1]
    assert found(0) == []


def test_offsets_survive_the_loss_of_the_head(tmp_path: Path) -> None:
    lines = b"".join(b"line %05d\n" % n for n in range(20_000))
    path = write(tmp_path, lines)
    assert bound_logs(path.parent, bytes_max=50_000) == 1
    assert path.stat().st_blocks * 512 <= 50_000
    piece, next_offset, size = read(tmp_path, len(lines) - 11, 11)
    assert (piece, next_offset, size) == (lines[-11:], len(lines), len(lines))
    head, next_offset, _ = read(tmp_path, 0, 200)
    assert head == lines[next_offset - len(head) : next_offset], "it begins where a line begins"
    assert head.startswith(b"line ")
    assert dropped(tmp_path, 0) == next_offset - len(head)
    assert dropped(tmp_path, 1_000) == next_offset - len(head) - 1_000, "what the reader has had is not lost to it"
    assert dropped(tmp_path, next_offset) == dropped(tmp_path, -11) == 0
    following, _, _ = read(tmp_path, next_offset, 50)
    assert lines[next_offset : next_offset + 50] == following
    assert bound_logs(path.parent, bytes_max=50_000) == 0


def test_logs_of_others_of_the_host_are_found(tmp_path: Path) -> None:
    mine, gone = tmp_path / "attempts/mine", tmp_path / "attempts/gone"
    mine.mkdir(parents=True)
    with pytest.raises(NotFoundError):
        read(mine, 0)
    write(gone, b"0123456789")
    assert read(mine, 3, 4) == (b"3456", 7, 10)
    write(mine, b"own")
    assert read(mine, 0) == (b"own", 3, 3)


HOLDS = (
    "import fcntl, os, signal, sys, time\n"
    "held = os.open(sys.argv[1], os.O_RDWR)\n"
    "fcntl.fcntl(held, fcntl.F_SETLEASE, fcntl.F_WRLCK)\n"
    "signal.signal(signal.SIGIO, signal.SIG_IGN)\n"
    "print(flush=True); time.sleep(600)"
)


def test_a_lease_on_a_log_keeps_nobody_waiting(tmp_path: Path) -> None:
    """R43: the owner of a file may take a lease, and another open of it waits for the better part of a minute."""
    path = write(tmp_path, b"x" * 200_000)
    other = write(tmp_path, b"0123456789", subtask=2)
    assert path.parent != other.parent
    with subprocess.Popen([sys.executable, "-c", HOLDS, str(path)], stdout=subprocess.PIPE) as task:
        try:
            assert task.stdout is not None
            task.stdout.readline()
            begun = time.monotonic()
            with pytest.raises(UnavailableError, match="keeps others from its stdout by a lease"):
                read(tmp_path, 0)
            reads = tuple(AttemptLogRequest(attempt_id(1, one), LogStream.STDOUT, 0, 100) for one in (0, 2))
            found = read_logs(tmp_path, AttemptLogsRequest(reads, 1000)).pieces
            assert [(one.index, one.piece.data) for one in found if one.piece] == [(1, b"0123456789")]
            assert time.monotonic() - begun < 30, "a lease is waited for 45 s"
        finally:
            task.kill()


def test_whether_logs_are_above_their_bound_is_told_without_opening_them(tmp_path: Path) -> None:
    path = write(tmp_path, b"x" * 200_000)
    assert are_logs_above(path.parent, bytes_max=50_000)
    assert not are_logs_above(path.parent, bytes_max=500_000)
    bound_logs(path.parent, bytes_max=50_000)
    assert not are_logs_above(path.parent, bytes_max=50_000)
    assert not are_logs_above(tmp_path / "none", bytes_max=0)


def test_what_user_code_has_put_in_the_place_of_a_log_is_not_read_and_not_cut(tmp_path: Path) -> None:
    path, elsewhere = write(tmp_path, b""), tmp_path / "elsewhere"
    elsewhere.write_bytes(b"x" * 200_000)
    for kind in ("link", "pipe", "directory"):
        path.unlink()
        if kind == "link":
            path.symlink_to(elsewhere)
        elif kind == "pipe":
            os.mkfifo(path)
        else:
            path.mkdir()
        with pytest.raises(NotFoundError, match="has put something else in the place of its stdout"):
            read(tmp_path, 0)
        assert not are_logs_above(path.parent, bytes_max=50_000)
        bound_logs(path.parent, bytes_max=50_000)
    assert elsewhere.stat().st_blocks * 512 >= 200_000
