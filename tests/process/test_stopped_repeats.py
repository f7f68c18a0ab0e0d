"""`bin/commit-outputs.sh` as people run it: stopped in its terminal, and beside a job that still commits (R27)."""

from __future__ import annotations

import os
import shlex
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from airflow_flinklike.client import FlinklikeClient, new_job_id
from runtime.common.ids import JobId
from runtime.jobgraph.graph import FunctionReference, JobGraph, JobVertex, Operator, OperatorKind, vertex_id_of
from runtime.taskexecutor.outputs.storage_steps import PARALLEL_MAX
from tests.kit.cluster.script_cluster import ROOT, ScriptCluster
from tests.kit.host.levels import reached
from tests.kit.storage.gated_files import install, visible, waiting

FILES = 40


# --- no cluster -------------------------------------------------------------------------------------------------------

COMMIT = """
import asyncio, sys
from runtime.aio.clock import LoopClock
from runtime.common.ids import JobId, VertexId
from runtime.gateways.job_master import CommitOutputs
from runtime.gateways.task import OutputDirectory
from runtime.taskexecutor.outputs.output_move import OutputMove, Permit
base, job = sys.argv[1:]
output = OutputDirectory(base, f"{base}/.attempt-{job}_0", "overwrite")
message = CommitOutputs(JobId(job), 1, VertexId(""), (output,), 1)

async def run():
    await OutputMove(message, Permit(), None, lambda *_: None, LoopClock(), patience=0.0).run()

asyncio.run(run())
"""


def write(base: Path, job: JobId, name: str) -> JobId:
    attempt = base / f".attempt-{job}_0"
    attempt.mkdir(parents=True)
    for number in range(FILES):
        (attempt / f"{name}-{number}").write_text("row")
    return job


def commit(environment: dict[str, str], base: Path, job: JobId, name: str) -> int:
    """As a TaskManager does it, in a process that knows the storage."""
    command = [sys.executable, "-c", COMMIT, f"gated://{base}", write(base, job, name)]
    done = subprocess.run(command, env=environment, check=False, capture_output=True, text=True, cwd=ROOT)
    sys.stderr.write(done.stderr)
    return done.returncode


@pytest.mark.process
def test_a_repeat_that_was_stopped_in_its_terminal_deletes_nothing_of_a_later_job(tmp_path: Path) -> None:
    """H4: another one has ended the commit meanwhile, and a job has overwritten the base under the old names."""
    base = tmp_path / "out"
    environment = {**os.environ, "PYTHONPATH": f"{install(tmp_path / 'path')}:{ROOT}"}
    failed, later = JobId("1" * 32), JobId("2" * 32)
    assert commit(environment, base, JobId("3" * 32), "old") == 0
    hold = Path(f"{base}.hold-remove")
    hold.touch()
    repeat = [sys.executable, "-m", "tests.kit.control_plane.repeated_commit", f"gated://{base}/.commit-{failed}"]
    mover = subprocess.Popen(
        [sys.executable, "-c", COMMIT, f"gated://{base}", write(base, failed, "new")], env=environment, cwd=ROOT
    )
    reached(lambda: waiting(base) == {mover.pid}, "its TaskManager deletes old files")
    mover.kill()
    mover.wait()
    first = subprocess.Popen(repeat, env=environment, cwd=ROOT, stderr=subprocess.PIPE, text=True)
    reached(lambda: first.pid in waiting(base), "the first repeat deletes old files")
    try:
        os.kill(first.pid, signal.SIGSTOP)
        hold.unlink()
        done = subprocess.run(repeat, env=environment, cwd=ROOT, check=False, capture_output=True, text=True)
        assert done.returncode == 0, done.stderr
        assert commit(environment, base, later, "old") == 0
        assert len(visible(base)) == FILES
    finally:
        psutil.Process(first.pid).resume()
    _, told = first.communicate(timeout=60)
    assert first.returncode == 3, told
    assert "another repeat has ended this commit" in told
    assert len(visible(base)) >= FILES - PARALLEL_MAX, "but the files before which its threads stood"
    assert (base / "_SUCCESS").exists()


# --- beside its cluster -----------------------------------------------------------------------------------------------

OPTIONS = {"taskmanager.spark.enabled": "false", "taskmanager.numberOfTaskSlots": "2"}


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[ScriptCluster]:
    made = ScriptCluster(OPTIONS)
    made.environment["PYTHONPATH"] = install(tmp_path / "path")
    with made:
        yield made


@pytest.fixture
def client(cluster: ScriptCluster) -> Iterator[FlinklikeClient]:
    with cluster.connect() as made:
        yield made


def submit(client: FlinklikeClient, base: Path, **params: int) -> JobId:
    code = FunctionReference(target="tests.kit.cluster.commit_programs:write")
    operator = Operator(name="sink", kind=OperatorKind.FUNCTION, code=code)
    vertex = JobVertex(id=vertex_id_of("sink"), name="sink", operators=(operator,), parallelism=1, max_parallelism=1)
    graph = JobGraph(name="commit", vertices=(vertex,), params={"base": f"gated://{base}", "files": FILES, **params})
    job_id = new_job_id()
    client.submit(graph, job_id=job_id)
    return job_id


def state(client: FlinklikeClient, job_id: JobId) -> str:
    (found,) = [job["state"] for job in client.get("/jobs/overview")["jobs"] if job["jid"] == job_id]
    return str(found)


@pytest.mark.process
@pytest.mark.etcd
@pytest.mark.slow
def test_the_command_is_refused_while_the_job_is_not_over(
    cluster: ScriptCluster, client: FlinklikeClient, tmp_path: Path
) -> None:
    """It finds the cluster as its TaskManagers do, and leaves order and turn to the mover that has them."""
    base = tmp_path / "out"
    gate = Path(f"{base}.hold-copy")
    gate.write_text("5")
    job_id = submit(client, base)
    reached(lambda: len(waiting(base)) == 1, "its TaskManager moves")
    kept = [base / f".commit-{job_id}/order", base / f".commit-{job_id}.turn"]
    before = [path.read_bytes() for path in kept]
    for arguments in ([], ["--job-is-over"]):
        done = cluster.script("commit-outputs.sh", *cluster.dynamic, *arguments, f"gated://{base}/.commit-{job_id}")
        assert done.returncode == 1, done.stdout + done.stderr
        assert f"job {job_id} is not over" in done.stderr
    assert [path.read_bytes() for path in kept] == before
    gate.unlink()
    reached(lambda: state(client, job_id) == "FINISHED", "the job ends")
    assert len(visible(base)) == FILES


@pytest.mark.process
@pytest.mark.etcd
@pytest.mark.slow
def test_the_command_that_a_failure_names_knows_that_the_job_is_over(
    cluster: ScriptCluster, client: FlinklikeClient, tmp_path: Path
) -> None:
    base = tmp_path / "out"
    job_id = submit(client, base, blocked=1)
    reached(lambda: state(client, job_id) == "FAILED", "the job fails")
    message = client.get(f"/jobs/{job_id}/exceptions")["exceptionHistory"]["entries"][0]["stacktrace"]
    arguments = shlex.split(message.rpartition("bin/commit-outputs.sh ")[2].splitlines()[0])
    (base / f".commit-{job_id}").unlink()
    done = cluster.script("commit-outputs.sh", *arguments)
    assert done.returncode == 0, done.stdout + done.stderr
    assert len(visible(base)) == FILES
