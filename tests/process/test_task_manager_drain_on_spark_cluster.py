"""A TaskManager whose executors are on a Spark cluster is drained: what only waited there runs elsewhere (D-067)."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest

from airflow_flinklike.client import new_job_id
from runtime.common.ids import JobId
from tests.kit.cluster.gated_jobs import GatedJobs
from tests.kit.cluster.script_cluster import ScriptCluster
from tests.kit.host.levels import reached
from tests.kit.spark.spark_box import ONE_COMPILER
from tests.kit.spark.standalone import standalone
from tests.process.conftest import SPARK

pytestmark = [pytest.mark.process, pytest.mark.spark, pytest.mark.extended]

OPTIONS = {
    **SPARK,
    "taskmanager.numberOfTaskSlots": "1",
    "taskmanager.spark.warm-up.count": "0",
    "taskmanager.drain-timeout": "120 s",
    "taskmanager.spark.allow-unauthenticated": "true",
    "spark.cores.max": "1",
    "spark.executor.memory": "512m",
    "spark.executor.extraJavaOptions": ONE_COMPILER,
}


@pytest.fixture
def jobs(tmp_path: Path, class_archive: Path | None) -> Iterator[GatedJobs]:
    with (
        standalone(tmp_path, cores=2, memory="1g") as master,
        ScriptCluster({**OPTIONS, "spark.master": master}, job_masters=1, class_archive=class_archive) as cluster,
        cluster.connect() as client,
    ):
        yield GatedJobs(cluster, client, tmp_path)


def tasks(jobs: GatedJobs, job_id: JobId) -> list[tuple[str, str]]:
    """State and TaskManager of each."""
    (vertex,) = jobs.client.get(f"/jobs/{job_id}")["vertices"]
    subtasks = jobs.client.get(f"/jobs/{job_id}/vertices/{vertex['id']}")["subtasks"]
    return [(str(one["status"]), str(one["taskmanager-id"])) for one in subtasks]


def one_with_another_behind(jobs: GatedJobs, job_id: JobId, count: int) -> int:
    """The subtask that runs while the next one waits in its slot."""
    for number in range(1, count, 2):
        reached(partial(jobs.count, f"many-{number}", "begins"), f"{number} runs")
        if tasks(jobs, job_id)[number + 1][0] == "DEPLOYING":
            return number
        jobs.open_gate(f"many-{number}")  # the one before it took too long for another one to be deployed behind it
    message = "never was one deployed behind another one"
    raise AssertionError(message)


def test_a_task_that_never_began_runs_elsewhere_and_the_one_that_runs_is_left(jobs: GatedJobs) -> None:
    job_id, count = new_job_id(), 40
    jobs.client.submit(jobs.many(count), job_id=job_id)
    runs = one_with_another_behind(jobs, job_id, count)
    (_, first), (_, place) = tasks(jobs, job_id)[runs : runs + 2]
    assert place == first, "it waits in the slot of the one that runs"
    for number in range(runs + 1, count):
        jobs.open_gate(f"many-{number}")
    jobs.cluster.start_task_manager()
    assert jobs.cluster.cli("taskmanagers", "drain", first).returncode == 0
    reached(
        lambda: jobs.count(f"many-{runs + 1}", "ends") == 1 or jobs.states([job_id]) == ["FAILED"],
        "it runs elsewhere",
        timeout=60,
    )
    assert jobs.states([job_id]) == ["RUNNING"]
    running, moved = tasks(jobs, job_id)[runs : runs + 2]
    assert (running, moved[1] == first) == (("RUNNING", first), False)
    jobs.open_gate(f"many-{runs}")
    reached(lambda: jobs.states([job_id]) == ["FINISHED"], "it finishes")
    assert {jobs.count(f"many-{n}", what) for n in range(count) for what in ("begins", "ends")} == {1}
