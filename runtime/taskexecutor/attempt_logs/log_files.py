"""Logs of attempts: three files each, written by the slot process itself, bounded and read by the TaskManager.

`<log directory>/<attempt id>/{stdout,stderr,log}`; beside a TaskManager's log directory are those of the others of its
host, also of dead ones. Offsets are stable while a task writes: a file above its bound gives back its head as
a hole (and where a file system has no holes, is emptied), so readers go on where they were.
"""

from __future__ import annotations

import errno
import os
import stat
from dataclasses import replace
from pathlib import Path

from runtime.aio.blocking import BlockingIo
from runtime.common.errors import InvalidInputError, NotFoundError, UnavailableError
from runtime.common.ids import ExecutionAttemptId
from runtime.gateways.task_executor import (
    AttemptLogPiece,
    AttemptLogRequest,
    AttemptLogResponse,
    AttemptLogsRequest,
    AttemptLogsResponse,
    LogStream,
)
from runtime.system import linux

READ_BYTES_MAX = 1024 * 1024
_LOOKS_MAX = 8
"""A task that makes holes in its own log again and again is shown their zeros."""
_READERS = 4
# Holes begin and end at blocks; what is cut of a block would be left as zeros.
_HOLE_BYTES = 4096
_AT_ONCE = os.O_CLOEXEC | os.O_NONBLOCK | os.O_NOFOLLOW
"""An open of a file under a lease (its owner may take one) fails at once; the kernel tells the holder of the lease. A
link that user code has put there is not followed.
"""
STREAMS = tuple(stream.value for stream in LogStream)


def attempt_directory(root: Path, attempt_id: ExecutionAttemptId) -> Path:
    """Where an attempt's logs are."""
    return root / str(attempt_id)


def are_logs_above(directory: Path, *, bytes_max: int) -> bool:
    """True if `bound_logs` has something to do. It opens no file, so that no task keeps it waiting."""
    return any(_is_above(directory / stream, bytes_max) is not None for stream in STREAMS)


def bound_logs(directory: Path, *, bytes_max: int) -> int:
    """Drop heads so that each stream keeps at most `bytes_max` on disk; how many streams were cut.

    Blocking, for as long as tasks write to the file, or hold a lease on it: the kernel ends a lease that an open waits
    for, but a task may take it again and again (R43). Raises OSError.
    """
    return sum(_bound(directory / stream, bytes_max) for stream in STREAMS)


def _is_above(path: Path, bytes_max: int) -> os.stat_result | None:
    try:
        status = path.lstat()
    except (FileNotFoundError, NotADirectoryError):
        return None
    is_file = stat.S_ISREG(status.st_mode)
    return status if is_file and status.st_size > bytes_max and status.st_blocks * 512 > bytes_max else None


def _bound(path: Path, bytes_max: int) -> bool:
    status = _is_above(path, bytes_max)
    if status is None:
        return False
    descriptor = os.open(path, os.O_WRONLY | os.O_CLOEXEC | os.O_NOFOLLOW)
    try:
        # Down to half of the bound, so that a busy writer is not cut at every look.
        length = status.st_size - bytes_max // 2
        if not linux.punch_hole(descriptor, length - length % _HOLE_BYTES):
            os.ftruncate(descriptor, 0)
            os.write(descriptor, b"[log emptied: it was above its bound, and this file system cannot drop heads]\n")
    finally:
        os.close(descriptor)
    return True


def read_log(root: Path, request: AttemptLogRequest) -> AttemptLogResponse:
    """A piece of a stream, also of another TaskManager of this host, which may be dead.

    NotFoundError when the attempt has no logs here; a stream never written to is empty. UnavailableError while the task
    holds a lease on the file.
    """
    if request.limit < 1:
        message = f"limit must be at least 1, not {request.limit}"
        raise InvalidInputError(message)
    directory = _find(root, request.attempt_id)
    try:
        descriptor = os.open(directory / request.stream.value, os.O_RDONLY | _AT_ONCE)
    except BlockingIOError:
        message = f"attempt {request.attempt_id} keeps others from its {request.stream.value} by a lease: ask again"
        raise UnavailableError(message) from None
    except FileNotFoundError:
        if directory.is_dir():
            return AttemptLogResponse(b"", 0, 0, is_truncated=False)
        message = f"no logs of attempt {request.attempt_id} on this TaskManager"
        raise NotFoundError(message) from None
    except OSError as error:
        if error.errno not in {errno.ELOOP, errno.ENXIO}:
            raise
        raise _replaced(request) from None
    try:
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            raise _replaced(request)
        return _read(descriptor, request.offset, min(request.limit, READ_BYTES_MAX))
    finally:
        os.close(descriptor)


def _replaced(request: AttemptLogRequest) -> NotFoundError:
    return NotFoundError(
        f"attempt {request.attempt_id} has put something else in the place of its {request.stream.value}"
    )


def _find(root: Path, attempt_id: ExecutionAttemptId) -> Path:
    own = attempt_directory(root, attempt_id)
    if own.is_dir():
        return own
    return next((path for path in root.parent.glob(f"*/{attempt_id}") if path.is_dir()), own)


def read_logs(root: Path, request: AttemptLogsRequest) -> AttemptLogsResponse:
    """Pieces of many streams, in their order, until there is no more room; a log that is not here is None."""
    pieces: list[AttemptLogPiece] = []
    room = min(request.size_bytes_max, READ_BYTES_MAX)
    for index, read in enumerate(request.reads):
        if room <= 0:
            break
        try:
            piece = read_log(root, replace(read, limit=min(read.limit, room)))
        except NotFoundError:
            pieces.append(AttemptLogPiece(index, None))
            continue
        except UnavailableError:
            continue  # as one that has nothing new: others are not kept from theirs
        room -= len(piece.data)
        pieces.append(AttemptLogPiece(index, piece))
    return AttemptLogsResponse(tuple(pieces))


class LogReaders:
    """`read_log` and `read_logs` on threads that do nothing else.

    A task that blocks access to its file keeps only readers of logs waiting (R43).
    """

    def __init__(self, root: Path) -> None:
        self._root = root
        self._io = BlockingIo("read logs", threads=_READERS)

    async def read(self, request: AttemptLogRequest) -> AttemptLogResponse:
        """A piece of one attempt's log."""
        return await self._io.run(read_log, self._root, request)

    async def read_many(self, request: AttemptLogsRequest) -> AttemptLogsResponse:
        """Pieces of many logs."""
        return await self._io.run(read_logs, self._root, request)

    def close(self) -> None:
        """End the threads. Idempotent."""
        self._io.abandon()


def _read(descriptor: int, offset: int, limit: int) -> AttemptLogResponse:
    looks = 0
    while True:
        looks += 1
        size = os.fstat(descriptor).st_size
        start = _first_data(descriptor, size)
        wanted = size + offset if offset < 0 else offset
        # Beyond the end: the file was emptied under the reader, or the offset was never valid. Go on at the end.
        begin, end = _data_from(descriptor, min(max(wanted, start), size), size)
        data = os.pread(descriptor, min(limit, end - begin), begin)
        if looks == _LOOKS_MAX or _first_data(descriptor, size) == start:
            break
        # The head was dropped meanwhile: what was read may be zeros, or begin within a line.
    next_offset = begin + len(data)
    dropped = 0
    if 0 <= offset < start:
        data = data[data.find(b"\n") + 1 :]
        dropped = next_offset - len(data) - offset
    return AttemptLogResponse(data, next_offset, size, is_truncated=start > 0, dropped_bytes=dropped)


def _data_from(descriptor: int, offset: int, size: int) -> tuple[int, int]:
    """From where to where there is something, behind an offset: by a hole a task makes its log as long as it likes."""
    try:
        begin = os.lseek(descriptor, offset, os.SEEK_DATA)
        return begin, os.lseek(descriptor, begin, os.SEEK_HOLE)
    except OSError as error:
        if error.errno == errno.ENXIO:  # nothing comes any more, or there is nothing at all
            return size, size
        return offset, size


def _first_data(descriptor: int, size: int) -> int:
    if size == 0:
        return 0
    try:
        return os.lseek(descriptor, 0, os.SEEK_DATA)
    except OSError:
        return 0
