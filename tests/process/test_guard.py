"""The guard with real processes (R13): refused means that everything of the TaskManager is reaped."""

from __future__ import annotations

import asyncio
import json
import os
import select
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import pytest

from runtime.common.ids import Incarnation
from runtime.heartbeat.proof_of_death import GuardDialler
from runtime.system.linux import boottime, children_of

pytestmark = pytest.mark.process

ROOT = Path(__file__).resolve().parents[2]
GUARD = """
import os, sys
from runtime.taskexecutor.guard.channel import CONTROL_VARIABLE
from runtime.taskexecutor.guard.watcher import run_guard
if CONTROL_VARIABLE in os.environ:
    exec(sys.argv[1])
else:
    run_guard([sys.executable, *sys.orig_argv[1:]], os.environ)
"""
# A main process with a child, and a grandchild of its own session that ignores SIGTERM and has lost its parent.
MAIN = """
import json, os, signal, sys, time
from runtime.taskexecutor.guard.channel import GuardChannel
from runtime.system.linux import die_with_parent

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
channel.control.sendall(b"state 600\\n")
assert channel.control.recv(100) == b"stating 600\\n"
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
    """Of the watcher."""
    guard: int
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
    if not ending:  # else it may have ended, and left whom it leaves to state that
        assert children_of(process.pid) == [said["ppid"]], "the guard is the watcher's child"
    return Guarded(
        process, said["ppid"], said["port"], said["incarnation"], said["main"], said["pids"], said["descriptors"]
    )


@pytest.fixture(autouse=True)
def records(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """The guards' records; without one, no process states a death."""
    monkeypatch.setenv("FLINKLIKE_RUN_DIR", str(tmp_path))
    yield tmp_path / "guards"
    shutil.rmtree(tmp_path / "guards", ignore_errors=True)


@pytest.fixture
def guarded() -> Iterator[Guarded]:
    started = start()
    yield started
    for pid in (started.process.pid, started.guard, *started.everybody):
        if is_alive(pid):
            os.kill(pid, signal.SIGKILL)
    started.process.wait(100)
    assert started.process.stdout is not None
    started.process.stdout.close()


def is_alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
    except OSError:
        return False


def exists(pid: int) -> bool:
    return Path(f"/proc/{pid}").exists()


def wait_until(predicate: Callable[[], bool], *, timeout: float = 100) -> float:
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
    assert listening & sockets(guarded.guard) & sockets(guarded.process.pid)
    for pid in guarded.everybody:
        assert not listening & sockets(pid)


def test_reaped_means_that_every_descendant_is_gone(guarded: Guarded) -> None:
    alive = guarded.dial()
    os.kill(guarded.main, signal.SIGKILL)

    def is_stated() -> bool:
        answer = guarded.dial()
        if answer == alive:
            return False
        # The rule: at the first answer of this kind no process is left, not even as a zombie.
        assert answer == f"{alive.strip()} reaped\n"
        assert not any(map(exists, [guarded.main, *guarded.pids]))
        return True

    wait_until(is_stated)
    assert guarded.process.wait(100) == 128 + signal.SIGKILL


@pytest.mark.parametrize("whom", ["main", "guard", "watcher"])
def test_any_party_proves_a_death_by_dialling(guarded: Guarded, whom: str) -> None:
    boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    address, name = f"127.0.0.1:{guarded.port}", Incarnation(guarded.incarnation)
    dialler = GuardDialler(timeout=5.0)

    def is_dead(expected: Incarnation, boot: str = boot) -> bool:
        return asyncio.run(dialler.prove_death(address, expected, boot))

    assert asyncio.run(dialler.is_guard_of(address, name, boot))
    assert not is_dead(name)
    assert not is_dead(Incarnation("f" * 32)), "another guard where the dead one was says nothing about it"
    os.kill({"main": guarded.main, "guard": guarded.guard, "watcher": guarded.process.pid}[whom], signal.SIGKILL)
    wait_until(lambda: is_dead(name))
    assert not any(map(is_alive, guarded.everybody))
    assert not is_dead(Incarnation("f" * 32))
    assert not is_dead(name, "another boot")


@pytest.mark.parametrize(("number", "code"), [(signal.SIGTERM, 143), (signal.SIGINT, 130)])
def test_signals_are_forwarded_and_the_exit_code_is_the_mains(guarded: Guarded, number: int, code: int) -> None:
    guarded.process.send_signal(number)
    assert guarded.process.wait(100) == code
    assert not any(map(exists, guarded.everybody))


@pytest.mark.parametrize("code", [0, 1, 7])
def test_the_guard_ends_with_its_main_and_leaves_nobody(code: int) -> None:
    started = start(ending=f"os._exit({code})")
    assert started.process.wait(100) == code
    assert not any(map(exists, started.everybody))
    assert started.process.stdout is not None
    started.process.stdout.close()


ONE_LIFE_AND_ANOTHER = """
import os, pathlib, signal, sys
from runtime.taskexecutor.guard.channel import EXIT_START_AGAIN, GuardChannel
channel = GuardChannel.from_environment(os.environ)
channel.listen("127.0.0.1")
lives = pathlib.Path(os.environ["LIVES"])
with lives.open("a") as file:
    print(channel.incarnation, os.getppid(), file=file)
if os.environ.get("STOPPED"):
    os.kill(os.getppid(), signal.SIGTERM)
    signal.sigwait({signal.SIGTERM})
os._exit(EXIT_START_AGAIN if len(lives.read_text().splitlines()) < 3 else 0)
"""


@pytest.mark.parametrize(("stopped", "lives", "code"), [("", 3, 0), ("yes", 1, 3)])
def test_a_main_that_asks_for_it_gets_another_life(tmp_path: Path, stopped: str, lives: int, code: int) -> None:
    told = tmp_path / "lives"
    main = "import signal; signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM})\n" + ONE_LIFE_AND_ANOTHER
    process = subprocess.Popen(
        [sys.executable, "-c", GUARD, main], cwd=ROOT, env={**os.environ, "LIVES": str(told), "STOPPED": stopped}
    )
    assert process.wait(100) == code
    names, guards = zip(*(line.split() for line in told.read_text().splitlines()), strict=True)
    assert len(set(names)) == len(names) == lives
    assert len(set(guards)) == lives, "each life has a guard of its own, below the same watcher"


def test_orphans_are_reaped_while_the_main_process_runs(guarded: Guarded) -> None:
    middle, orphan = guarded.pids[2:]
    os.kill(middle, signal.SIGKILL)  # its parent-death signal ends the orphan, which is then the guard's to reap
    wait_until(lambda: not exists(orphan))
    assert is_alive(guarded.main)


def test_a_main_that_cannot_be_started_is_one_sentence() -> None:
    code = "from runtime.taskexecutor.guard.watcher import run_guard; run_guard(['/no/such/program'], {})"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=ROOT, check=False)
    assert done.returncode == 1
    assert done.stderr.count("\n") == 1
    assert "cannot be started" in done.stderr


# --- the isolation deadline (R14) ---------------------------------------------------------------------------

# Two slot processes with a child each, below a template, and a Spark host with a JVM beside it. Its Python worker has
# left a daemon, and the JVM another one.
ISOLATED = """
import asyncio, json, os, signal, sys, time
from runtime.taskexecutor.guard.channel import GuardChannel
from runtime.taskexecutor.guard.connection import GuardConnection

def fork(*below, is_lost=False):
    reader, writer = os.pipe()
    pid = os.fork()
    if pid == 0:
        os.setsid()
        if is_lost and os.fork():
            os._exit(0)
        found = [fork(is_lost=True) if tree == "lost" else fork(*tree) for tree in below]
        os.write(writer, json.dumps([os.getpid(), found]).encode())
        while True: signal.pause()
    os.close(writer)
    if is_lost:
        os.waitpid(pid, 0)
    return json.loads(os.read(reader, 1000))

channel = GuardChannel.from_environment(os.environ)
channel.listen("127.0.0.1")
template, [[exclusive, [[exclusive_child, _]]], [shared, [[shared_child, _]]]] = fork([[]], [[]])
host, [[jvm, [[worker, [[daemon, _]]], [program, _]]]] = fork([["lost"], "lost"])
named = {"guard": os.getppid(), "main": os.getpid(), "template": template, "exclusive": exclusive,
         "exclusive_child": exclusive_child, "shared": shared, "shared_child": shared_child, "host": host, "jvm": jvm,
         "worker": worker, "daemon": daemon, "program": program}

async def main():
    guard = GuardConnection(channel.control)
    guard.open()
    guard.note_spark(host)
    loop = asyncio.get_running_loop()
    commands = asyncio.Queue()
    loop.add_reader(0, lambda: [commands.put_nowait(word) for word in os.read(0, 1000).decode().split()])
    print(json.dumps(named), flush=True)
    while True:
        word, _, argument = (await commands.get()).partition("=")
        match word:
            case "hold": await guard.hold(float(argument))
            case "mark": guard.mark_exclusive(int(argument))
            case "unmark": guard.unmark(int(argument))
            case "spark": guard.note_spark(int(argument))
        print("done", flush=True)

asyncio.run(main())
"""


class Isolated:
    """A guard and what it guards, told what to do line by line."""

    def __init__(self, stderr: int | None = None) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-c", GUARD, ISOLATED],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=stderr,
            text=True,
            cwd=ROOT,
        )
        self.pids = self.next_life()

    def next_life(self) -> dict[str, int]:
        """Returns when there is one: its processes."""
        assert self.process.stdout is not None
        assert select.select([self.process.stdout], [], [], 20)[0], "there is none"
        found: dict[str, int] = json.loads(self.process.stdout.readline())
        return found

    def tell(self, word: str, argument: float) -> None:
        """Returns when the main process has done it."""
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.process.stdin.write(f"{word}={argument!r}\n")
        self.process.stdin.flush()
        assert self.process.stdout.readline() == "done\n"

    def hold(self, seconds: float) -> float:
        deadline = boottime() + seconds
        self.tell("hold", deadline)
        return deadline

    def mark(self, name: str) -> None:
        self.tell("mark", self.pids[name])

    def freeze(self) -> None:
        os.kill(self.pids["main"], signal.SIGSTOP)

    def wait_dead(self, *names: str) -> None:
        wait_until(lambda: not any(is_alive(self.pids[name]) for name in names))

    @property
    def alive(self) -> set[str]:
        return {name for name, pid in self.pids.items() if is_alive(pid)}

    def close(self) -> None:
        for pid in (self.process.pid, *self.pids.values()):
            if is_alive(pid):
                os.kill(pid, signal.SIGKILL)
        self.process.wait(100)
        for stream in (self.process.stdin, self.process.stdout):
            assert stream is not None
            stream.close()


@pytest.fixture
def isolated() -> Iterator[Isolated]:
    made = Isolated()
    yield made
    made.close()


@pytest.fixture
def unread() -> Iterator[Isolated]:
    """Its stderr is a full pipe that no process reads, like a terminal that Ctrl-S holds."""
    reader, writer = os.pipe()
    os.set_blocking(writer, False)
    with suppress(BlockingIOError):
        while True:
            os.write(writer, bytes(4096))
    os.set_blocking(writer, True)
    made = Isolated(writer)
    os.close(writer)
    yield made
    made.close()
    os.close(reader)


EXCLUSIVE = {"exclusive", "exclusive_child"}
SPARK = {"host", "jvm", "worker", "daemon", "program"}
"""The last two are below the guard only."""
OTHERS = {"guard", "main", "template", "shared", "shared_child"}


def test_a_frozen_main_process_does_not_outlive_the_deadline(isolated: Isolated) -> None:
    isolated.mark("exclusive")
    assert isolated.alive == EXCLUSIVE | SPARK | OTHERS
    deadline = isolated.hold(0.5)
    isolated.freeze()
    isolated.wait_dead(*EXCLUSIVE, *SPARK)
    assert boottime() >= deadline
    assert isolated.alive == OTHERS


def test_a_main_process_that_moves_outputs_is_ended_itself_and_begins_again(isolated: Isolated) -> None:
    """R27: it may stand frozen before its next file, so nothing of it is left when others may move."""
    isolated.mark("main")
    deadline = isolated.hold(0.5)
    isolated.freeze()
    another = isolated.next_life()
    assert boottime() >= deadline
    assert isolated.alive == set()
    assert isolated.process.poll() is None, "whoever has started it sees no end"
    isolated.pids = another
    assert isolated.alive == EXCLUSIVE | SPARK | OTHERS


@pytest.mark.parametrize("main", [signal.SIGSTOP, signal.SIGKILL, signal.SIGCONT], ids=["frozen", "killed", "awake"])
def test_a_guard_that_is_frozen_does_not_outlive_the_deadline(isolated: Isolated, main: signal.Signals) -> None:
    """The watcher finds that it says nothing, and ends everything in its place."""
    isolated.mark("exclusive")
    first = isolated.pids["guard"]
    deadline = isolated.hold(0.5)
    os.kill(first, signal.SIGSTOP)
    os.kill(isolated.pids["main"], main)
    another = isolated.next_life()
    assert boottime() >= deadline
    assert isolated.alive == set()
    isolated.pids = another
    assert {"main", *EXCLUSIVE} <= isolated.alive
    assert another["guard"] != first


@pytest.mark.parametrize("frozen", ["guard", "main"])
def test_what_nobody_reads_holds_up_no_deadline(unread: Isolated, frozen: str) -> None:
    """Neither the watcher's, which ends a frozen guard, nor the guard's own."""
    unread.mark("exclusive" if frozen == "guard" else "main")
    unread.hold(0.5)
    os.kill(unread.pids[frozen], signal.SIGSTOP)
    another = unread.next_life()
    assert unread.alive == set()
    unread.pids = another


def test_a_guard_that_answers_is_left_alone_however_long_nobody_extends_its_deadline(isolated: Isolated) -> None:
    isolated.hold(0.1)
    guard = isolated.pids["guard"]
    begun = _switches(guard)
    wait_until(lambda: _switches(guard) >= begun + 4)  # it was asked again and again
    assert isolated.alive == EXCLUSIVE | SPARK | OTHERS


def _switches(pid: int) -> int:
    """How often it has slept."""
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("voluntary_ctxt_switches"))


def test_a_main_process_that_moves_nothing_any_more_is_spared(isolated: Isolated) -> None:
    isolated.mark("main")
    isolated.tell("unmark", isolated.pids["main"])
    isolated.hold(-1.0)
    isolated.mark("exclusive")
    isolated.wait_dead(*EXCLUSIVE, *SPARK)
    assert isolated.alive == OTHERS


def test_a_later_deadline_counts_also_when_it_was_given_out_of_turn(isolated: Isolated) -> None:
    isolated.mark("exclusive")
    first = isolated.hold(0.3)
    second = isolated.hold(0.9)
    isolated.hold(0.1)
    isolated.freeze()
    isolated.wait_dead(*EXCLUSIVE)
    assert boottime() >= second > first


def test_without_an_exclusive_task_nobody_is_killed(isolated: Isolated) -> None:
    isolated.mark("exclusive")
    isolated.tell("unmark", isolated.pids["exclusive"])
    isolated.hold(-1.0)
    assert isolated.alive == EXCLUSIVE | SPARK | OTHERS
    # The next process that it kills shows that the guard has looked, and has spared the others.
    isolated.mark("shared")
    isolated.wait_dead("shared", "shared_child", *SPARK)
    assert isolated.alive >= EXCLUSIVE


def test_a_process_that_is_marked_after_the_deadline_is_killed_at_once(isolated: Isolated) -> None:
    isolated.hold(-1.0)
    isolated.mark("exclusive")
    isolated.wait_dead(*EXCLUSIVE, *SPARK)
    assert isolated.alive == OTHERS
    isolated.hold(60.0)
    isolated.mark("shared")
    assert "shared" in isolated.alive


def test_spark_is_killed_for_a_session_whose_slot_process_has_gone(isolated: Isolated) -> None:
    os.kill(isolated.pids["exclusive"], signal.SIGKILL)
    isolated.mark("exclusive")
    isolated.hold(-1.0)
    isolated.wait_dead(*SPARK)
    assert isolated.alive >= OTHERS


def test_only_processes_of_this_task_manager_are_killed(isolated: Isolated) -> None:
    with subprocess.Popen(["sleep", "60"]) as foreign:
        isolated.tell("mark", foreign.pid)
        isolated.tell("spark", foreign.pid)
        isolated.mark("exclusive")
        isolated.hold(-1.0)
        isolated.wait_dead(*EXCLUSIVE)
        assert foreign.poll() is None
        foreign.kill()


@pytest.mark.parametrize("request_", ["hold never", "exclusive 1 2", "exclusive x", "shared -", "what"])
def test_what_is_no_request_is_refused(request_: str) -> None:
    main = f"""
import os
from runtime.taskexecutor.guard.channel import GuardChannel
channel = GuardChannel.from_environment(os.environ)
channel.control.sendall(b"{request_}\\n")
assert channel.control.recv(1000).startswith(b"refused {request_}"), "no such request"
channel.listen("127.0.0.1")
"""
    done = subprocess.run([sys.executable, "-c", GUARD, main], cwd=ROOT, timeout=30, check=False)
    assert done.returncode == 0
