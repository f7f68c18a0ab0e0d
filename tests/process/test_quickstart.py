"""bin/quickstart.sh and what its reader does next, as the README tells it."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.kit.cluster.script_cluster import ScriptCluster
from tests.kit.spark.spark_box import QUICK_JVM

pytestmark = [
    pytest.mark.process,
    pytest.mark.spark,
    pytest.mark.airflow,
    pytest.mark.slow,
    pytest.mark.timeout(1000),
]

OPTIONS = {
    "taskmanager.numberOfTaskSlots": "2",
    "taskmanager.memory.task.size": "1 gb",
    "taskmanager.memory.spark.size": "1 gb",
    "taskmanager.spark.class-archive": "false",
    "taskmanager.spark.warm-up.count": "2",
    "spark.sql.shuffle.partitions": "2",
    **QUICK_JVM,
}
LONE = """
from airflow_flinklike import function_job

def one(ctx):
    return 1

job = function_job(one)
"""


def quickstart(cluster: ScriptCluster) -> str:
    """Run it; what it says."""
    done = cluster.script("quickstart.sh", "--scale-factor", "0.01", *cluster.dynamic, timeout=900)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def shown(cluster: ScriptCluster, *arguments: str) -> Any:
    """What `flinklike ... --json` says."""
    done = cluster.cli(*arguments, "--json")
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


@pytest.fixture(scope="module")
def begun(class_archive: Path | None) -> Iterator[tuple[ScriptCluster, str]]:
    """A cluster that the quickstart has made, and what it has said."""
    cluster = ScriptCluster(OPTIONS, class_archive=class_archive)
    try:
        yield cluster, quickstart(cluster)
    finally:
        cluster.close()


def test_it_ends_with_the_report_and_a_table_of_processes(begun: tuple[ScriptCluster, str]) -> None:
    cluster, said = begun
    report = said.index("TPC-H at scale factor 0.01")
    table = said[report:].split("\nprocess ", 1)[1].splitlines()[2:]
    assert [line.split()[0] for line in table[:5]] == ["etcd", "jobmanager", "jobmaster", "jobmaster", "taskmanager"]
    assert {line.split()[-1] for line in table[:5]} == {"running"}
    assert table[5] == f"REST: {cluster.url}"
    assert table[6] == f"Dashboard: {cluster.url}/ui (bin/flinklike open signs in)"


def test_its_jobs_are_finished_on_two_job_masters(begun: tuple[ScriptCluster, str]) -> None:
    cluster, _ = begun
    jobs = shown(cluster, "list")["jobs"]
    assert len(jobs) == 3, jobs
    assert {job["state"] for job in jobs} == {"FINISHED"}
    assigned = [one["jobs-assigned"] for one in shown(cluster, "jobmasters")["jobmasters"]]
    assert len(assigned) == 2, assigned
    assert all(count > 0 for count in assigned), assigned


def test_a_third_process_gets_new_jobs(begun: tuple[ScriptCluster, str]) -> None:
    cluster, _ = begun
    before = {one["id"] for one in shown(cluster, "jobmasters")["jobmasters"]}
    started = cluster.script("start-jobmaster.sh", "start", *cluster.dynamic)
    assert started.returncode == 0, started.stderr
    (cluster.run / "lone.py").write_text(LONE)
    for _ in range(3):
        done = cluster.cli("run", "lone:job", cwd=cluster.run)
        assert done.returncode == 0, done.stderr
    (new,) = [one for one in shown(cluster, "jobmasters")["jobmasters"] if one["id"] not in before]
    assert new["jobs-assigned"] > 0


@pytest.mark.extended
def test_again_it_reuses_the_running_cluster(begun: tuple[ScriptCluster, str]) -> None:
    cluster, _ = begun
    before = cluster.pids()
    assert "TPC-H at scale factor 0.01" in quickstart(cluster)
    assert cluster.pids() == before


def test_a_foreign_process_on_the_port_is_one_sentence(begun: tuple[ScriptCluster, str]) -> None:
    cluster, _ = begun
    other = ScriptCluster({**OPTIONS, "rest.port": str(cluster.port)})
    try:
        done = other.script("quickstart.sh", *other.dynamic)
    finally:
        other.close()
    assert done.returncode != 0
    assert "rest.port" in done.stderr, done.stderr
    assert len(done.stderr.splitlines()) <= 2, done.stderr


def test_bad_arguments_are_one_sentence(begun: tuple[ScriptCluster, str]) -> None:
    cluster, _ = begun
    done: subprocess.CompletedProcess[str] = cluster.script("quickstart.sh", "--scale")
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr == "Unknown argument '--scale': see bin/quickstart.sh --help.\n"
