"""R50 with real processes: a TaskManager that serves one namespace at a time begins anew for the next one."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from tests.kit.cluster.script_cluster import ScriptCluster
from tests.kit.host.levels import reached
from tests.kit.spark.spark_box import QUICK_JVM

pytestmark = [pytest.mark.process, pytest.mark.spark, pytest.mark.slow, pytest.mark.timeout(900)]

OPTIONS = {
    "taskmanager.tenancy": "namespace",
    "taskmanager.numberOfTaskSlots": "2",
    "taskmanager.memory.spark.size": "768 mb",
    "taskmanager.spark.warm-up.count": "0",
    **QUICK_JVM,
}
SPARK_STARTS = 300.0
WHERE = """
import json, os
from pyspark.sql import SparkSession

spark = SparkSession.builder.getOrCreate()
assert spark.range(10).count() == 10
print(json.dumps([os.getppid(), spark._jvm.java.lang.ProcessHandle.current().pid()]))
"""
HOLD = """
import sys, time
from pathlib import Path

Path(sys.argv[1] + ".begun").touch()
while not Path(sys.argv[1]).exists():
    time.sleep(0.05)
"""


@pytest.fixture(scope="module")
def cluster(class_archive: Path | None) -> Iterator[ScriptCluster]:
    with ScriptCluster(OPTIONS, job_masters=1, class_archive=class_archive) as made:
        yield made


@pytest.fixture(scope="module")
def programs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("programs")
    (directory / "where.py").write_text(WHERE)
    (directory / "hold.py").write_text(HOLD)
    return directory


def where(cluster: ScriptCluster, programs: Path, namespace: str) -> list[int]:
    """The processes that a job meets: the template, and the JVM."""
    done = cluster.cli("run", "--namespace", namespace, "where.py", cwd=programs)
    assert done.returncode == 0, done.stdout + done.stderr
    found: list[int] = json.loads(next(line for line in done.stdout.splitlines() if line.startswith("[")))
    return found


def served(cluster: ScriptCluster) -> tuple[str, str]:
    (one,) = json.loads(cluster.cli("taskmanagers", "--json").stdout)["taskmanagers"]
    return one["tenancy"], one["tenant"]


def test_no_namespace_meets_what_another_one_has_used(cluster: ScriptCluster, programs: Path) -> None:
    assert served(cluster) == ("namespace", "")
    first = where(cluster, programs, "team-a")
    assert served(cluster) == ("namespace", "team-a")
    assert where(cluster, programs, "team-a") == first
    other = where(cluster, programs, "team-b")
    assert served(cluster) == ("namespace", "team-b")
    assert not {*other} & {*first}
    again = where(cluster, programs, "team-a")
    assert not {*again} & {*other, *first}


def test_a_job_waits_for_those_of_another_namespace_and_says_so(
    cluster: ScriptCluster, programs: Path, tmp_path: Path
) -> None:
    gate = tmp_path / "gate"
    held = cluster.cli("run", "--detached", "--namespace", "team-c", "hold.py", str(gate), cwd=programs)
    assert held.returncode == 0, held.stderr
    reached(lambda: Path(f"{gate}.begun").exists(), "the first job runs", timeout=SPARK_STARTS)
    waits = cluster.cli("run", "--detached", "--json", "--namespace", "team-d", "where.py", cwd=programs)
    job_id = json.loads(waits.stdout)["job_id"]
    asked = {"authorization": f"Bearer {cluster.token}"}

    def told(key: str) -> str:
        return str(httpx.get(f"{cluster.url}/jobs/{job_id}", headers=asked, timeout=60).json()[key])

    words = "serve another namespace (taskmanager.tenancy: namespace)"
    reached(lambda: words in told("pending-reason"), "its reason", timeout=SPARK_STARTS, every=0.2)
    assert "team-c" not in told("pending-reason")
    gate.touch()
    reached(lambda: told("state") == "FINISHED", "the second job has run", timeout=SPARK_STARTS, every=0.2)
