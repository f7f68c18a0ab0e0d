"""How a lease keeper sees the process whose lease it keeps (R40)."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from runtime.entrypoint.keeper_process import is_stopped, open_own_state
from tests.kit.host.levels import reached

_HIDDEN = """
import os, subprocess, sys
from runtime.entrypoint.keeper_process import is_stopped, open_own_state
from runtime.system.linux import refuse_tracing
subprocess.run(["mount", "-t", "proc", "-o", sys.argv[1], "proc", "/proc"], check=True)
os.setgroups([])
os.setresgid(65534, 65534, 65534)
os.setresuid(65534, 65534, 65534)
refuse_tracing()
state, holder = open_own_state(), os.getpid()
if os.fork() == 0:
    said = "runs " if not is_stopped(state) else "stopped "
    try:
        open(f"/proc/{holder}/stat")
        said += "shown"
    except OSError:
        said += "hidden"
    print(said, flush=True)
    os._exit(0)
os.wait()
"""


def test_it_sees_that_the_system_runs_its_process_no_more() -> None:
    told, tell = os.pipe()
    pid = os.fork()
    if pid == 0:
        os.write(tell, f"{open_own_state()}\n".encode())
        signal.pause()
    number = int(os.read(told, 20))
    # The one that its keeper inherits, had from the system here.
    state = os.open(f"/proc/{pid}/stat", os.O_RDONLY)
    assert str(Path(f"/proc/{pid}/fd/{number}").readlink()) == f"/proc/{pid}/stat"
    try:
        assert not is_stopped(state)
        os.kill(pid, signal.SIGSTOP)
        reached(lambda: is_stopped(state), "that it is stopped")
        os.kill(pid, signal.SIGCONT)
        reached(lambda: not is_stopped(state), "that it goes on")
        os.kill(pid, signal.SIGKILL)
        reached(lambda: is_stopped(state), "that it has ended")
        os.waitpid(pid, 0)
        assert is_stopped(state)
    finally:
        for descriptor in (state, told, tell):
            os.close(descriptor)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root mounts a /proc of its own")
@pytest.mark.parametrize("option", ["hidepid=1", "hidepid=2"])
def test_it_sees_its_process_where_proc_hides_what_others_run(option: str) -> None:
    """The holder refuses tracing (R50): so it is hidden from its keeper, too."""
    command = ["unshare", "--mount", "--pid", "--fork", sys.executable, "-c", _HIDDEN, option]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)
    if "unshare: " in done.stderr or "mount: " in done.stderr:
        pytest.skip(done.stderr)
    assert (done.stdout, done.stderr) == ("runs hidden\n", "")
