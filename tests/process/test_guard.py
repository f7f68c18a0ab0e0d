"""The guard with real processes (R13): refused means that everything of the TaskManager is reaped."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from runtime.common.ids import Incarnation
from runtime.heartbeat.core.death import GRACE
from runtime.heartbeat.proof_of_death import GuardDialler

pytestmark = pytest.mark.process

ROOT = Path(__file__).resolve().parents[2]
GUARD = """
import os, sys
from runtime.taskexecutor.guard.guard_main import run_guard
run_guard([sys.executable, "-c", sys.argv[1]], os.environ)
"""
# A main process with a child, and a grandchild of its own session that ignores SIGTERM and has lost its parent.
MAIN = """
import json, os, signal, sys, time
from runtime.taskexecutor.guard.channel import GuardChannel
from runtime.taskexecutor.slots.linux import die_with_parent

def spawn(*, is_orphan):
    reader, writer = os.pipe()
    parent = os.getpid()
    pid = os.fork()
    if pid == 0:
        if is_orphan:
            die_with_parent(parent)
            os.setsid()
            middle = os.getpid()
            if os.fork():
                while True: signal.pause()
            die_with_parent(middle)
            signal.signal(signal.SIGTERM, signal.SIG_IGN)
        else:
            die_with_parent(parent)
        os.write(writer, f"{os.getpid()}".encode())
        while True: signal.pause()
    os.close(writer)
    return [pid, int(os.read(reader, 100))]

channel = GuardChannel.from_environment(os.environ)
assert channel is not None
assert "FLINKLIKE_GUARD_CONTROL" not in os.environ
descriptors = len(os.listdir("/proc/self/fd"))
port = channel.listen("127.0.0.1")
signal.signal(signal.SIGTERM, lambda *_: os._exit(143))
signal.signal(signal.SIGINT, lambda *_: os._exit(130))
child, orphan = spawn(is_orphan=False), spawn(is_orphan=True)
print(json.dumps({"port": port, "incarnation": channel.incarnation, "main": os.getpid(), "ppid": os.getppid(),
                  "pids": child + orphan, "descriptors": descriptors}), flush=True)
EXIT
while True: signal.pause()
"""


@dataclass
class Guarded:
    process: subprocess.Popen[str]
    port: int
    incarnation: str
    main: int
    pids: list[int]
    descriptors: int

    def dial(self) -> str:
        with socket.create_connection(("127.0.0.1", self.port), timeout=5) as connection:
            return connection.makefile().read()

    @property
    def everybody(self) -> list[int]:
        return [self.main, *self.pids]


def start(main: str = MAIN, *, ending: str = "") -> Guarded:
    process = subprocess.Popen(
        [sys.executable, "-c", GUARD, main.replace("EXIT", ending)],
        stdout=subprocess.PIPE,
        text=True,
        cwd=ROOT,
    )
    assert process.stdout is not None
    line = process.stdout.readline()
    said = json.loads(line)
    assert said["ppid"] == process.pid
    return Guarded(process, said["port"], said["incarnation"], said["main"], said["pids"], said["descriptors"])


@pytest.fixture
def guarded() -> Iterator[Guarded]:
    started = start()
    yield started
    for pid in (started.process.pid, *started.everybody):
        if is_alive(pid):
            os.kill(pid, signal.SIGKILL)
    started.process.wait(10)
    assert started.process.stdout is not None
    started.process.stdout.close()


def is_alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
    except OSError:
        return False


def exists(pid: int) -> bool:
    return Path(f"/proc/{pid}").exists()


def wait_until(predicate: Callable[[], bool], *, timeout: float = 10) -> float:
    begun = time.monotonic()
    while not predicate():
        assert time.monotonic() - begun < timeout
        time.sleep(0.002)
    return time.monotonic() - begun


def test_each_connection_is_told_the_incarnation_and_the_boot(guarded: Guarded) -> None:
    boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    for _ in range(3):
        assert guarded.dial() == f"{guarded.incarnation} {boot}\n"


def test_nobody_can_bind_beside_the_guard(guarded: Guarded) -> None:
    for option in (socket.SO_REUSEPORT, socket.SO_REUSEADDR):
        with socket.socket() as other:
            other.setsockopt(socket.SOL_SOCKET, option, 1)
            with pytest.raises(OSError, match="in use"):
                other.bind(("127.0.0.1", guarded.port))


def test_the_liveness_socket_is_not_inherited(guarded: Guarded) -> None:
    def sockets(pid: int) -> set[str]:
        descriptors = Path(f"/proc/{pid}/fd")
        return {target for entry in descriptors.iterdir() if (target := str(entry.readlink())).startswith("socket:")}

    listening = {
        f"socket:[{line.split()[9]}]"
        for line in Path("/proc/net/tcp").read_text().splitlines()[1:]
        if line.split()[1].endswith(f":{guarded.port:04X}")
    }
    assert listening & sockets(guarded.process.pid)
    for pid in guarded.everybody:
        assert not listening & sockets(pid)


def test_refused_means_that_every_descendant_is_gone(guarded: Guarded) -> None:
    guarded.dial()
    os.kill(guarded.main, signal.SIGKILL)

    def is_refused() -> bool:
        try:
            answer = guarded.dial()
        except ConnectionRefusedError:
            # The rule: at the first refusal there is nobody left, not even as a zombie.
            assert not any(map(exists, guarded.everybody))
            return True
        except ConnectionResetError:
            return False
        assert answer.startswith(guarded.incarnation)
        return False

    wait_until(is_refused)
    assert guarded.process.wait(5) == 128 + signal.SIGKILL


def test_any_party_proves_a_death_by_dialling(guarded: Guarded) -> None:
    boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    address, name = f"127.0.0.1:{guarded.port}", Incarnation(guarded.incarnation)

    def is_dead(expected: Incarnation, *, trusts_refusal: bool = True) -> bool:
        dialler = GuardDialler(trusts_refusal=trusts_refusal, timeout=5.0)
        return asyncio.run(dialler.prove_death(address, expected, boot))

    assert asyncio.run(GuardDialler(trusts_refusal=True, timeout=5.0).is_guard_of(address, name, boot))
    assert not is_dead(name)
    assert is_dead(Incarnation("f" * 32)), "another guard answers where the dead one did"
    os.kill(guarded.process.pid, signal.SIGKILL)
    guarded.process.wait(10)
    assert not is_dead(name, trusts_refusal=False)
    begun = time.monotonic()
    assert is_dead(name)
    assert time.monotonic() - begun >= GRACE
    assert not any(map(is_alive, guarded.everybody))


def test_a_killed_guard_takes_everybody_along(guarded: Guarded) -> None:
    os.kill(guarded.process.pid, signal.SIGKILL)
    took = wait_until(lambda: not any(map(is_alive, [guarded.main, *guarded.pids])), timeout=2)
    assert took < 0.5 + 0.5, took  # the grace of R13, and slack for a busy machine


@pytest.mark.parametrize(("number", "code"), [(signal.SIGTERM, 143), (signal.SIGINT, 130)])
def test_signals_are_forwarded_and_the_exit_code_is_the_mains(guarded: Guarded, number: int, code: int) -> None:
    guarded.process.send_signal(number)
    assert guarded.process.wait(10) == code
    assert not any(map(exists, guarded.everybody))


@pytest.mark.parametrize("code", [0, 1, 7])
def test_the_guard_ends_with_its_main_and_leaves_nobody(code: int) -> None:
    started = start(ending=f"os._exit({code})")
    assert started.process.wait(10) == code
    assert not any(map(exists, started.everybody))
    assert started.process.stdout is not None
    started.process.stdout.close()


def test_orphans_are_reaped_while_the_main_process_runs(guarded: Guarded) -> None:
    middle, orphan = guarded.pids[2:]
    os.kill(middle, signal.SIGKILL)  # its parent-death signal ends the orphan, which is then the guard's to reap
    wait_until(lambda: not exists(orphan))
    assert is_alive(guarded.main)


def test_a_main_that_cannot_be_started_is_one_sentence() -> None:
    code = "from runtime.taskexecutor.guard.guard_main import run_guard; run_guard(['/no/such/program'], {})"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=ROOT, check=False)
    assert done.returncode == 1
    assert done.stderr.count("\n") == 1
    assert "cannot be started" in done.stderr


def test_the_guard_is_small() -> None:
    code = (
        "import sys; before = set(sys.modules); import runtime.taskexecutor.guard.guard_main; "
        "print([name for name in set(sys.modules) - before if name.split('.')[0] not in sys.stdlib_module_names])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=ROOT, check=True)
    loaded = set(json.loads(done.stdout.replace("'", '"')))
    assert loaded <= {
        "runtime",
        "runtime.taskexecutor",
        "runtime.taskexecutor.guard",
        "runtime.taskexecutor.guard.guard_main",
        "runtime.taskexecutor.guard.channel",
        "runtime.taskexecutor.guard.isolation",
        "runtime.taskexecutor.slots",
        "runtime.taskexecutor.slots.linux",
    }
