"""A streaming job follows its TaskManagers: 1, then 3, then 2. Each row is there once, each pause is told (R68)."""

from __future__ import annotations

import json
import os
import signal
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest

from airflow_flinklike.client import FlinklikeClient
from runtime.common.ids import JobId
from tests.kit.cluster.script_cluster import ScriptCluster
from tests.kit.host.levels import reached_while
from tests.process.conftest import SPARK

pytestmark = [pytest.mark.process, pytest.mark.etcd, pytest.mark.spark, pytest.mark.timeout(600)]

SPLITS = 6
OPTIONS = {
    **SPARK,
    "scheduler-mode": "reactive",
    "taskmanager.numberOfTaskSlots": "2",
    "jobmanager.adaptive-scheduler.executing.cooldown-after-rescaling": "1 s",
    "restart-strategy.type": "fixed-delay",
    "restart-strategy.fixed-delay.attempts": "100",
}
PROGRAM = """
from pathlib import Path

from airflow_flinklike import Pipeline


def read(ctx):
    (split,) = ctx.splits
    return ctx.spark.readStream.schema("id long").json(f"{ctx.params['place']}/in/{split}")


def write(ctx, df):
    (split,) = ctx.splits
    return df.writeStream.format("parquet").option("path", f"{ctx.params['place']}/table/{split}")


def counted(ctx, df):
    return df.groupBy().count()


def keep(ctx, batch, batch_id):
    target = Path(ctx.params["place"], "counts", ctx.splits[0])
    target.write_text(str(batch.collect()[0][0]))


def build(place, splits):
    pipeline = Pipeline("reactive", params={"place": place})
    names = [f"split-{number}" for number in range(int(splits))]
    rows = pipeline.stream_source("rows", read, splits=names)
    rows.stream_sink("table", write, trigger="200 milliseconds")
    more = pipeline.stream_source("more", read, splits=names[:2]).map("counted", counted)
    more.stream_sink("counts", keep, trigger="200 milliseconds", output_mode="complete", foreach_batch=True)
    return pipeline
"""


class Rows:
    """Rows that come, and those that are in the tables for readers of Spark."""

    def __init__(self, place: Path) -> None:
        self.place = place
        self.sent = 0
        (place / "counts").mkdir()
        (place / "job.py").write_text(PROGRAM)

    def come(self) -> None:
        """Some more for each split."""
        self.sent += 1
        for split in range(SPLITS):
            directory = self.place / "in" / f"split-{split}"
            directory.mkdir(parents=True, exist_ok=True)
            part = self.place / f"part-{split}"
            part.write_text("".join(f'{{"id": {self.sent * 100 + split * 10 + row}}}\n' for row in range(3)))
            part.rename(directory / f"{self.sent}.json")

    def there(self) -> Counter[int]:
        """How often each row is in a table."""
        import pyarrow.parquet

        files = {
            Path(json.loads(line)["path"].removeprefix("file://"))
            for log in self.place.glob("table/*/_spark_metadata/[0-9]*")  # each tenth one repeats those before
            for line in log.read_text().splitlines()[1:]
        }
        found: Counter[int] = Counter()
        for path in files:
            found.update(pyarrow.parquet.read_table(path)["id"].to_pylist())
        return found

    def are_there(self) -> bool:
        """Is every row in its table?"""
        return len(self.there()) == self.sent * SPLITS * 3 and self.counts() == [self.sent * 3] * 2

    def counts(self) -> list[int]:
        """What the state of the other query has counted."""
        found = [self.place / "counts" / f"split-{split}" for split in range(2)]
        return [int(path.read_text() or 0) if path.exists() else 0 for path in found]


@pytest.fixture
def cluster(class_archive: Path | None) -> Iterator[ScriptCluster]:
    with ScriptCluster(OPTIONS, job_masters=1, workers=1, class_archive=class_archive) as made:
        yield made


@pytest.fixture
def client(cluster: ScriptCluster) -> Iterator[FlinklikeClient]:
    with cluster.connect() as made:
        yield made


class Job:
    """The job on its cluster."""

    def __init__(self, cluster: ScriptCluster, client: FlinklikeClient, rows: Rows) -> None:
        self.cluster, self.client, self.rows = cluster, client, rows
        given = ("--param", f"place={rows.place}", "--param", f"splits={SPLITS}")
        done = cluster.cli("run", "-d", "--json", *given, f"{rows.place / 'job.py'}:build")
        assert done.returncode == 0, done.stderr
        self.id = JobId(json.loads(done.stdout)["job_id"])

    def runs_with(self, *parallelism: int) -> None:
        """Soon each query has so many subtasks, which all run."""

        def is_so() -> bool:
            vertices = self.client.get(f"/jobs/{self.id}")["vertices"]
            states = {one["status"] for one in vertices}
            return [one["parallelism"] for one in vertices] == [*parallelism] and states == {"RUNNING"}

        reached_while(is_so, f"it runs with {parallelism}", progress=self.cluster.cpu)
        self.rows.come()
        reached_while(self.rows.are_there, "all rows are there", progress=self.cluster.cpu)

    def history(self) -> list[dict[str, Any]]:
        """Its rescales, newest first, as `flinklike rescale` tells them."""
        done = self.cluster.cli("rescale", self.id, "--json")
        assert done.returncode == 0, done.stderr
        found: list[dict[str, Any]] = json.loads(done.stdout)["rescales"]
        return found


def kill_a_task_manager(client: FlinklikeClient) -> None:
    """Its main process, with SIGKILL."""
    port = int(str(client.get("/taskmanagers")["taskmanagers"][-1]["path"]).rpartition(":")[2])
    sockets = [one for one in psutil.net_connections(kind="tcp") if one.status == "LISTEN"]
    listening = [one for one in sockets if one.laddr and one.laddr.port == port]
    (pid,) = {one.pid for one in listening if one.pid is not None}
    os.kill(pid, signal.SIGKILL)


def test_a_job_follows_its_task_managers(cluster: ScriptCluster, client: FlinklikeClient, tmp_path: Path) -> None:
    rows = Rows(tmp_path)
    rows.come()
    job = Job(cluster, client, rows)
    job.runs_with(1, 1)
    cluster.start_task_manager()
    cluster.start_task_manager()
    job.runs_with(4, 2)
    kill_a_task_manager(client)
    job.runs_with(2, 2)
    assert set(rows.there().values()) == {1}, "each row is there once"
    history = job.history()
    completed = [one for one in history if one["terminalState"] == "COMPLETED"]
    assert {one["triggerCause"] for one in completed} >= {
        "INITIAL_SCHEDULE",
        "NEW_RESOURCE_AVAILABLE",
        "RECOVERABLE_FAILOVER",
    }
    pauses = [one["pauseInMillis"] for one in completed if one["triggerCause"] != "INITIAL_SCHEDULE"]
    assert all(pause > 0 for pause in pauses), pauses
    summary = client.get(f"/jobs/{job.id}/rescales/summary")
    assert summary["pauseStatsInMillis"]["max"] == max(pauses)


def test_bounds_outlive_the_owner_of_the_job(cluster: ScriptCluster, client: FlinklikeClient, tmp_path: Path) -> None:
    rows = Rows(tmp_path)
    rows.come()
    cluster.start_task_manager()
    job = Job(cluster, client, rows)
    job.runs_with(2, 2)
    assert cluster.cli("rescale", job.id, "table=1-1").returncode == 0
    job.runs_with(1, 2)
    (owner,) = cluster.pids()["jobmaster"]
    os.kill(owner, signal.SIGKILL)
    assert cluster.script("start-jobmaster.sh", "start", *cluster.dynamic).returncode == 0
    reached_while(
        lambda: client.get(f"/jobs/{job.id}")["state"] == "RUNNING" and bool(job.history()),
        "another process owns it",
        progress=cluster.cpu,
    )
    job.runs_with(1, 2)
    requirements = client.get(f"/jobs/{job.id}/resource-requirements")
    assert sorted(one["parallelism"]["upperBound"] for one in requirements.values()) == [1, 2]
    done = cluster.cli("rescale", job.id, "table=7")
    assert done.returncode != 0
    assert "has 6 splits" in done.stderr
