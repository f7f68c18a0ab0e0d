"""Unpacks the archives of a job in a process of its own, and turns its end into an error with one sentence (R42)."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
import threading
from pathlib import Path

from runtime.common.errors import BugError, InvalidInputError, UnavailableError
from runtime.common.printable import printable
from runtime.taskexecutor.containment.user_processes import end_processes_of
from runtime.taskexecutor.unpacking.lending import lend, take_back
from runtime.taskexecutor.unpacking.limits import MAX_CPU_TIME, TIMEOUT, UnpackLimits
from runtime.taskexecutor.unpacking.messages import (
    DENIED,
    DONE,
    REFUSED,
    ArchiveToUnpack,
    UnpackAnswer,
    parse_answer,
    request_line,
)

_BOOTSTRAP = (
    f"import sys; sys.path.append({str(Path(__file__).resolve().parents[3])!r}); "
    "from runtime.taskexecutor.unpacking.child_main import main; main()"
)
_PASSED = ("PATH", "LD_LIBRARY_PATH", "LANG", "LC_ALL", "PYTHONHOME", "PYTHONPATH")
_SAID_BYTES_MAX = 64 << 10
_READ_BYTES = 64 << 10
_CRASHES = frozenset({signal.SIGSEGV, signal.SIGBUS, signal.SIGABRT, signal.SIGFPE, signal.SIGILL, signal.SIGSYS})


async def unpack_archives_as(
    user: int, archives: tuple[ArchiveToUnpack, ...], limits: UnpackLimits, building: Path
) -> None:
    """Unpack in a process of `user`, whose only group has the same number; root owns the result. Needs root.

    No other process may have the number of the user. All processes of the user have ended when this returns.
    """
    roots = [Path(one.root) for one in archives]
    await asyncio.to_thread(lend, building, roots, user)
    await unpack_archives(archives, limits, user)
    await asyncio.to_thread(take_back, roots, user)


async def unpack_archives(archives: tuple[ArchiveToUnpack, ...], limits: UnpackLimits, user: int | None = None) -> None:
    """Unpack all archives. When this returns or raises, the process has ended, and writes nothing any more.

    Raises InvalidInputError when the archives are to blame, UnavailableError when the process was ended by others or
    takes longer than disks should, and OSError for what the host denies.
    """
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-P", "-c", _BOOTSTRAP),
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
        env={name: os.environ[name] for name in _PASSED if name in os.environ},
        start_new_session=True,
    )
    try:
        async with asyncio.timeout(limits.timeout):
            said, complained = await _talk(process, request_line(archives, limits, user))
            code = await process.wait()
    except TimeoutError as error:
        message = f"unpacking the archives of the job takes longer than {limits.timeout:g} s ({TIMEOUT})"
        raise UnavailableError(message) from error
    finally:
        if process.returncode is None:
            process.kill()
        alive = [] if user is None else await asyncio.to_thread(end_processes_of, user, threading.Event().wait)
        await process.wait()  # as long as a process has its end of a pipe
    if alive:
        message = f"processes that the archives of the job have started do not end: {alive[:10]}"
        raise UnavailableError(message)
    if code != 0:
        raise _ended(code, complained, limits)
    _heed(_parsed(said))


async def _talk(process: asyncio.subprocess.Process, request: bytes) -> tuple[bytes, bytes]:
    """Send the request, and read the standard output and standard error of the process to their ends."""
    assert process.stdin is not None
    assert process.stdout is not None
    assert process.stderr is not None
    process.stdin.write(request)
    process.stdin.close()
    async with asyncio.TaskGroup() as reading:
        said = reading.create_task(_beginning(process.stdout))
        complained = reading.create_task(_beginning(process.stderr))
    return said.result(), complained.result()


async def _beginning(stream: asyncio.StreamReader) -> bytes:
    """The first bytes of a stream, which is read to its end: a hijacked process may write any amount."""
    kept = b""
    while data := await stream.read(_READ_BYTES):
        kept = (kept + data)[:_SAID_BYTES_MAX]
    return kept


def _parsed(said: bytes) -> UnpackAnswer:
    try:
        return parse_answer(said)
    except (ValueError, TypeError) as error:
        message = f"the process that unpacks archives has answered {said[:200]!r}"
        raise BugError(message) from error


def _heed(answer: UnpackAnswer) -> None:
    message = printable(answer.message)
    match answer.outcome:
        case outcome if outcome == DONE:
            return
        case outcome if outcome == REFUSED:
            raise InvalidInputError(message)
        case outcome if outcome == DENIED:
            raise OSError(answer.errno, f"unpacking the archives of the job: {message}")
        case other:
            message = f"the process that unpacks archives has answered {other!r:.200}"
            raise BugError(message)


def _ended(code: int, complained: bytes, limits: UnpackLimits) -> InvalidInputError | UnavailableError:
    if -code == signal.SIGXCPU:
        message = "the archives of this job take too long to be unpacked: more than"
        return InvalidInputError(f"{message} {limits.cpu_seconds_max} s of processor time ({MAX_CPU_TIME})")
    if -code in _CRASHES:
        how = signal.Signals(-code).name
        return InvalidInputError(f"an archive of this job is damaged: what should unpack it has crashed ({how})")
    how = f"was ended by signal {-code}" if code < 0 else f"has ended with {code}"
    last = complained.decode(errors="replace").strip().rpartition("\n")[2]
    message = f"the process that unpacks the archives of the job {how}"
    return UnavailableError(f"{message}: {printable(last[:500])}" if last else message)
