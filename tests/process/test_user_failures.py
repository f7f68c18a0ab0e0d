"""Nothing runs twice by surprise (R36): how often a script that appends to a file, and then fails, has run."""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest

from airflow_flinklike.client import FlinklikeClient
from runtime.common.ids import JobId
from tests.kit.cluster.script_cluster import ScriptCluster
from tests.kit.host.levels import reached
from tests.process.conftest import WITHOUT_SPARK

pytestmark = pytest.mark.process

RESTARTS = {
    **WITHOUT_SPARK,
    "taskmanager.memory.task.size": "640 mb",
    "restart-strategy.type": "exponential-delay",
    "restart-strategy.exponential-delay.initial-backoff": "50 ms",
    "restart-strategy.exponential-delay.max-backoff": "50 ms",
    "restart-strategy.exponential-delay.attempts-before-reset-backoff": "3",
}
"""What a cluster does that is told nothing, with shorter pauses."""

ENDINGS = {
    "raises": "raise LookupError('no such day')",
    "exits": "import sys; sys.exit(1)",
    "ends-its-process": "import os; os._exit(1)",
    "crashes": "import ctypes; ctypes.string_at(0)",
    "takes-too-much-memory": "hog = [bytearray(os.urandom(1)) * 50_000_000 for _ in range(40)]; time.sleep(60)",
    "cannot-import": "import no_such_package",
    "has-no-permission": "raise PermissionError(13, 'Permission denied', '/root/out')",
    "is-no-python": "eval('1 +')",
    "sends-itself-a-signal": "os.kill(os.getpid(), signal.SIGTERM); time.sleep(60)",
    "kills-its-group": "os.killpg(0, signal.SIGKILL)",
    "kills-all-of-its-group": "os.kill(0, 9)",
    "kills-itself": "os.kill(os.getpid(), 9)",
    "kills-what-it-was-forked-from": "os.kill(os.getppid(), signal.SIGKILL); time.sleep(60)",
    "is-killed-by-the-machine": "os.system(f'kill -KILL {os.getpid()}'); time.sleep(60)",
    "is-ended-from-outside": "os.system(f'kill -TERM {os.getpid()}'); time.sleep(60)",
}
"""A signal of another process counts as the machine's or a person's: the guard sees only what Python code does."""
ONCE = tuple(ENDINGS)[:13]
WHATEVER_THE_STRATEGY = ("cannot-import", "has-no-permission", "is-no-python")


@pytest.fixture(scope="module")
def cluster() -> Iterator[ScriptCluster]:
    with ScriptCluster(RESTARTS) as found:
        yield found


def runs_of(cluster: ScriptCluster, directory: Path, ending: str, *options: str) -> int:
    """How often the script has run when its job has FAILED."""
    script, runs = directory / "append.py", directory / "runs"
    script.write_text(
        f"import os, signal, sys, time\nwith open(sys.argv[1], 'a') as runs:\n    runs.write('x')\n{ENDINGS[ending]}\n"
    )
    done = cluster.cli("run", *options, str(script), str(runs), timeout=120)
    assert done.returncode == 1, done.stdout + done.stderr
    return len(runs.read_text())


@pytest.mark.parametrize("ending", ONCE)
def test_a_failure_of_user_code_is_final(cluster: ScriptCluster, tmp_path: Path, ending: str) -> None:
    assert runs_of(cluster, tmp_path, ending) == 1


@pytest.mark.parametrize("ending", ["is-killed-by-the-machine", "is-ended-from-outside"])
def test_what_is_not_the_users_fault_restarts_by_the_strategy(
    cluster: ScriptCluster, tmp_path: Path, ending: str
) -> None:
    assert runs_of(cluster, tmp_path, ending) == 4


@pytest.mark.parametrize(
    ("options", "runs"),
    [
        (("--user-failures", "restart"), 4),
        (("--restart-strategy", "fixed-delay,attempts=1,delay_seconds=0"), 2),
        (("--restart-strategy", "fixed-delay,attempts=1,delay_seconds=0", "--user-failures", "final"), 1),
    ],
    ids=["asked-by-its-name", "a-strategy-of-its-own", "a-strategy-of-its-own-for-the-rest"],
)
def test_who_asks_for_restarts_gets_them(
    cluster: ScriptCluster, tmp_path: Path, options: tuple[str, ...], runs: int
) -> None:
    assert runs_of(cluster, tmp_path, "raises", *options) == runs


@pytest.mark.parametrize("ending", WHATEVER_THE_STRATEGY)
def test_what_would_come_again_is_not_restarted_whatever_the_strategy(
    cluster: ScriptCluster, tmp_path: Path, ending: str
) -> None:
    asked = ("--user-failures", "restart", "--restart-strategy", "fixed-delay,attempts=3,delay_seconds=0")
    assert runs_of(cluster, tmp_path, ending, *asked) == 1


def test_a_lost_task_manager_is_nobodys_code(cluster: ScriptCluster, tmp_path: Path) -> None:
    runs, stop = tmp_path / "runs", tmp_path / "stop"
    script = tmp_path / "wait.py"
    script.write_text(
        "import os, sys, time\nwith open(sys.argv[1], 'a') as runs:\n    runs.write('x')\n"
        "while not os.path.exists(sys.argv[2]):\n    time.sleep(0.05)\n"
    )
    done = cluster.cli("run", "-d", "--json", str(script), str(runs), str(stop))
    job_id = json.loads(done.stdout)["job_id"]
    reached(lambda: runs.exists() and len(runs.read_text()) == 1, "the script runs")
    started = cluster.script("taskmanager.sh", "start", *cluster.dynamic)
    assert started.returncode == 0, started.stdout + started.stderr
    for pid in task_managers_of(cluster)[:1]:
        os.kill(pid, signal.SIGKILL)
    reached(lambda: len(runs.read_text()) == 2, "it runs elsewhere")
    stop.touch()
    with cluster.connect() as client:
        ended = client.result_within(job_id, wait=60)
        assert ended is not None
        assert ended.status.value == "FINISHED"
    assert len(runs.read_text()) == 2


def test_a_lost_template_is_nobodys_fault_and_counts_for_nothing(cluster: ScriptCluster, tmp_path: Path) -> None:
    runs, stop = tmp_path / "runs", tmp_path / "stop"
    script = tmp_path / "wait.py"
    script.write_text(
        "import os, sys, time\nwith open(sys.argv[1], 'a') as runs:\n    runs.write('x')\n"
        "while not os.path.exists(sys.argv[2]):\n    time.sleep(0.05)\n"
    )
    done = cluster.cli("run", "-d", "--json", "--restart-strategy", "none", str(script), str(runs), str(stop))
    job_id = json.loads(done.stdout)["job_id"]
    for count in (1, 2):
        reached(partial(has_run, runs, count), f"it runs, {count}")
        for template in templates_of(cluster):
            os.kill(template, signal.SIGKILL)
    reached(partial(has_run, runs, 3), "it runs again")
    stop.touch()
    with cluster.connect() as client:
        ended = client.result_within(job_id, wait=60)
        assert ended is not None
        assert ended.status.value == "FINISHED"
    assert len(runs.read_text()) == 3


@pytest.mark.spark
@pytest.mark.timeout(400)
def test_a_lost_spark_is_nobodys_code(spark_cluster: ScriptCluster, tmp_path: Path) -> None:
    runs, stop = tmp_path / "runs", tmp_path / "stop"
    script = tmp_path / "work.py"
    script.write_text(
        "import os, sys\nfrom pyspark.sql import SparkSession\nspark = SparkSession.builder.getOrCreate()\n"
        "spark.range(3).count()\nwith open(sys.argv[1], 'a') as runs:\n    runs.write('x')\n"
        "while not os.path.exists(sys.argv[2]):\n    spark.range(1000).selectExpr('sum(id)').collect()\n"
    )
    asked = ("--restart-strategy", "fixed-delay,attempts=3,delay_seconds=0.1", "--user-failures", "final")
    done = spark_cluster.cli("run", "-d", "--json", *asked, str(script), str(runs), str(stop))
    job_id = json.loads(done.stdout)["job_id"]
    reached(lambda: runs.exists() and runs.read_text() == "x", "the script uses Spark")
    for jvm in jvms_of(spark_cluster):
        os.kill(jvm, signal.SIGKILL)
    with spark_cluster.connect() as client:
        reached(lambda: runs.read_text() == "xx" or ends(client, job_id), "it runs on the next Spark", timeout=200)
        stop.touch()
        ended = client.result_within(job_id, wait=60)
        assert ended is not None
        assert ended.status.value == "FINISHED", ended.failure
    assert runs.read_text() == "xx"


def ends(client: FlinklikeClient, job_id: JobId) -> bool:
    return client.status(job_id).status.is_globally_terminal


def has_run(runs: Path, count: int) -> bool:
    return runs.exists() and len(runs.read_text()) == count


def templates_of(cluster: ScriptCluster) -> list[int]:
    return [pid for pid in cluster.processes() if comm_of(pid) == "slot-template"]


def comm_of(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/comm").read_text().strip()
    except OSError:
        return ""


def jvms_of(cluster: ScriptCluster) -> list[int]:
    """The JVM of the default environment, and those of environments that jobs of other tests have asked for."""
    return [pid for pid, line in cluster.processes().items() if "org.apache.spark.deploy.SparkSubmit" in line]


def task_managers_of(cluster: ScriptCluster) -> list[int]:
    return cluster.pids()["taskmanager"]
