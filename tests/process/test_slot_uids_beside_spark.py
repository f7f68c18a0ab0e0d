"""R50 beside Spark: its JVM is a user of its own, jobs work as ever, and what one attempts through Spark is refused."""

from __future__ import annotations

import json
import os
import pwd
import signal
import zipfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.kit.cluster import beside_spark
from tests.kit.cluster.open_python import OpenPythonCluster, why_not
from tests.kit.cluster.slot_attacks import ATTACK, VICTIM, Victim, printed
from tests.kit.host.levels import reached
from tests.process.conftest import SPARK

FIRST, LAST = 23200, 23299
ACCOUNTS = beside_spark.spare_accounts(range(FIRST, LAST + 1))[:2]
WHY_NOT = why_not() or ("" if len(ACCOUNTS) == 2 else "no two accounts that nothing runs as")
pytestmark = [
    pytest.mark.process,
    pytest.mark.etcd,
    pytest.mark.spark,
    pytest.mark.timeout(1200),
    pytest.mark.skipif(bool(WHY_NOT), reason=WHY_NOT or "it can be tried here"),
]
PATIENCE = 600
OPTIONS = {
    **SPARK,
    "high-availability.type": "etcd",
    "taskmanager.numberOfTaskSlots": "3",
    "taskmanager.memory.task.size": "960 mb",
    "taskmanager.slots.uids": f"{FIRST}-{LAST}",
    "taskmanager.spark.user": ",".join(ACCOUNTS),
}


@pytest.fixture(scope="module")
def cluster() -> Iterator[OpenPythonCluster]:
    made = OpenPythonCluster(OPTIONS, job_masters=1)
    lake, secrets = made.run / "lake", made.run / "secrets"
    made.add_options({**beside_spark.make_lake(lake), "taskmanager.secrets.directory": str(secrets)})
    made.environment["PYTHONPATH"] = str(lake)
    secrets.mkdir(mode=0o700)
    (secrets / "password").write_text("of a job")
    (made.run / "shared").mkdir()
    (made.run / "shared").chmod(0o777)
    with made:
        yield made


@pytest.fixture(scope="module")
def programs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("programs")
    for name, text in (
        ("data.py", beside_spark.DATA),
        ("files.py", beside_spark.FILES),
        ("helper.py", beside_spark.HELPER),
        ("brought.csv", "a,b\n1,2\n"),
        ("frames.py", beside_spark.FRAMES),
        ("victim.py", VICTIM),
        ("spark_victim.py", beside_spark.VICTIM),
        ("jars.py", beside_spark.JARS),
        ("attack.py", ATTACK),
        ("through_spark.py", beside_spark.THROUGH_SPARK),
    ):
        (directory / name).write_text(text)
    return directory


OF_ITS_OWN = ("--conf", "spark.flinklike.isolation=jvm")


def uid(number: int = 0) -> int:
    return pwd.getpwnam(ACCOUNTS[number]).pw_uid


def processes_of_account(number: int = 0) -> list[int]:
    return [pid for pid, owner in beside_spark.owners().items() if owner == uid(number)]


@pytest.mark.parametrize(("options", "account"), [((), 0), (OF_ITS_OWN, 1)], ids=["shared", "own"])
def test_a_job_works_as_ever(
    cluster: OpenPythonCluster, programs: Path, options: tuple[str, ...], account: int
) -> None:
    done = cluster.cli("run", *options, "data.py", cwd=programs, timeout=PATIENCE)
    assert done.returncode == 0, done.stdout + done.stderr
    told = next(line for line in done.stdout.splitlines() if line.startswith("uids"))
    driver, workers = map(int, told.split()[1:])
    assert FIRST < driver <= FIRST + 3
    assert workers == uid(account)
    assert {"of a function", "of the JVM"} < set(done.stdout.splitlines()), "the JVM may append to the task's output"


def test_an_environment_has_the_jars_of_its_job_and_an_account_of_its_own(
    cluster: OpenPythonCluster, programs: Path
) -> None:
    """R53: it ends with its job, and nothing that runs as another account ends with it."""
    before = {pid for pid in processes_of_account() if is_jvm(pid)}
    with zipfile.ZipFile(programs / "brought.jar", "w") as jar:
        jar.writestr("mine/text.txt", "of the jar")
    for options in ((*OF_ITS_OWN, "--jars", "brought.jar"), ("--jars", "brought.jar")):
        done = cluster.cli("run", *options, "jars.py", cwd=programs, timeout=PATIENCE)
        assert done.returncode == 0, done.stdout + done.stderr
        assert "of the jar" in done.stdout
        if OF_ITS_OWN[0] in options:
            reached(lambda: not processes_of_account(1), "its JVM has ended with its job", timeout=PATIENCE)
    assert {pid for pid in processes_of_account() if is_jvm(pid)} == before != set()
    assert [pid for pid in processes_of_account(1) if is_jvm(pid)], "what jobs share is kept for the next one"


def test_a_java_application_is_refused_in_a_sentence(cluster: OpenPythonCluster, programs: Path) -> None:
    with zipfile.ZipFile(programs / "app.jar", "w") as jar:
        jar.writestr("none.txt", "")
    done = cluster.cli("run", "--class", "mine.App", "app.jar", cwd=programs, timeout=PATIENCE)
    assert done.returncode != 0
    assert "a Java application runs as the user of its slot, and where slots have users of their own" in done.stderr


def is_jvm(pid: int) -> bool:
    try:
        return b"SparkSubmit" in Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return False


def test_files_are_found_where_they_ever_were(cluster: OpenPythonCluster, programs: Path) -> None:
    files = ("--files", "brought.csv", "--py-files", "helper.py")
    done = cluster.cli("run", *files, "files.py", cwd=programs, timeout=PATIENCE)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "worked" in done.stdout


def test_frames_go_from_slot_to_slot_and_are_committed(cluster: OpenPythonCluster, programs: Path) -> None:
    done = cluster.cli("run", "frames.py:pipeline", cwd=programs, timeout=PATIENCE)
    assert done.returncode == 0, done.stdout + done.stderr
    from pyarrow import parquet

    out = cluster.run / "lake" / "out"
    assert parquet.read_table(out).num_rows == 10
    assert [path.name for path in out.iterdir() if path.name.startswith(".attempt")] == []


class Prey:
    """What there is to attack: two victims, and all that the cluster has."""

    def __init__(self, cluster: OpenPythonCluster, programs: Path, name: str) -> None:
        self.plain = Victim(cluster, programs, f"plain-{name}")
        self.user = Victim(cluster, programs, f"user-{name}", "spark_victim.py")
        run, work = cluster.run / "run", Path(self.plain.told["directory"])
        secrets = [run / "token", run / "cluster-key", run / "etcd-tls", run / "etcd", run / "storage", run / "guards"]
        secrets += [cluster.run / "secrets", cluster.run / "secrets" / "password", *run.glob("etcd-tls/*")]
        others = [run, run / "pid", run / "log", run / "work", run / "exchange", work.parent.parent.parent]
        files = [work.parent, work, work / "private.txt", work / "victim.py", work.parent.parent]
        home = Path(self.user.told["home"])
        logs = [*run.glob("log/attempts/*"), *run.glob("log/attempts/*/*"), *run.glob("log/attempts/*/*/*")]
        logs += [path for path in run.glob("log/*.log") if "-spark-jvm" not in path.name]
        of_user = [home, home / "private.txt", home.parent]
        self.paths = [*map(str, (*secrets, *others, *files, *of_user, *logs))]
        used_by = next(path for path in run.glob(f"log/attempts/*/{self.user.job_id}*"))
        self.shown = {f"write {used_by / stream}" for stream in ("stdout", "stderr")}
        self.spark = work.parent.parent.parent / "spark"
        assert all(Path(path).exists() for path in self.paths)
        assert any(self.user.job_id in path and path.endswith("stdout") for path in self.paths)


@pytest.fixture
def prey(cluster: OpenPythonCluster, programs: Path, request: pytest.FixtureRequest) -> Iterator[Prey]:
    made = Prey(cluster, programs, request.node.name)
    yield made
    made.plain.gate.touch()
    made.user.gate.touch()


def test_what_a_driver_attempts_is_refused(cluster: OpenPythonCluster, programs: Path, prey: Prey) -> None:
    sessions = [*(prey.spark / "sessions").iterdir()]
    assert sessions
    places = (prey.spark, *prey.spark.iterdir(), *(prey.spark / "own").iterdir(), *sessions)
    found = printed(cluster, programs, "attack.py", *prey.paths, *map(str, places))
    assert found["own"] == 9, "the attempts are real"
    assert found["uid"] not in {prey.plain.told["uid"], prey.user.told["uid"]}
    assert found["done"] == []


@pytest.mark.parametrize(
    ("way", "options", "account"), [("functions", (), 0), ("java", (), 0), ("java", OF_ITS_OWN, 1)]
)
def test_what_is_attempted_through_spark_is_refused(
    cluster: OpenPythonCluster, programs: Path, prey: Prey, way: str, options: tuple[str, ...], account: int
) -> None:
    """Of another JVM too: the processes of its account are none of the attacker's own. The end of what tasks with Spark
    print is not protected (docs/security.md).
    """
    files = () if account == 0 else (str(prey.spark / "own"), *map(str, (prey.spark / "own").iterdir()))
    assert all(processes_of_account(number) for number in range(account))
    found = printed(cluster, programs, *options, "--files", "attack.py", "through_spark.py", way, *prey.paths, *files)
    assert found["own"] == 9, "the attempts are real"
    assert found["uid"] == uid(account)
    assert found["tried"] > 5 * len(prey.paths)
    assert set(found["done"]) == prey.shown


def test_what_is_not_enforced_is_told(cluster: OpenPythonCluster) -> None:
    (one,) = json.loads(cluster.cli("taskmanagers", "--json").stdout)["taskmanagers"]
    assert "users" not in one["not-enforced"]
    assert "spark" in one["not-enforced"]
    assert "what tasks that use Spark do to each other in its JVM" in cluster.logs(200)


def test_nothing_of_spark_outlives_its_task_manager(cluster: OpenPythonCluster, programs: Path) -> None:
    assert processes_of_account()
    (guard,) = cluster.pids()["taskmanager"]
    for pid in map(int, Path(f"/proc/{guard}/task/{guard}/children").read_text().split()):
        os.kill(pid, signal.SIGKILL)
    os.kill(guard, signal.SIGKILL)
    reached(lambda: not processes_of_account(), "Spark and what it has started have ended")
    cluster.start_task_manager()
    done = cluster.cli("run", "data.py", cwd=programs, timeout=PATIENCE)
    assert done.returncode == 0, done.stdout + done.stderr
