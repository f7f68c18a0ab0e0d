"""Flink's own command line with streaming jobs: what docs/rest.md says that it can do with them."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from airflow_flinklike.client import FlinklikeClient
from runtime.checkpoint.savepoint.savepoint_files import read_savepoint
from runtime.common.ids import JobId
from tests.kit.cluster.gated_streams import GatedStream
from tests.kit.cluster.script_cluster import ScriptCluster
from tests.kit.host.levels import reached
from tests.kit.rest.flink_clients import flink
from tests.process.conftest import SPARK

pytestmark = [
    pytest.mark.process,
    pytest.mark.etcd,
    pytest.mark.spark,
    pytest.mark.extended,
    pytest.mark.timeout(1800),
]


@pytest.fixture
def cluster(class_archive: Path | None) -> Iterator[ScriptCluster]:
    with ScriptCluster(SPARK, class_archive=class_archive) as made:
        yield made


@pytest.fixture
def client(cluster: ScriptCluster) -> Iterator[FlinklikeClient]:
    with cluster.connect() as made:
        yield made


class FlinkCommandLine:
    """Flink's, on streaming jobs of a cluster."""

    def __init__(self, cluster: ScriptCluster, home: Path) -> None:
        self._cluster, self._home = cluster, home

    def told(self, *arguments: str) -> str:
        """What a command that works has printed."""
        done = flink(*arguments, address=self._cluster.url, token=self._cluster.token, home=self._home)
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    def saved(self, *arguments: str) -> Path:
        """The savepoint that a command has made: its path is printed."""
        text = self.told(*arguments)
        found = re.search(r"(?:Path|stored in|location): ?(file:\S+?)\.?$", text, re.MULTILINE) or re.search(
            r"(file:\S+savepoint-\S+?)\.?(?:\s|$)", text
        )
        assert found is not None, text
        return Path(urlsplit(found[1]).path)


def test_streaming_jobs(cluster: ScriptCluster, client: FlinklikeClient, tmp_path: Path) -> None:
    job = GatedStream(cluster, client, tmp_path)
    commands, place = FlinkCommandLine(cluster, tmp_path), str(tmp_path / "savepoints")
    job.wait(lambda: client.get(f"/jobs/{job.job_id}/streams")["vertices"][0]["subtasks"][0]["queries"], "its query")
    assert f"{job.job_id} : gated (RUNNING)" in commands.told("list")
    assert "completed" in commands.told("checkpoint", job.job_id)
    assert client.get(f"/jobs/{job.job_id}/checkpoints")["latest"]["completed"] is not None

    running = commands.saved("savepoint", job.job_id, place)
    assert batches_in(running) == [0]
    assert client.status(job.job_id).status.value == "RUNNING"

    stopped = commands.saved("stop", "-p", place, job.job_id)
    assert batches_in(stopped) == [0]
    ends(client, job.job_id, "FINISHED")

    second = started(job, stopped, 1)
    drained = commands.saved("stop", "-d", "-p", place, second)
    assert batches_in(drained) == [1]
    ends(client, second, "FINISHED")

    third = started(job, drained, 2)
    assert batches_in(commands.saved("cancel", "-s", place, third)) == [2]
    ends(client, third, "FINISHED")
    assert job.written() == ["0 1", "1 2", "2 3"]


def batches_in(savepoint: Path) -> list[int]:
    return [query.snapshot.batch_id for query in read_savepoint(savepoint).queries]


def ends(client: FlinklikeClient, job_id: JobId, state: str) -> None:
    reached(lambda: client.status(job_id).status.value == state, f"the job is {state}", timeout=200)


def started(job: GatedStream, savepoint: Path, batch: int) -> JobId:
    """A job that goes on from there, and has made the next batch."""
    job.rows(batch + 1)
    job.open(batch)
    program = f"{job.place / 'job.py'}:build"
    job_id = JobId(f"{batch:032x}")
    run = job.cluster.cli(
        "run", "-d", "--job-id", job_id, "-s", str(savepoint), "--param", f"place={job.place}", program
    )
    assert run.returncode == 0, run.stderr
    job.wait(lambda: f"{batch} {batch + 1}" in job.written(), f"batch {batch}")
    path = f"/jobs/{job_id}/streams"
    job.wait(lambda: committed(job.client.get(path)) == batch, f"batch {batch} is told")
    return job_id


def committed(streams: dict[str, list[dict[str, list[dict[str, list[dict[str, int]]]]]]]) -> int:
    """The last batch that is told of the only query, -1 for none."""
    queries = [one for vertex in streams["vertices"] for part in vertex["subtasks"] for one in part["queries"]]
    return max((one["batch-id"] for one in queries), default=-1)
