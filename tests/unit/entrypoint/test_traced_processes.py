"""R50: no process of the same user can trace the cluster's processes."""

from __future__ import annotations

import ctypes
import os
import signal
from collections.abc import Callable
from pathlib import Path

import pytest

from runtime.entrypoint.process import run_process
from runtime.system.linux import refuse_tracing

_PR_GET_DUMPABLE = 3
_PR_SET_DUMPABLE = 4
_NOBODY = 65534

_libc = ctypes.CDLL(None, use_errno=True)


def in_child(code: Callable[[], bool]) -> bool:
    """What it finds, in a process of its own."""
    pid = os.fork()
    if pid == 0:
        found = False
        try:
            found = code()
        finally:
            os._exit(0 if found else 1)
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0


def is_memory_shown(*, is_refused: bool) -> bool:
    """True when a process of the same user, not root, can open the memory of another one."""

    def look() -> bool:
        if os.geteuid() == 0:
            os.setgroups([])
            os.setresgid(_NOBODY, _NOBODY, _NOBODY)
            os.setresuid(_NOBODY, _NOBODY, _NOBODY)
            _libc.prctl(_PR_SET_DUMPABLE, 1, 0, 0, 0)
        ready, told = os.pipe()
        target = os.fork()
        if target == 0:
            os.close(ready)
            if is_refused:
                refuse_tracing()
            os.write(told, b"1")
            os.close(told)
            signal.pause()
        os.read(ready, 1)
        try:
            Path(f"/proc/{target}/environ").read_bytes()
        except PermissionError:
            return False
        finally:
            os.kill(target, signal.SIGKILL)
            os.waitpid(target, 0)
        return True

    return in_child(look)


def test_who_refuses_it_is_read_by_no_process_of_its_user() -> None:
    assert is_memory_shown(is_refused=False)
    assert not is_memory_shown(is_refused=True)


def test_processes_of_the_cluster_show_nobody_their_memory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FLINKLIKE_RUN_DIR", str(tmp_path))

    def start() -> bool:
        # The system refuses it already where an earlier test has changed its user.
        _libc.prctl(_PR_SET_DUMPABLE, 1, 0, 0, 0)
        assert _libc.prctl(_PR_GET_DUMPABLE, 0, 0, 0, 0) == 1
        run_process("test", lambda: pytest.fail("it was to be refused"), ["-D", "no.such.option=1"])
        return bool(_libc.prctl(_PR_GET_DUMPABLE, 0, 0, 0, 0) == 0)

    assert in_child(start)
