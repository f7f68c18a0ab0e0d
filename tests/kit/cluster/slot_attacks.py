"""Jobs on a cluster whose slots are users of their own: one that has something to lose, and one that is after it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from tests.kit.cluster.script_cluster import ScriptCluster
from tests.kit.host.levels import reached

VICTIM = """
import json, os, sys, time
from pathlib import Path

Path("private.txt").write_text("of the victim")
gate = Path(sys.argv[1])
told = {"pid": os.getpid(), "uid": os.getuid(), "gid": os.getgid(), "groups": os.getgroups(), "directory": os.getcwd()}
told |= {"template": os.getppid(), "home": os.environ["HOME"]}
gate.with_suffix(".draft").write_text(json.dumps(told))
gate.with_suffix(".draft").rename(gate.with_suffix(".begun"))
while not gate.exists():
    time.sleep(0.05)
"""
ATTACK = """
import ctypes, json, os, subprocess, sys, time

libc = ctypes.CDLL(None, use_errno=True)
done, tried = [], 0


def attempt(what, act):
    global tried
    tried += 1
    try:
        act()
    except OSError:
        return
    done.append(what)


def something(path):
    if not open(path, "rb").read(1):
        raise OSError(path)  # of a thread of the kernel, for instance


def seize(pid):
    if libc.ptrace(0x4206, pid, 0, 0) != 0:
        raise OSError(ctypes.get_errno(), "ptrace")
    libc.ptrace(17, pid, 0, 0)


def against(pid):
    attempt(f"signal {pid}", lambda: os.kill(pid, 0))
    attempt(f"trace {pid}", lambda: seize(pid))
    attempt(f"memory {pid}", lambda: open(f"/proc/{pid}/mem", "rb"))
    for name in ("environ", "maps"):
        attempt(f"{name} {pid}", lambda: something(f"/proc/{pid}/{name}"))
    attempt(f"descriptors {pid}", lambda: os.listdir(f"/proc/{pid}/fd"))
    for name in ("cwd", "root", "exe"):
        attempt(f"{name} {pid}", lambda: os.readlink(f"/proc/{pid}/{name}"))


own = subprocess.Popen(["sleep", "1000"])
while not open(f"/proc/{own.pid}/environ", "rb").read(1):
    time.sleep(0.01)  # the kernel has not put it there yet
against(own.pid)
can = len(done)
own.kill()
own.wait()
done, tried = [], 0
mine = {os.getpid()}
spares_own_user = sys.argv[1:2] == ["--spare-own-user"]
for name in filter(str.isdigit, os.listdir("/proc")):
    try:
        is_spared = int(name) in mine or spares_own_user and os.stat("/proc/" + name).st_uid == os.getuid()
    except FileNotFoundError:
        continue
    if not is_spared:
        against(int(name))
for path in sys.argv[1 + spares_own_user:]:
    attempt(f"read {path}", lambda: open(path, "rb").read(1))
    attempt(f"list {path}", lambda: os.listdir(path))
    attempt(f"write {path}", lambda: open(path, "ab"))
    attempt(f"write below {path}", lambda: open(path + "/new", "wb"))
    attempt(f"rename {path}", lambda: os.rename(path, path + ".away"))
for number in (0, os.getuid() + 1):
    attempt(f"become {number}", lambda: os.setuid(number))
    attempt(f"join {number}", lambda: os.setgid(number))
    attempt(f"join groups {number}", lambda: os.setgroups([number]))
print(json.dumps({"uid": os.getuid(), "own": can, "tried": tried, "done": done}))
"""


class Victim:
    """A job that runs until its gate is there."""

    def __init__(self, cluster: ScriptCluster, programs: Path, name: str, program: str = "victim.py") -> None:
        self.gate = cluster.run / "shared" / name
        done = cluster.cli("run", "--detached", "--json", program, str(self.gate), cwd=programs)
        assert done.returncode == 0, done.stderr
        self.job_id: str = json.loads(done.stdout)["job_id"]
        reached(self.gate.with_suffix(".begun").exists, "the victim runs", timeout=600)
        self.told: dict[str, Any] = json.loads(self.gate.with_suffix(".begun").read_text())


def printed(cluster: ScriptCluster, programs: Path, *arguments: str) -> Any:
    done = cluster.cli("run", *arguments, cwd=programs, timeout=600)
    assert done.returncode == 0, done.stdout + done.stderr
    return json.loads(next(line for line in done.stdout.splitlines() if line.startswith("{")))
