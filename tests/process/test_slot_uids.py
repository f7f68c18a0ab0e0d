"""R50 on a real cluster: what a task of one job attempts against others, the TaskManager and the cluster is refused."""

from __future__ import annotations

import ctypes
import json
import platform
import re
import shutil
import zipfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.kit.cluster.open_python import OpenPythonCluster, why_not
from tests.kit.cluster.script_cluster import ScriptCluster
from tests.kit.cluster.slot_attacks import ATTACK, VICTIM, Victim, printed
from tests.kit.host.levels import reached
from tests.kit.strangers.hostile_archives import compressed, tar_header

pytestmark = [
    pytest.mark.process,
    pytest.mark.etcd,
    pytest.mark.skipif(bool(why_not()), reason=why_not() or "it can be tried here"),
]

FIRST, LAST = 23000, 23099
OPTIONS = {
    "high-availability.type": "etcd",
    "taskmanager.spark.enabled": "false",
    "taskmanager.numberOfTaskSlots": "3",
    "taskmanager.slots.uids": f"{FIRST}-{LAST}",
    "taskmanager.slots.max-processes": "64",
    "taskmanager.slots.cgroups": "auto",
}
BOMB = """
import os, time

children = []
try:
    for _ in range(1000):
        pid = os.fork()
        if pid == 0:
            time.sleep(100)
            os._exit(0)
        children.append(pid)
except OSError as error:
    print("stopped at", len(children), error)
"""


PIPELINE = """
from pathlib import Path
import os, time

from airflow_flinklike import Pipeline


def total(ctx, values):
    Path(GATE + ".begun").touch()
    while not Path(GATE).exists():
        time.sleep(0.05)
    return [sorted(len(value) for value in values), os.getuid()]


pipeline = Pipeline("exchanged")
many = pipeline.source("many", lambda ctx: "x" * 200_000, parallelism=2)
many.gather().apply("total", total)
"""
COMMITS = """
from airflow_flinklike import Pipeline

pipeline = Pipeline("commits")
pipeline.source("writer", lambda ctx: ctx.output_path(BASE))
"""

FILES = """
import json, os, stat

found = []
for name in os.listdir("/proc/self/fd"):
    try:
        if stat.S_ISREG(os.fstat(int(name)).st_mode):
            found.append(os.readlink("/proc/self/fd/" + name))
    except OSError:  # the listing's own
        continue
print(json.dumps({"files": sorted(found)}))
"""


ARCHIVES = """
import json, os
from pathlib import Path

found = {}
for name in ("zip", "gz", "zst"):
    path = Path("of-" + name, "deep", "text")
    status = path.stat()
    found[name] = [path.read_text(), status.st_uid, status.st_gid == os.getgid(), oct(status.st_mode & 0o7777)]
    Path("of-" + name, "deep", "made").write_text("in a directory of its job")
print(json.dumps(found))
"""


LEFT = """
import ctypes, json, os

libc = ctypes.CDLL(None, use_errno=True)
keyctl, add_key = {"x86_64": (250, 248), "aarch64": (219, 217)}[os.uname().machine]
search, keyrings = 10, {"session": -3, "user": -4, "user's session": -5}
key = 5_000_000 + os.getuid()
found = [f"{name} in {where}" for where, ring in keyrings.items() for name in ("of the starter", "left")
         if libc.syscall(keyctl, search, ring, b"user", name.encode(), 0) >= 0]
kinds = {"shared memory": lambda *how: libc.shmget(key, *how), "semaphores": lambda *how: libc.semget(key, *how),
         "messages": lambda *how: libc.msgget(key, how[-1])}
found += [name for name, get in kinds.items() if get(0, 0) >= 0]
made = [get(1, 0o1600) >= 0 for get in kinds.values()]
made += [libc.syscall(add_key, b"user", b"left", b"x", 1, ring) >= 0 for ring in (-4, -5)]
made.append(libc.mq_open(b"/left", os.O_CREAT | os.O_RDWR, 0o600, None) < 0)
print(json.dumps({"uid": os.getuid(), "found": found, "made": made}))
"""


def give_key() -> None:
    """To the session in which the cluster is started, as a login does."""
    keyctl, add_key = {"x86_64": (250, 248), "aarch64": (219, 217)}[platform.machine()]
    library = ctypes.CDLL(None)
    assert library.syscall(keyctl, 1, None) >= 0
    ring = library.syscall(keyctl, 0, -3, 0)
    key = library.syscall(add_key, b"user", b"of the starter", b"x", 1, ring)
    assert key >= 0
    for one in (ring, key):
        assert library.syscall(keyctl, 5, one, ctypes.c_uint(0x3F3F3F3F)) == 0


@pytest.fixture(scope="module")
def cluster() -> Iterator[OpenPythonCluster]:
    give_key()
    with OpenPythonCluster(OPTIONS, job_masters=1) as made:
        (made.run / "shared").mkdir()
        (made.run / "shared").chmod(0o777)
        yield made


@pytest.fixture(scope="module")
def programs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("programs")
    for name, text in (("victim.py", VICTIM), ("attack.py", ATTACK), ("bomb.py", BOMB), ("left.py", LEFT)):
        (directory / name).write_text(text)
    return directory


@pytest.fixture
def victim(cluster: ScriptCluster, programs: Path, request: pytest.FixtureRequest) -> Iterator[Victim]:
    made = Victim(cluster, programs, request.node.name)
    yield made
    made.gate.touch()


def test_a_task_has_a_user_and_its_job_a_group(victim: Victim) -> None:
    told = victim.told
    assert FIRST < told["uid"] <= FIRST + 3
    assert FIRST + 3 < told["gid"] <= LAST
    assert told["groups"] == [FIRST]
    assert Path(told["home"]) == Path(told["directory"]).parent / "home"


def test_what_is_not_enforced_is_shown(cluster: ScriptCluster) -> None:
    (one,) = json.loads(cluster.cli("taskmanagers", "--json").stdout)["taskmanagers"]
    assert "users" not in one["not-enforced"]
    assert "cpu" in one["not-enforced"], "nobody has asked for a limit"
    assert "not enforced" in cluster.cli("taskmanagers").stdout


def test_all_that_a_task_attempts_against_others_is_refused(
    cluster: ScriptCluster, programs: Path, victim: Victim
) -> None:
    run = cluster.run / "run"
    work = Path(victim.told["directory"])
    secrets = [run / "token", run / "cluster-key", run / "etcd-tls", run / "etcd", run / "storage", run / "guards"]
    others = [
        run,
        run / "pid",
        run / "log",
        run / "work",
        run / "exchange",
        *run.glob("log/*.log"),
        *run.glob("etcd-tls/*"),
    ]
    logs = [*run.glob("log/attempts/*"), *run.glob("log/attempts/*/*"), *run.glob("log/attempts/*/*/*")]
    files = [work.parent, work, work / "private.txt", work / "victim.py", work.parent.parent, work.parent.parent.parent]
    assert all(path.exists() for path in (*secrets, *files))
    assert any(victim.job_id in str(path) and path.name == "stdout" for path in logs)
    paths = [str(path) for path in (*secrets, *others, *logs, *files)]
    found = printed(cluster, programs, "attack.py", *paths)
    assert found["own"] == 9, "the attempts are real"
    assert found["uid"] != victim.told["uid"]
    assert found["tried"] > 9 * 10 + 5 * len(paths)
    assert found["done"] == []


def test_who_comes_next_in_the_slot_finds_nothing_of_who_was_there(cluster: ScriptCluster, programs: Path) -> None:
    victims = [Victim(cluster, programs, f"next-{number}") for number in range(3)]
    for one in victims:
        one.gate.touch()
    for one in victims:
        reached(lambda: "FINISHED" in cluster.cli("info", one.job_id).stdout, "it has ended")  # noqa: B023 - called here
    logs = [path for one in victims for path in (cluster.run / "run").glob(f"log/attempts/*/{one.job_id}*/*")]
    assert len(logs) == 9
    found = printed(cluster, programs, "attack.py", *map(str, logs))
    assert found["uid"] in {one.told["uid"] for one in victims}
    assert found["done"] == []


def test_what_the_kernel_keeps_for_a_user_is_no_others(cluster: ScriptCluster, programs: Path) -> None:
    """Memory, semaphores and messages of System V, keys, queues (none are made); nor the cluster's keys."""
    found = [printed(cluster, programs, "left.py") for _ in range(4)]
    assert len({one["uid"] for one in found}) < 4, "somebody came second"
    assert [one["made"] for one in found] == [[True] * 6] * 4, "the attempts are real"
    assert [one["found"] for one in found] == [[]] * 4


def test_partitions_are_read_by_tasks_of_their_job_only(cluster: ScriptCluster, programs: Path) -> None:
    gate = cluster.run / "shared" / "exchanged"
    (programs / "exchanged.py").write_text(PIPELINE.replace("GATE", repr(str(gate))))
    done = cluster.cli("run", "--detached", "--json", "exchanged.py:pipeline", cwd=programs)
    assert done.returncode == 0, done.stderr
    job_id = json.loads(done.stdout)["job_id"]
    reached(lambda: Path(f"{gate}.begun").exists(), "the consumer runs")
    files = [*(cluster.run / "run").glob(f"exchange/*/{job_id}-*/*/value.json")]
    assert len(files) == 2
    named = [path for path in (*files[0].parents,) if path.is_relative_to(cluster.run / "run" / "exchange")]
    by_job = files[0].parents[1]
    guesses = [*named[2:], by_job.with_name(job_id), by_job.with_name(f"{job_id}-{32 * '0'}")]
    assert printed(cluster, programs, "attack.py", *map(str, guesses))["done"] == []
    gate.touch()
    reached(lambda: "FINISHED" in cluster.cli("info", job_id).stdout, "it has ended")
    reached(lambda: not by_job.exists(), "its partitions are deleted")


@pytest.mark.parametrize("base", ["/tmp/somewhere", "local:///tmp/somewhere"])
def test_root_moves_no_files_of_a_task(cluster: ScriptCluster, programs: Path, base: str) -> None:
    (programs / "commits.py").write_text(COMMITS.replace("BASE", repr(base)))
    done = cluster.cli("run", "commits.py:pipeline", cwd=programs)
    assert done.returncode == 1
    assert "root would move a task's files" in done.stdout + done.stderr


def test_archives_are_unpacked_for_tasks(cluster: ScriptCluster, programs: Path) -> None:
    """R42: by a user of its own; the files are root's and the job's in the end."""
    (programs / "archives.py").write_text(ARCHIVES)
    with zipfile.ZipFile(programs / "x.zip", "w") as archive:
        archive.writestr("deep/text", "of zip")
    for name in ("gz", "zst"):
        text = f"of {name}".encode()
        pieces = [tar_header("deep/text", len(text)), text.ljust(512, b"\0"), bytes(1024)]
        compressed(programs / f"x.tar.{name}", iter(pieces))
    options = ("--archives", "x.zip#of-zip,x.tar.gz#of-gz,x.tar.zst#of-zst")
    found = printed(cluster, programs, *options, "archives.py")
    assert found == {name: [f"of {name}", 0, True, "0o660"] for name in ("zip", "gz", "zst")}


def test_a_task_has_no_file_but_its_logs(cluster: ScriptCluster, programs: Path) -> None:
    (programs / "files.py").write_text(FILES)
    for _ in range(2):
        found = printed(cluster, programs, "files.py")
        logs = [path for path in found["files"] if "memfd:stacks" not in path]  # its own stacks, which it writes itself
        assert [Path(path).name for path in logs] == ["stderr", "stdout"]
        assert all(Path(path).is_relative_to(cluster.run / "run" / "log" / "attempts") for path in logs)


def test_a_fork_bomb_is_bounded(cluster: ScriptCluster, programs: Path) -> None:
    done = cluster.cli("run", "bomb.py", cwd=programs)
    stopped = next(line for line in done.stdout.splitlines() if line.startswith("stopped at"))
    assert int(stopped.split()[2]) < 64
    assert printed(cluster, programs, "attack.py")["done"] == []


def test_a_second_task_manager_takes_no_user_of_the_first(cluster: OpenPythonCluster) -> None:
    done = cluster.script("taskmanager.sh", "start", *cluster.dynamic)
    assert done.returncode != 0
    assert "give each one a range of its own" in done.stdout + done.stderr


def test_an_exchange_that_others_cannot_enter_is_refused() -> None:
    made = OpenPythonCluster(OPTIONS, job_masters=1)
    try:
        closed = made.run / "shared"
        closed.mkdir(mode=0o700)
        done = made.script("start-cluster.sh", *made.dynamic, "-D", f"exchange.dir={closed}")
        assert done.returncode != 0
        assert re.search(rf"cannot run tasks here: {closed} is closed to it.* exchange.dir", done.stdout + done.stderr)
    finally:
        made.stop()
        shutil.rmtree(made.run)


def test_where_others_cannot_run_python_it_says_so() -> None:
    made = OpenPythonCluster(OPTIONS, job_masters=1)
    try:
        made.run.chmod(0o700)
        done = made.script("start-cluster.sh", *made.dynamic)
        assert done.returncode != 0
        said = done.stdout + done.stderr
        assert f"user {FIRST + 1} of taskmanager.slots.uids cannot run tasks here" in said
        assert f"{made.run} is closed to it" in said
        logs = "".join(path.read_text() for path in (made.run / "run" / "log").glob("*taskmanager*.log"))
        pids = set(re.findall(r"TaskManager .* starts \(pid (\d+),", logs))
        assert pids, logs
        groups = {path.name.rpartition("-")[2] for path in Path("/sys/fs/cgroup").glob("*/flinklike-slots-*")}
        assert not pids & groups, "groups of a process that did not come up"
    finally:
        made.stop()
        shutil.rmtree(made.run)
