"""A streaming script on a real cluster: checkpoints, a savepoint, a stop while the JobManager dies, and a restore.

Rows are counted in the table of a file sink and in the file of a function for each batch: each is there once.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest

from airflow_flinklike.client import FlinklikeClient
from airflow_flinklike.exceptions import FlinklikeClientError
from runtime.checkpoint.savepoint.savepoint_files import read_savepoint
from runtime.common.ids import JobId
from tests.kit.cluster.job_managers import leader_and_standby
from tests.kit.cluster.script_cluster import ScriptCluster
from tests.kit.host.levels import reached, reached_while
from tests.process.conftest import SPARK

pytestmark = [pytest.mark.process, pytest.mark.etcd, pytest.mark.spark, pytest.mark.timeout(900)]

PATIENT = {"high-availability.lease-timeout": "60 s", "heartbeat.timeout": "120 s"}
"""No silence reaches these timeouts: a killed process is proved dead."""
TRIGGER = "1" * 32
SCRIPT = """
import sys, time
from pathlib import Path
from pyspark.sql import SparkSession

place, names = Path(sys.argv[1]), sys.argv[2:]
spark = SparkSession.builder.appName("orders").getOrCreate()
landing = spark.readStream.schema("id long").option("maxFilesPerTrigger", 1).json(str(place / "in"))


def each(batch, number):
    (place / f"begun-{number}").touch()
    rows = sorted(row.id for row in batch.collect())
    while number >= 2 and not (place / "gate").exists():
        time.sleep(0.05)
    (place / "each").mkdir(exist_ok=True)
    (place / "each" / str(number)).write_text(" ".join(map(str, rows)))


if "deaf" in names:  # to its interruption too
    landing.writeStream.queryName("deaf").foreachBatch(each).start()
    while True:
        try:
            time.sleep(1000)
        except BaseException as error:
            print("caught", type(error).__name__, flush=True)
if "table" in names:
    landing.writeStream.format("json").queryName("table").start(str(place / "table"))
if "each" in names:
    landing.writeStream.queryName("each").foreachBatch(each).start()
if "other" in names:
    landing.writeStream.queryName("other").format("json").start(str(place / "other"))
(place / "started").touch()
while not (place / "end").exists():
    try:
        time.sleep(0.1)
    except Exception:
        pass
"""


@pytest.fixture(scope="module")
def cluster(class_archive: Path | None) -> Iterator[ScriptCluster]:
    with ScriptCluster(
        {**SPARK, **PATIENT, "execution.streaming.stop-timeout": "10 s"}, masters=2, class_archive=class_archive
    ) as made:
        yield made


@pytest.fixture
def client(cluster: ScriptCluster) -> Iterator[FlinklikeClient]:
    with cluster.connect() as made:
        yield made


class Orders:
    """One place, and the jobs of one script over it."""

    def __init__(self, cluster: ScriptCluster, client: FlinklikeClient, place: Path) -> None:
        self.cluster, self.client, self.place, self.rows = cluster, client, place, 0
        (place / "in").mkdir()
        (place / "orders.py").write_text(SCRIPT)

    def put(self) -> None:
        """One more file with one more row: a batch of each query."""
        hidden = self.place / "in" / f".{self.rows}.json"
        hidden.write_text(json.dumps({"id": self.rows}) + "\n")
        hidden.rename(self.place / "in" / f"{self.rows}.json")
        self.rows += 1

    def run(self, *names: str, options: tuple[str, ...] = ()) -> str:
        program = (str(self.place / "orders.py"), str(self.place), *names)
        run = self.cluster.cli("run", "-d", "--json", "--streaming", *options, *program)
        assert run.returncode == 0, run.stderr
        return str(json.loads(run.stdout)["job_id"])

    def wait(self, look: Any, what: str) -> None:
        reached_while(look, what, progress=self.cluster.cpu)

    def table(self, name: str = "table") -> list[int]:
        """The rows of files that the log of the sink names."""
        found = []
        for entry in sorted((self.place / name / "_spark_metadata").glob("[0-9]*")):
            for line in entry.read_text().splitlines()[1:]:
                path = Path(urlsplit(json.loads(line)["path"]).path)
                found += [json.loads(row)["id"] for row in path.read_text().splitlines()]
        return sorted(found)

    def each(self) -> list[int]:
        return sorted(int(row) for path in (self.place / "each").glob("*") for row in path.read_text().split())

    def until(self, rows: int) -> None:
        self.wait(lambda: len(self.table()) >= rows and len(self.each()) >= rows, f"{rows} rows")
        assert (self.table(), self.each()) == (list(range(rows)), list(range(rows)))

    def status(self, job_id: str) -> str:
        return self.client.status(JobId(job_id)).status.value

    def failure(self, job_id: str) -> str:
        self.wait(lambda: self.status(job_id) == "FAILED", "its failure")
        return self.cluster.cli("info", job_id).stdout


def test_a_script_is_stopped_over_a_death_and_goes_on_from_its_savepoint(
    cluster: ScriptCluster, client: FlinklikeClient, tmp_path: Path
) -> None:
    orders, saved = Orders(cluster, client, tmp_path), tmp_path / "savepoints"
    orders.put()
    job = orders.run("table", "each", options=("-D", "execution.checkpointing.interval=1 s"))
    orders.put()
    orders.until(2)

    def positions() -> dict[str, int]:
        try:
            latest = client.get(f"/jobs/{job}/checkpoints")["latest"]["completed"]
            details = client.get(f"/jobs/{job}/checkpoints/details/{latest['id']}") if latest else {"positions": []}
        except FlinklikeClientError:
            return {}
        return {one["uid"]: one["batch-id"] for one in details["positions"]}

    orders.wait(lambda: positions() == {"table": 1, "each": 1}, "a checkpoint of both queries")
    assert "COMPLETED" in cluster.cli("checkpoints", job).stdout
    made = cluster.cli("savepoint", job, str(saved), "--json")
    assert made.returncode == 0, made.stderr
    earlier = Path(urlsplit(json.loads(made.stdout)["location"]).path)
    assert {one.uid: one.snapshot.batch_id for one in read_savepoint(earlier).queries} == {"table": 1, "each": 1}
    assert cluster.cli("stop", job, "--savepoint", str(saved), "--drain").returncode != 0, "no script is drained"
    # A batch runs, so the stop is under way when the leader dies, and it is answered by the next one.
    orders.put()
    orders.wait((tmp_path / "begun-2").exists, "a batch at its gate")
    client.post(f"/jobs/{job}/stop", {"triggerId": TRIGGER, "targetDirectory": str(saved)})
    leader, _ = leader_and_standby(cluster)
    os.kill(leader.pid, signal.SIGKILL)
    (tmp_path / "gate").touch()

    def operation() -> Any:
        try:
            return client.get(f"/jobs/{job}/savepoints/{TRIGGER}")["operation"]
        except FlinklikeClientError:
            return None

    orders.wait(operation, "the end of the stop")
    path = Path(urlsplit(operation()["location"]).path)
    reached(lambda: orders.status(job) == "FINISHED", "the end of the job")
    orders.put()
    orders.put()
    goes_on(orders, path)


def test_a_script_that_swallows_its_interruption_is_killed_and_has_finished(
    cluster: ScriptCluster, client: FlinklikeClient, tmp_path: Path
) -> None:
    orders = Orders(cluster, client, tmp_path)
    orders.put()
    job = orders.run("deaf")
    orders.wait(lambda: orders.each() == [0], "a batch")
    path = stop(orders, job)
    assert [one.uid for one in read_savepoint(path).queries] == ["deaf"]
    said = cluster.cli("logs", job).stdout
    assert "caught _EndedError" in said
    assert "has not ended within 10 s after its job was stopped with a savepoint, so its process was killed" in said
    vertex = client.get(f"/jobs/{job}")["vertices"][0]
    (subtask,) = client.get(f"/jobs/{job}/vertices/{vertex['id']}")["subtasks"]
    assert (subtask["status"], subtask["attempt"]) == ("FINISHED", 0)


def goes_on(orders: Orders, path: Path) -> None:
    """Other jobs from the savepoint: wrong ones are refused with both lists, and the right one begins behind it."""
    start = ("--from-savepoint", str(path))
    text = orders.failure(orders.run("table", "other", options=start))
    assert "'other' of the script is not in savepoint" in text, text
    claimed = orders.cluster.cli(
        "run", "-d", "--streaming", *start, "--claim-mode", "CLAIM", str(orders.place / "orders.py")
    )
    assert (claimed.returncode != 0, "cannot be claimed" in claimed.stderr) == (True, True), claimed.stderr
    job = orders.run("table", "each", options=start)
    orders.until(5)
    stopped = stop(orders, job)
    # The script leaves a query of the savepoint behind: that is said, and fails the job when its script ends.
    half = orders.run("table", options=("--from-savepoint", str(stopped)))
    orders.put()
    orders.wait(lambda: len(orders.table()) == 6, "the table goes on")
    refused = orders.cluster.cli("savepoint", half, str(orders.place / "savepoints"))
    assert (refused.returncode, "has not started 'each'" in refused.stderr) == (1, True), refused.stderr
    assert "has not started 'each' of savepoint" in orders.cluster.cli("info", half).stdout
    (orders.place / "end").touch()
    text = orders.failure(half)
    assert "has not started 'each' of savepoint" in text, text


def stop(orders: Orders, job: str) -> Path:
    stopped: subprocess.CompletedProcess[str] = orders.cluster.cli(
        "stop", job, "--savepoint", str(orders.place / "savepoints"), "--json"
    )
    assert stopped.returncode == 0, stopped.stderr
    reached(lambda: orders.status(job) == "FINISHED", "the end of the job")
    return Path(urlsplit(json.loads(stopped.stdout)["location"]).path)
