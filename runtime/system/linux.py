"""The few Linux calls that Python has no name for. Loaded before any fork, so that children need no import."""

from __future__ import annotations

import ctypes
import ctypes.util
import os
import platform
import re
import signal
import time

_PR_SET_PDEATHSIG = 1
_PR_SET_DUMPABLE = 4
_PR_SET_NAME = 15
_PR_SET_CHILD_SUBREAPER = 36
_PR_GET_CHILD_SUBREAPER = 37
_PR_SET_NO_NEW_PRIVS = 38
_FALLOC_FL_KEEP_SIZE = 1
_FALLOC_FL_PUNCH_HOLE = 2
_IOLBF = 1
KEYCTL_CALL = {"x86_64": 250, "aarch64": 219}.get(platform.machine(), -1)
KEYCTL_JOIN_SESSION_KEYRING, _KEYCTL_CLEAR = 1, 7
_USERS_KEYRINGS = (-4, -5)
"""Of the user, and of sessions of his that have none."""
_FUTEX_CALL = {"x86_64": 202, "aarch64": 98}.get(platform.machine(), -1)
_FUTEX_PRIVATE_WAITS = {0x80, 0x89}
_FUTEX_CLOCK_REALTIME = 0x100
_FUTEX_WORDS = 7
_SIGNAL_LINES = re.compile(
    rb"^SigPnd:\t(\w+)\nShdPnd:\t(\w+)\nSigBlk:\t\w+\nSigIgn:\t(\w+)\nSigCgt:\t(\w+)$", re.MULTILINE
)
_PF_EXITING = 4
_ENDED = frozenset({b"Z", b"X"})
_THREADS_FIELD = 17
_ROLLUP_BYTES = 4096
_TFD_CLOEXEC = os.O_CLOEXEC
_TFD_TIMER_ABSTIME = 1

_libc = ctypes.CDLL(None, use_errno=True)
_libc.fallocate.argtypes = [ctypes.c_int, ctypes.c_int, ctypes.c_int64, ctypes.c_int64]
_libc.prctl.argtypes = [ctypes.c_int, ctypes.c_ulong, ctypes.c_ulong, ctypes.c_ulong, ctypes.c_ulong]
_libc.setvbuf.argtypes = [ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int, ctypes.c_size_t]
_libc.fflush.argtypes = [ctypes.c_void_p]
_libc.timerfd_settime.argtypes = [ctypes.c_int, ctypes.c_int, ctypes.c_void_p, ctypes.c_void_p]


def _prctl(option: int, value: int) -> None:
    if _libc.prctl(option, value, 0, 0, 0) != 0:
        number = ctypes.get_errno()
        raise OSError(number, f"prctl({option}, {value}): {os.strerror(number)}")


def die_with_parent(expected_parent: int) -> None:
    """Be killed when the thread that forked this process ends; ends at once if that has happened already."""
    _prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != expected_parent:
        os.kill(os.getpid(), signal.SIGKILL)


def become_subreaper() -> None:
    """Adopt descendants whose parents end, instead of init."""
    _prctl(_PR_SET_CHILD_SUBREAPER, 1)


def is_subreaper() -> bool:
    """Does this process adopt its descendants' orphans?"""
    answer = ctypes.c_int()
    _prctl(_PR_GET_CHILD_SUBREAPER, ctypes.addressof(answer))
    return bool(answer.value)


def refuse_new_privileges() -> None:
    """Neither this process nor any below it gains rights by a program's set-user-id bit or capabilities (R50)."""
    _prctl(_PR_SET_NO_NEW_PRIVS, 1)


def refuse_tracing() -> None:
    """No other process of this user traces this one, or reads its memory, environment and descriptors (R50).

    Nor those that it forks, until one of them runs another program. It writes no core file either.
    """
    _prctl(_PR_SET_DUMPABLE, 0)


def join_empty_keyring() -> None:
    """From now on this thread, and what it starts, has none of the keys that its session was given (R50).

    Where the kernel refuses (a container's filter of calls), it refuses that to whatever runs below, too.
    """
    _libc.syscall(KEYCTL_CALL, KEYCTL_JOIN_SESSION_KEYRING, None)


def forget_keys_of_this_user() -> None:
    """Clear the keyrings of this user: an earlier user of the same number may have left keys."""
    for keyring in _USERS_KEYRINGS:
        _libc.syscall(KEYCTL_CALL, _KEYCTL_CLEAR, ctypes.c_long(keyring))


def allow_own_files() -> None:
    """The files of this process in /proc are its user's, as those of any program that its user has started."""
    _prctl(_PR_SET_DUMPABLE, 1)


def set_process_name(name: str) -> None:
    """What `ps` and `top` show; 15 characters."""
    buffer = ctypes.create_string_buffer(name.encode()[:15])
    _prctl(_PR_SET_NAME, ctypes.addressof(buffer))


def boottime() -> float:
    """Seconds on CLOCK_BOOTTIME: as the monotonic clock, and it goes on while the host is suspended."""
    return time.clock_gettime(time.CLOCK_BOOTTIME)


class BootTimer:
    """Readable from a time of CLOCK_BOOTTIME on: a timeout would stand still while the host is suspended."""

    def __init__(self) -> None:
        self._at: float | None = None
        self._descriptor = _libc.timerfd_create(time.CLOCK_BOOTTIME, _TFD_CLOEXEC)
        if self._descriptor < 0:
            number = ctypes.get_errno()
            raise OSError(number, f"timerfd_create: {os.strerror(number)}")

    def fileno(self) -> int:
        """For a selector."""
        return int(self._descriptor)

    def set(self, at: float | None) -> None:
        """From then on; None: never. What it was set to before counts no more. The same again costs nothing."""
        if at == self._at:
            return
        self._at = at
        nanoseconds = 0 if at is None else max(1, int(at * 1e9))
        spec = (ctypes.c_long * 4)(0, 0, *divmod(nanoseconds, 1_000_000_000))
        if _libc.timerfd_settime(self._descriptor, _TFD_TIMER_ABSTIME, spec, None) != 0:
            number = ctypes.get_errno()
            raise OSError(number, f"timerfd_settime: {os.strerror(number)}")


def line_buffer_c_stdout() -> None:
    """Let C code's stdout appear line by line, also in a file, so that it keeps its place among Python's lines."""
    _libc.setvbuf(ctypes.c_void_p.in_dll(_libc, "stdout"), None, _IOLBF, 0)


def flush_c_streams() -> None:
    """Write out the buffers of all C streams: fflush(NULL)."""
    _libc.fflush(None)


def punch_hole(descriptor: int, length: int) -> bool:
    """Give back the first `length` bytes of a file without moving the rest. False where files cannot do that."""
    mode = _FALLOC_FL_KEEP_SIZE | _FALLOC_FL_PUNCH_HOLE
    return bool(_libc.fallocate(descriptor, mode, 0, length) == 0)


def children_of(pid: int) -> list[int]:
    """Direct children of all threads of a process; empty when it has ended."""
    children: list[int] = []
    try:
        threads = os.listdir(f"/proc/{pid}/task")  # noqa: PTH208 - five times as fast, five times a second
    except OSError:
        return children
    for thread in threads:
        try:
            children += map(int, _read(f"/proc/{pid}/task/{thread}/children").split())
        except OSError:
            continue
    return children


def is_alive(pid: int) -> bool:
    """True while any thread of the process runs. It looks like a zombie when its first one has ended before others."""
    try:
        fields = _read(f"/proc/{pid}/stat").rpartition(b")")[2].split()
    except OSError:
        return False
    return fields[0] not in _ENDED or int(fields[_THREADS_FIELD]) > 1


def _of_another_thread(pid: int) -> str:
    """Where the first thread of a process has ended, the kernel shows its files at another thread only."""
    try:
        threads = os.listdir(f"/proc/{pid}/task")  # noqa: PTH208 - as above
    except OSError:
        return ""
    return next((f"/proc/{pid}/task/{thread}" for thread in threads if thread != str(pid)), "")


def descriptors_of(pid: int) -> list[str]:
    """Paths of the files that a process has open; none when it has ended or belongs to another user."""
    for place in (f"/proc/{pid}", _of_another_thread(pid)):
        try:
            names = os.listdir(f"{place}/fd") if place else []  # noqa: PTH208 - as above
        except OSError:
            continue
        if names:
            return [f"{place}/fd/{name}" for name in names]
    return []


def mappings_of(pid: int, bytes_max: int, file: str = "smaps") -> bytes:
    """The beginning of what the kernel tells of its mappings, b"" when it has ended."""
    for place in (f"/proc/{pid}", _of_another_thread(pid)):
        try:
            with open(f"{place}/{file}", "rb") as mappings:  # noqa: PTH123 - as above
                if text := mappings.read(bytes_max):
                    return text
        except OSError:
            continue
    return b""


def is_ending(pid: int) -> bool:
    """True when the process has begun to end, or has ended: the kernel says so before it closes what was open."""
    try:
        fields = _read(f"/proc/{pid}/stat").rpartition(b")")[2].split()
    except OSError:
        return True
    return fields[0] in {b"Z", b"X"} or bool(int(fields[6]) & _PF_EXITING)


def is_on_cpu(pid: int) -> bool:
    """True when the main thread of the process runs, or wants to."""
    try:
        return _read(f"/proc/{pid}/stat").rpartition(b")")[2].split()[0] == b"R"
    except (OSError, IndexError):
        return False


def name_of(pid: int) -> str:
    """What `ps` shows, for messages, in one line: it is whatever the process has called itself."""
    try:
        return " ".join(_read(f"/proc/{pid}/comm").decode(errors="replace").split())
    except OSError:
        return "?"


def command_line(pid: int) -> bytes:
    """The arguments of a process, each ended by a null byte; empty when it has ended, or has none."""
    try:
        return _read(f"/proc/{pid}/cmdline")
    except OSError:
        return b""


def is_descendant(pid: int, ancestor: int) -> bool:
    """True while `pid` runs below `ancestor`."""
    while pid > 1:
        try:
            pid = int(_read(f"/proc/{pid}/stat").rpartition(b")")[2].split()[1])
        except OSError:
            return False
        if pid == ancestor:
            return True
    return False


def began_at(pid: int) -> float | None:
    """When that process began, in seconds since 1970 by the clock as it stands now; None when it has ended."""
    try:
        ticks = int(_read(f"/proc/{pid}/stat").rpartition(b")")[2].split()[19])
    except OSError:
        return None
    age = time.clock_gettime(time.CLOCK_BOOTTIME) - ticks / os.sysconf("SC_CLK_TCK")
    return time.time() - age  # noqa: TID251 - the kernel's own notes are compared with it


def session_of(pid: int) -> int:
    """The session that a process belongs to, 0 when it has ended."""
    try:
        return os.getsid(pid)
    except ProcessLookupError:
        return 0


def kill_child_of(parent: int, pid: int) -> bool:
    """SIGKILL for a process that is a child of `parent`, never for another one with that pid. False: there is none."""
    try:
        descriptor = os.pidfd_open(pid)
    except ProcessLookupError:
        return False
    try:
        if pid not in children_of(parent):
            return False
        signal.pidfd_send_signal(descriptor, signal.SIGKILL)
    except (ProcessLookupError, PermissionError):
        return False
    finally:
        os.close(descriptor)
    return True


def process_tree(pid: int) -> list[int]:
    """A process and all its descendants."""
    tree = [pid]
    for member in tree:
        tree += children_of(member)
    return tree


def resident_bytes(pid: int) -> int:
    """Resident set of a process, 0 when it has ended. An upper bound of its proportional share."""
    try:
        pages = int(_read(f"/proc/{pid}/statm").split()[1])
        if not pages and (place := _of_another_thread(pid)):
            pages = int(_read(f"{place}/statm").split()[1])
    except (OSError, IndexError):
        return 0
    return pages * _PAGE_BYTES


def own_bytes(pid: int) -> int:
    """Memory that a process itself has written, without files that it maps; 0 for one that has ended."""
    try:
        lines = _read(f"/proc/{pid}/status").splitlines()
    except OSError:
        return 0
    return sum(int(line.split()[1]) << 10 for line in lines if line.startswith((b"RssAnon:", b"RssShmem:")))


def proportional_bytes(pid: int) -> int:
    """Proportional set size (PSS) of a process, 0 when it has ended."""
    lines = mappings_of(pid, _ROLLUP_BYTES, "smaps_rollup").splitlines()
    return next((int(line.split()[1]) * 1024 for line in lines if line.startswith(b"Pss:")), 0)


def virtual_bytes() -> int:
    """Address space of this process."""
    return int(_read("/proc/self/statm").split()[0]) * _PAGE_BYTES


def thread_ids() -> set[int]:
    """Threads of this process, those of C libraries included."""
    return set(map(int, os.listdir("/proc/self/task")))  # noqa: PTH208 - as above, at the end of each task


def waits_for_own_process(thread: int) -> bytes:
    """How often it has run, if a thread of this process waits, without a timeout, for another one to wake it; else b"".

    Other processes cannot, and a signal leaves it waiting. Where the kernel or the processor is another one: b"".
    """
    try:
        call = _read(f"/proc/self/task/{thread}/syscall").split()
        if len(call) < _FUTEX_WORDS or int(call[0]) != _FUTEX_CALL or int(call[4], 16):
            return b""
        if int(call[2], 16) & ~_FUTEX_CLOCK_REALTIME not in _FUTEX_PRIVATE_WAITS:
            return b""
        # Also what it was woken for: a thread that is to run has been counted when it runs.
        is_asleep = _read(f"/proc/self/task/{thread}/stat").rpartition(b")")[2].split()[0] == b"S"
        return _read(f"/proc/self/task/{thread}/schedstat") if is_asleep else b""
    except (OSError, ValueError):
        return b""


def has_posix_timers() -> bool:
    """Has this process any? False where the kernel does not tell."""
    try:
        return bool(_read("/proc/self/timers"))
    except OSError:
        return False


def signal_masks() -> tuple[int, int, int]:
    """Of this process: the signals that are ignored, caught and pending."""
    found = _SIGNAL_LINES.search(_read("/proc/self/status"))
    assert found is not None, "/proc/self/status has no signals"
    own, shared, ignored, caught = (int(mask, 16) for mask in found.groups())
    return ignored, caught, own | shared


_PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")


def _read(path: str) -> bytes:
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        return os.read(descriptor, 65536)
    finally:
        os.close(descriptor)
