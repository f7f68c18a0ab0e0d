"""Nothing of a TaskManager outlives the proof of its death, whichever of its processes is killed (R13, R29, R30)."""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import signal
import stat
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import pytest

from runtime.common.ids import Incarnation
from runtime.heartbeat.proof_of_death import GuardDialler
from runtime.system.linux import children_of, is_alive
from runtime.taskexecutor.guard.cgroup import Cgroup
from runtime.taskexecutor.guard.mark import carriers, new_mark
from runtime.taskexecutor.guard.records import boot_id, reaped_lives, records_directory
from tests.kit.host.levels import reached

pytestmark = pytest.mark.process

ROOT = Path(__file__).resolve().parents[2]
NOBODY = 65534
PROGRAM = """
import os, sys
sys.path.insert(0, ROOT)
from runtime.taskexecutor.guard.channel import CONTROL_VARIABLE
from runtime.taskexecutor.guard.watcher import run_guard
if CONTROL_VARIABLE in os.environ:
    exec(sys.argv[1])
else:
    run_guard([sys.executable, *sys.orig_argv[1:]], os.environ)
""".replace("ROOT", repr(str(ROOT)))
# A main process, a template below it, a slot process below that, and what users' code starts: a child, a daemon
# (setsid, two forks), and another one that has executed a program without any environment. They write while they live.
MAIN = """
import asyncio, json, os, signal, subprocess, sys, time
from runtime.taskexecutor.guard.channel import GuardChannel
from runtime.taskexecutor.guard.connection import GuardConnection
from runtime.system.linux import become_subreaper, die_with_parent

WRITE = "import sys, time\\nwhile True:\\n    open(sys.argv[1], 'a').write('x')\\n    time.sleep(0.01)\\n"

def daemon(name, empty):
    reader, writer = os.pipe()
    middle = os.fork()
    if middle == 0:
        os.setsid()
        pid = os.fork()
        if pid:
            os.write(writer, str(pid).encode())
            os._exit(0)
        os.close(writer)
        if empty:
            os.environ.clear()
        os.execve(sys.executable, [sys.executable, "-c", WRITE, name], dict(os.environ))
    os.waitpid(middle, 0)
    return int(os.read(reader, 100))

def fork(run):
    reader, writer = os.pipe()
    parent = os.getpid()
    pid = os.fork()
    if pid == 0:
        os.setsid()
        die_with_parent(parent)
        become_subreaper()
        os.write(writer, json.dumps(run()).encode())
        while True: signal.pause()
    os.close(writer)
    return pid, json.loads(os.read(reader, 1000))

def user_code():
    child = subprocess.Popen([sys.executable, "-c", WRITE, "child"]).pid
    return {"child": child, "daemon": daemon("daemon", False), "unmarked": daemon("unmarked", True)}

os.chdir(os.environ["WORK"])
channel = GuardChannel.from_environment(os.environ)
port = channel.listen("127.0.0.1")
template, (slot, users) = fork(lambda: fork(user_code))

async def main():
    guard = GuardConnection(channel.control)
    guard.open()
    await guard.state_end(600.0)
    print(json.dumps({"port": port, "incarnation": channel.incarnation, "main": os.getpid(), "guard": os.getppid(),
                      "template": template, "slot": slot, "users": users,
                      "earlier": channel.earlier_lives(age=0.0)}), flush=True)
    loop = asyncio.get_running_loop()
    said = asyncio.Queue()
    loop.add_reader(0, lambda: said.put_nowait(os.read(0, 100)))
    while await said.get():
        os.waitpid(template, 0)
        print(json.dumps(await guard.sweep()), flush=True)

asyncio.run(main())
"""


@dataclass
class Started:
    process: subprocess.Popen[str]
    run: Path
    said: dict[str, int]
    incarnation: Incarnation
    users: dict[str, int]
    earlier: list[str]

    @property
    def everybody(self) -> list[int]:
        return [self.said[name] for name in ("main", "template", "slot")] + list(self.users.values())

    def pid(self, whom: str) -> int:
        return self.process.pid if whom == "watcher" else self.said[whom]

    def kill(self, *whom: str) -> None:
        """At once: none of them can act on the death of another."""
        for name in whom:
            os.kill(self.pid(name), signal.SIGSTOP)
        for name in whom:
            with suppress(ProcessLookupError):  # its parent-death signal was quicker
                os.kill(self.pid(name), signal.SIGKILL)

    def is_proved_dead(self) -> bool:
        dialler = GuardDialler(timeout=5.0)
        return asyncio.run(dialler.prove_death(f"127.0.0.1:{self.said['port']}", self.incarnation, boot_id()))

    @property
    def record(self) -> dict[str, str]:
        path = self.run / "guards" / self.incarnation
        found: dict[str, str] = json.loads(path.read_text().splitlines()[0])
        return found

    def wait_users(self) -> None:
        """Each of them has written."""
        reached(lambda: all((self.run / name).exists() for name in self.users), "users' processes write")


def interpreter_of_nobody() -> str:
    """A Python that another user may execute: this one may lie in a home directory."""
    for name in (sys.executable, "/usr/bin/python3.11", "/usr/bin/python3", "/usr/local/bin/python3"):
        path = Path(name)
        if path.exists() and all(parent.stat().st_mode & stat.S_IXOTH for parent in path.resolve().parents):
            return name
    pytest.skip("no Python here that another user may execute")


class Box:
    """Starts guards in one run directory, as root with a cgroup, or as a user without one."""

    def __init__(self, run: Path, *, has_cgroup: bool) -> None:
        self.run = run
        self.started: list[Started] = []
        self._has_cgroup = has_cgroup
        self._is_other = not has_cgroup and os.getuid() == 0
        self._python = interpreter_of_nobody() if self._is_other else sys.executable
        run.mkdir()
        if self._is_other:
            os.chown(run, NOBODY, NOBODY)
            for parent in run.parents[:-2]:
                parent.chmod(parent.stat().st_mode | stat.S_IXOTH)

    def start(self) -> Started:
        process = subprocess.Popen(
            [self._python, "-B", "-c", PROGRAM, MAIN],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            cwd="/",
            env={"FLINKLIKE_RUN_DIR": str(self.run), "WORK": str(self.run), "PATH": os.environ["PATH"]},
            user=NOBODY if self._is_other else None,
            group=NOBODY if self._is_other else None,
            extra_groups=[] if self._is_other else None,
        )
        assert process.stdout is not None
        said = json.loads(process.stdout.readline())
        users, earlier = said.pop("users"), said.pop("earlier")
        made = Started(process, self.run, said, Incarnation(said.pop("incarnation")), users, earlier)
        self.started.append(made)
        assert bool(made.record["cgroup"]) is self._has_cgroup
        made.wait_users()
        return made

    def stop(self) -> None:
        shutil.rmtree(self.run / "guards", ignore_errors=True)
        for one in self.started:
            for pid in (one.process.pid, one.said["guard"], *one.everybody):
                if is_alive(pid):
                    os.kill(pid, signal.SIGKILL)
            one.process.wait(100)
            for stream in (one.process.stdin, one.process.stdout):
                assert stream is not None
                stream.close()


@pytest.fixture(params=["cgroup", "no cgroup"])
def box(request: pytest.FixtureRequest) -> Iterator[Box]:
    has_cgroup = request.param == "cgroup"
    if has_cgroup:
        probe = Cgroup.make(f"flinklike-test-{os.getpid()}")
        if probe is None:
            pytest.skip("no cgroup v2 can be made here")
        probe.remove()
    # Not in pytest's directory, which another run of pytest takes from other users as it starts.
    with tempfile.TemporaryDirectory(prefix="flinklike-reaping-") as directory:
        made = Box(Path(directory) / "run", has_cgroup=has_cgroup)
        yield made
        made.stop()


@pytest.mark.parametrize(
    "whom",
    [("main",), ("guard",), ("watcher",), ("guard", "main"), ("watcher", "main"), ("template",), ("slot", "guard")],
    ids=" and ".join,
)
def test_the_proof_comes_when_nothing_is_left(box: Box, whom: tuple[str, ...]) -> None:
    started = box.start()
    assert not started.is_proved_dead()
    started.kill(*whom)
    if whom == ("template",):
        started.kill("main")

    def is_proved() -> bool:
        if not started.is_proved_dead():
            return False
        assert not [pid for pid in started.everybody if is_alive(pid)], "proved, and it lives"
        return True

    reached(is_proved, "its death is proved")
    sizes = {name: (box.run / name).stat().st_size for name in started.users}
    assert reaped_lives(box.run / "guards") == [started.incarnation]
    assert started.process.wait(100) != 0
    assert sizes == {name: (box.run / name).stat().st_size for name in started.users}, "nobody writes any more"


def test_both_guards_killed_at_once_prove_nothing_before_the_next_start(box: Box) -> None:
    started = box.start()
    started.kill("watcher", "guard")
    reached(lambda: not is_alive(started.said["main"]), "the parent-death signal ends the main process")
    started.process.wait(100)
    assert is_alive(started.users["daemon"]), "nobody was left to end it"
    assert not started.is_proved_dead(), "the refusal of a killed guard says nothing"
    assert reaped_lives(box.run / "guards") == []
    following = box.start()
    assert following.earlier == [started.incarnation]
    assert not [pid for pid in started.everybody if is_alive(pid)]


def test_a_start_leaves_those_alone_that_live(box: Box) -> None:
    first = box.start()
    second = box.start()
    assert second.earlier == []
    assert all(map(is_alive, first.everybody))
    assert not first.is_proved_dead()


def test_the_end_is_stated_for_as_long_as_somebody_may_ask(box: Box) -> None:
    started = box.start()
    started.kill("main")
    started.process.wait(100)
    for _ in range(3):
        assert started.is_proved_dead()
    (box.run / "guards" / started.incarnation).unlink()
    reached(lambda: not started.is_proved_dead(), "it is stated no more")


def test_a_sweep_answers_when_nothing_of_a_dead_template_is_left(box: Box) -> None:  # R29
    started = box.start()
    assert started.process.stdin is not None
    assert started.process.stdout is not None
    started.kill("template")
    started.process.stdin.write("sweep\n")
    started.process.stdin.flush()
    assert json.loads(started.process.stdout.readline()) == ""
    assert not [pid for name, pid in started.users.items() if is_alive(pid)]
    assert not is_alive(started.said["slot"])
    assert is_alive(started.said["main"])
    assert children_of(started.said["guard"]) == [started.said["main"]]


def test_sigquit_ends_everything_at_once_and_by_the_rules(box: Box) -> None:
    """What `taskmanager.sh stop` sends when its patience is over."""
    started = box.start()
    os.kill(started.said["main"], signal.SIGSTOP)
    os.kill(started.process.pid, signal.SIGQUIT)
    assert started.process.wait(100) == 128 + signal.SIGKILL
    assert started.is_proved_dead()
    assert not [pid for pid in started.everybody if is_alive(pid)]


def test_it_does_so_where_a_shell_has_started_it_in_the_background(box: Box) -> None:
    before = signal.signal(signal.SIGQUIT, signal.SIG_IGN)
    try:
        started = box.start()
    finally:
        signal.signal(signal.SIGQUIT, before)
    os.kill(started.process.pid, signal.SIGQUIT)
    assert started.process.wait(100) == 128 + signal.SIGKILL


def written_by(box: Box, change: Callable[[dict[str, object]], None]) -> list[str]:
    """What a start says was reaped, after the record of killed guards was changed."""
    started = box.start()
    started.kill("watcher", "guard")
    started.process.wait(100)
    path = box.run / "guards" / started.incarnation
    fields = json.loads(path.read_text())
    change(fields)
    path.write_text(json.dumps(fields) + "\n")
    return box.start().earlier


def test_what_cannot_be_read_or_seen_from_here_is_not_said_to_be_reaped(box: Box) -> None:  # R31
    assert written_by(box, dict.clear) == []
    assert written_by(box, lambda fields: fields.update(host="another")) == []
    assert written_by(box, lambda fields: fields.update(pid_namespace="pid:[1]")) == []
    assert written_by(box, lambda fields: fields.update(cgroup="", mark=0)) == []


def test_after_a_reboot_nothing_is_left(box: Box) -> None:
    assert len(written_by(box, lambda fields: fields.update(boot_id="another"))) == 1


def test_a_container_ends_with_its_first_process(box: Box) -> None:
    assert len(written_by(box, lambda fields: fields.update(pid_namespace="pid:[1]", ends_namespace=True))) == 1


def test_the_mark_survives_what_users_do_to_their_environment() -> None:
    mark = new_mark()
    code = (
        "import os, resource, sys\n"
        f"resource.setrlimit(resource.RLIMIT_RTTIME, ({mark}, {mark}))\n"
        "if os.fork() == 0:\n    os.setsid()\n    if os.fork() == 0:\n"
        "        os.environ.clear(); os.execve('/bin/sleep', ['sleep', '600'], {})\n    os._exit(0)\n"
        "os.wait()\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
    [daemon] = carriers(mark)
    assert carriers(mark + 1) == []
    os.kill(daemon, signal.SIGKILL)
    reached(lambda: carriers(mark) == [], "it is gone")


def test_the_records_are_in_the_run_directory() -> None:
    from runtime.config.layout import Layout

    for environment in ({}, {"FLINKLIKE_HOME": "/home"}, {"FLINKLIKE_HOME": "/home", "FLINKLIKE_RUN_DIR": "/run/x"}):
        assert records_directory(environment) == Layout.from_environment(environment).guards
