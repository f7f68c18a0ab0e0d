"""A process whose first thread has ended is alive, whatever it looks like (R13, R29, R42)."""

from __future__ import annotations

import os
import resource
import subprocess
import sys
from pathlib import Path

from runtime.system.linux import is_alive, name_of
from runtime.taskexecutor.containment.user_processes import has_process
from runtime.taskexecutor.guard.mark import carriers, carry, new_mark
from tests.kit.host.leaderless import PROGRAM, leaderless
from tests.kit.host.levels import reached


def test_it_is_alive_until_its_last_thread_has_ended() -> None:
    with leaderless() as pid:
        assert is_alive(pid)
        assert has_process(os.getuid(), pid)
    assert not is_alive(pid)
    assert not has_process(os.getuid(), pid)


def test_a_zombie_is_not() -> None:
    with subprocess.Popen([sys.executable, "-c", ""]) as ended:
        stat = Path(f"/proc/{ended.pid}/stat")
        reached(lambda: stat.read_bytes().rpartition(b")")[2].split()[0] == b"Z", "it has ended")
        assert not is_alive(ended.pid)
        assert not has_process(os.getuid(), ended.pid)


def test_it_carries_its_mark() -> None:
    """R30: who counts it as gone lets its job begin a second time."""
    mark = new_mark()
    limit = resource.getrlimit(resource.RLIMIT_RTTIME)
    command = [sys.executable, "-c", PROGRAM, "0", "0"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, preexec_fn=lambda: carry(mark)) as process:  # noqa: PLW1509
        try:
            assert process.stdout is not None
            process.stdout.readline()
            stat = Path(f"/proc/{process.pid}/stat")
            reached(lambda: stat.read_bytes().rpartition(b")")[2].split()[0] == b"Z", "its first thread has ended")
            assert carriers(mark) == [process.pid]
        finally:
            process.kill()
    assert carriers(mark) == []
    assert resource.getrlimit(resource.RLIMIT_RTTIME) == limit


def test_a_name_is_one_line() -> None:
    with subprocess.Popen([sys.executable, "-c", NAMED], stdout=subprocess.PIPE) as process:
        try:
            assert process.stdout is not None
            process.stdout.readline()
            assert name_of(process.pid) == "x ERROR fake"
        finally:
            process.kill()


NAMED = (
    "import ctypes, time; ctypes.CDLL(None).prctl(15, b'x\\nERROR fake', 0, 0, 0); print(flush=True); time.sleep(600)"
)
