"""Batch operators before and behind a streaming query, on a real cluster whose processes are killed meanwhile (R59)."""

from __future__ import annotations

import json
import os
import shutil
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from airflow_flinklike import JobHandle
from airflow_flinklike.client import FlinklikeClient, new_job_id
from runtime.common.ids import JobId
from tests.kit.cluster.script_cluster import ScriptCluster
from tests.kit.host.levels import reached_while
from tests.process.conftest import SPARK

pytestmark = [pytest.mark.process, pytest.mark.spark, pytest.mark.etcd, pytest.mark.timeout(600)]

PROGRAM = """
import os
import time
from pathlib import Path

from airflow_flinklike import Pipeline


def gate(ctx, name):
    begun = Path(ctx.params["place"], f"begun-{name}")
    begun.with_suffix(".part").write_text(str(os.getpid()))
    begun.with_suffix(".part").rename(begun)
    while not begun.with_name(f"open-{name}").exists():
        time.sleep(0.05)


def names(ctx):
    gate(ctx, "names")
    return ctx.spark.createDataFrame([(0, "even"), (1, "odd")], "remainder long, name string")


def numbers(ctx):
    read = ctx.spark.readStream.schema("n long").option("maxFilesPerTrigger", 1)
    return read.json(f"{ctx.params['place']}/in")


def named(ctx, numbers, names):
    return numbers.join(names, numbers.n % 2 == names.remainder)


def write(ctx, batch, batch_id):
    rows = sorted(f"{batch_id} {row.n} {row.name}" for row in batch.collect())
    if batch_id:
        gate(ctx, f"batch-{batch_id}")
    Path(ctx.params["place"], "out", str(batch_id)).write_text("\\n".join(rows))


def joined(place):
    pipeline = Pipeline("joined", params={"place": place})
    side = pipeline.source("names", names).broadcast()
    rows = pipeline.stream_source("numbers", numbers).apply("named", named, side)
    rows.stream_sink("each", write, trigger="200 milliseconds", foreach_batch=True)
    return pipeline


def report(ctx, ended):
    gate(ctx, "report")
    rows = [line for one in Path(ctx.params["place"], "out").iterdir() for line in one.read_text().splitlines()]
    return {"ended": ended, "rows": sorted(rows)}


def ending(place):
    pipeline = Pipeline("ending", params={"place": place})
    side = pipeline.source("names", names).broadcast()
    rows = pipeline.stream_source("numbers", numbers).apply("named", named, side)
    ended = rows.stream_sink("each", write, trigger="availableNow", foreach_batch=True)
    ended.gather().sink("report", report)
    return pipeline
"""


@pytest.fixture(scope="module")
def cluster(class_archive: Path | None) -> Iterator[ScriptCluster]:
    options = {
        **SPARK,
        "restart-strategy.type": "fixed-delay",
        "restart-strategy.fixed-delay.attempts": "10",
        "restart-strategy.fixed-delay.delay": "100 ms",
        "high-availability.lease-timeout": "60 s",
        "heartbeat.timeout": "120 s",
    }
    with ScriptCluster(options, class_archive=class_archive) as made:
        yield made


@pytest.fixture
def client(cluster: ScriptCluster) -> Iterator[FlinklikeClient]:
    with cluster.connect() as made:
        yield made


class Job:
    """One of the two, its files and its gates."""

    def __init__(self, cluster: ScriptCluster, client: FlinklikeClient, place: Path, builder: str) -> None:
        self.cluster, self.client, self.place = cluster, client, place
        for name in ("in", "out"):
            (place / name).mkdir()
        (place / "job.py").write_text(PROGRAM)
        self.job_id: JobId = new_job_id()
        self._builder = builder

    def submit(self) -> None:
        given = ("--job-id", self.job_id, "--param", f"place={self.place}", f"{self.place / 'job.py'}:{self._builder}")
        done = self.cluster.cli("run", "-d", *given)
        assert done.returncode == 0, done.stderr

    def comes(self, number: int) -> None:
        """A file with one number: a batch."""
        hidden = self.place / "in" / f".{number}.json"
        hidden.write_text(json.dumps({"n": number}) + "\n")
        os.utime(hidden, (number, number))  # Spark reads files by their times, and these may be of one moment
        hidden.rename(self.place / "in" / f"{number}.json")

    def wait(self, look: Any, what: str) -> None:
        reached_while(look, what, progress=self.cluster.cpu)

    def begun(self, gate: str) -> int:
        """The process that waits at a gate."""
        file = self.place / f"begun-{gate}"
        self.wait(file.exists, gate)
        pid = int(file.read_text())
        file.unlink()
        return pid

    def open(self, gate: str) -> None:
        (self.place / f"open-{gate}").touch()

    def kill_at(self, gate: str) -> None:
        """Kill the process that waits at a gate; another one comes there, and goes on."""
        killed = self.begun(gate)
        os.kill(killed, signal.SIGKILL)
        assert self.begun(gate) != killed
        self.open(gate)

    def written(self) -> dict[str, str]:
        return {one.name: one.read_text() for one in (self.place / "out").iterdir()}

    def attempts(self) -> dict[str, int]:
        """How many attempts each vertex has had."""
        found = self.client.get(f"/jobs/{self.job_id}/attempts")["vertices"]
        return {one["name"]: len(one["attempts"]) for one in found}


def test_a_side_input_and_its_query_are_killed(cluster: ScriptCluster, client: FlinklikeClient, tmp_path: Path) -> None:
    job = Job(cluster, client, tmp_path, "joined")
    job.comes(0)
    job.submit()
    job.kill_at("names")
    job.wait(lambda: job.written() == {"0": "0 0 even"}, "the first batch")
    job.comes(1)
    job.kill_at("batch-1")
    job.wait(lambda: job.written() == {"0": "0 0 even", "1": "1 1 odd"}, "the batch that was begun twice")
    assert job.attempts() == {"names": 2, "numbers -> named -> each": 2}, "the side input is there still"
    assert not (tmp_path / "begun-names").exists(), "and is not made again"
    client.cancel(job.job_id)
    job.wait(lambda: client.status(job.job_id).status.value == "CANCELED", "the end of the job")


def test_a_side_input_that_is_lost_is_made_again(
    cluster: ScriptCluster, client: FlinklikeClient, tmp_path: Path
) -> None:
    """Somebody has deleted the partition when the query, which has been moved, needs it to begin again."""
    job = Job(cluster, client, tmp_path, "joined")
    job.comes(0)
    job.open("names")
    job.submit()
    job.begun("names")
    job.wait(lambda: job.written() == {"0": "0 0 even"}, "the first batch")
    stopped = cluster.script("taskmanager.sh", "stop", *cluster.dynamic)
    assert stopped.returncode == 0, stopped.stderr
    for partitions in (cluster.run / "run" / "exchange").glob(f"*/{job.job_id}"):
        shutil.rmtree(partitions)
    cluster.start_task_manager()
    job.begun("names")
    job.comes(1)
    job.open("batch-1")
    job.wait(lambda: job.written() == {"0": "0 0 even", "1": "1 1 odd"}, "the batch behind the loss")
    client.cancel(job.job_id)


def test_what_stands_behind_a_query_that_ends_is_killed(
    cluster: ScriptCluster, client: FlinklikeClient, tmp_path: Path
) -> None:
    job = Job(cluster, client, tmp_path, "ending")
    for number in range(3):
        job.comes(number)
    job.submit()
    job.kill_at("names")
    job.kill_at("batch-1")
    job.open("batch-2")
    job.kill_at("report")
    job.wait(lambda: client.status(job.job_id).status.value == "FINISHED", "the end of the job")
    found = JobHandle(client, job.job_id).result()
    assert found["rows"] == ["0 0 even", "1 1 odd", "2 2 even"]
    assert [one["last_batch"] for one in found["ended"]] == [2]
    assert job.attempts() == {"names": 2, "numbers -> named -> each": 2, "report": 2}
