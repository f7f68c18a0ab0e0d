"""The guard's half of the isolation deadline, where the kernel does not let it kill everything (R14)."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.process

ROOT = Path(__file__).resolve().parents[2]
# A main process that moves outputs, with a child that hangs in the kernel: no signal ends that.
HUNG = """
import os, signal, sys, time
from runtime.taskexecutor.guard import isolation
from runtime.system.linux import become_subreaper, boottime, die_with_parent

become_subreaper()
reader, writer = os.pipe()
me, main = os.getpid(), os.fork()
if main == 0:
    die_with_parent(me)
    me, child = os.getpid(), os.fork()
    if child == 0:
        die_with_parent(me)
        os.write(writer, b"%d" % os.getpid())
    while True: signal.pause()
child = int(os.read(reader, 20))
kill = isolation.kill
isolation.kill = lambda pid: pid == child or kill(pid)
deadline = isolation.IsolationDeadline(boottime)
deadline.mark(main, main)
deadline.hold(boottime())
signal.alarm(20)
assert deadline.enforce(main), "it was main"
_, status = os.waitpid(main, 0)
assert os.waitstatus_to_exitcode(status) == -signal.SIGKILL, status
"""


def test_a_mover_is_killed_also_when_what_it_has_started_cannot_be() -> None:
    """A process that is only stopped would go on behind the deadline after a SIGCONT (R14)."""
    done = subprocess.run([sys.executable, "-c", HUNG], cwd=ROOT, timeout=60, check=False)
    assert done.returncode == 0
