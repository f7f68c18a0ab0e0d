"""Labels of real TaskManagers: a job that asks for one runs there, and waits with its name where none has it."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.kit.cluster.script_cluster import ROOT, ScriptCluster
from tests.kit.host.levels import reached

pytestmark = [pytest.mark.process, pytest.mark.etcd]

PIPELINE = """
from airflow_flinklike import Pipeline, ResourceSpec

pipeline = Pipeline("where")
pipeline.source("anywhere", lambda ctx: [1]).apply(
    "here", lambda ctx, rows: "done", resources=ResourceSpec(labels={"gpu": "a100"})
)
"""


@pytest.fixture
def cluster() -> Iterator[ScriptCluster]:
    options = {"taskmanager.spark.enabled": "false", "taskmanager.numberOfTaskSlots": "1"}
    with ScriptCluster(options, job_masters=1) as made:
        yield made


def test_a_job_with_a_label_waits_for_a_task_manager_that_has_it(cluster: ScriptCluster, tmp_path: Path) -> None:
    (tmp_path / "where.py").write_text(PIPELINE)
    script = tmp_path / "etl.py"
    script.write_text("print(1)")
    jobs = {}
    for name, arguments in (("a", ["where.py:pipeline"]), ("b", ["--label", "gpu=a100", str(script)])):
        done = cluster.cli("run", "-d", "--json", *arguments, cwd=tmp_path)
        assert done.returncode == 0, done.stderr
        jobs[name] = json.loads(done.stdout)["job_id"]
    with cluster.connect() as client:
        for job in jobs.values():
            said = "none of 1 TaskManagers offers a slot with label gpu=a100"
            reached(lambda: said in client.get(f"/jobs/{job}")["pending-reason"], "the reason names the label")  # noqa: B023
        started = cluster.script(
            "taskmanager.sh", "start", *cluster.dynamic, "-D", "taskmanager.labels=gpu:a100,zone:b"
        )
        assert started.returncode == 0, started.stdout + started.stderr
        for job in jobs.values():
            assert client.wait_for_result(job).status.value == "FINISHED"
        (labelled,) = [one for one in client.get("/taskmanagers")["taskmanagers"] if one["labels"]]
        assert labelled["labels"] == ["gpu=a100", "zone=b"]
        for name, vertex in (("a", "here"), ("b", "")):
            vertices = client.get(f"/jobs/{jobs[name]}")["vertices"]
            (chosen,) = [one["id"] for one in vertices if vertex in one["name"]][-1:]
            (task,) = client.get(f"/jobs/{jobs[name]}/vertices/{chosen}")["subtasks"]
            assert task["taskmanager-id"] == labelled["id"]
    assert "gpu=a100 zone=b" in cluster.cli("taskmanagers").stdout


def test_a_run_that_nobody_sees_on_a_terminal_says_why_it_waits(cluster: ScriptCluster, tmp_path: Path) -> None:
    script = tmp_path / "etl.py"
    script.write_text("print('done at last')")
    command = [str(ROOT / "bin" / "flinklike"), "run", "--label", "disk=large", str(script)]
    with subprocess.Popen(
        command, env=cluster.environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as run:
        assert run.stdout is not None
        assert run.stderr is not None
        told = next((line for line in run.stderr if line.startswith("Waiting: ")), "it ended without a word")
        assert "none of 1 TaskManagers offers a slot with label disk=large" in told
        started = cluster.script("taskmanager.sh", "start", *cluster.dynamic, "-D", "taskmanager.labels=disk:large")
        assert started.returncode == 0, started.stdout + started.stderr
        out, err = run.communicate(timeout=100)
    assert (run.returncode, out) == (0, "done at last\n"), err
