"""A stateful query under 1,000 rows a second: drained, stopped and saved while processes end, freeze and move.

All in one cluster, one after the other: whatever happens each row is in the table once in the end.
"""

from __future__ import annotations

import json
import os
import signal
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import psutil
import pytest

from airflow_flinklike.client import FlinklikeClient, new_job_id
from runtime.common.ids import JobId
from tests.chaos.members import PARTS
from tests.chaos.streams import rows_of
from tests.kit.cluster.script_cluster import ScriptCluster
from tests.kit.host.levels import reached_while
from tests.process.conftest import SPARK
from tests.process.test_moved_streams import process_of

pytestmark = [
    pytest.mark.process,
    pytest.mark.etcd,
    pytest.mark.spark,
    pytest.mark.extended,
    pytest.mark.timeout(1800),
]

OPTIONS = {
    **SPARK,
    "taskmanager.drain-timeout": "120 s",
    "taskmanager.isolation-timeout": "20 s",
    "restart-strategy.type": "fixed-delay",
    "restart-strategy.fixed-delay.attempts": "50",
    "restart-strategy.fixed-delay.delay": "500 ms",
    "execution.checkpointing.timeout": "90 s",
}
ROWS_IN_FILE, FILE_EVERY = 250, 0.25
PROGRAM = """
from airflow_flinklike import Pipeline


def files(ctx):
    return ctx.spark.readStream.schema("n long").json(ctx.params["place"] + "/in")


def table(ctx, df):
    return df.dropDuplicates(["n"]).writeStream.format("parquet").option("path", ctx.params["place"] + "/table")


def build(place):
    pipeline = Pipeline("attacked", params={"place": str(place)})
    pipeline.stream_source("files", files).stream_sink("table", table, trigger="500 milliseconds")
    return pipeline
"""


class AttackedStream:
    """The job, and the thread that brings rows."""

    def __init__(self, cluster: ScriptCluster, client: FlinklikeClient, place: Path) -> None:
        self.cluster, self.client, self.place = cluster, client, place
        self.job_id: JobId = new_job_id()
        self.saved = str(place / "savepoints")
        (place / "in").mkdir()
        (place / "job.py").write_text(PROGRAM)
        self._files = 0
        self._is_over = threading.Event()
        self._thread = threading.Thread(target=self._bring, daemon=True)
        self._thread.start()

    def _bring(self) -> None:
        while not self._is_over.wait(FILE_EVERY):
            first = self._files * ROWS_IN_FILE
            part = self.place / "in" / f".{self._files:05}"
            part.write_text("".join(json.dumps({"n": first + one}) + "\n" for one in range(ROWS_IN_FILE)))
            part.rename(part.with_name(f"{self._files:05}.json"))
            self._files += 1

    def end(self) -> Counter[int]:
        """No row comes any more; all that came."""
        self._is_over.set()
        self._thread.join()
        return Counter(range(self._files * ROWS_IN_FILE))

    def start(self, *more: str) -> None:
        self.job_id = new_job_id()
        program = f"{self.place / 'job.py'}:build"
        run = self.cluster.cli("run", "-d", "--job-id", self.job_id, "--param", f"place={self.place}", *more, program)
        assert run.returncode == 0, run.stderr

    def wait(self, look: Callable[[], object], what: str) -> None:
        reached_while(look, what, progress=self.cluster.cpu)

    def query(self) -> dict[str, Any]:
        (vertex,) = self.client.get(f"/jobs/{self.job_id}/streams")["vertices"]
        (subtask,) = vertex["subtasks"]
        return dict(subtask)

    def batch(self) -> int:
        return max((int(one["batch-id"]) for one in self.query()["queries"]), default=-1)

    def goes_on(self) -> str:
        """Wait for two more batches; the TaskManager that makes them."""
        before = self.batch()
        self.wait(lambda: self.query()["status"] == "RUNNING" and self.batch() > before + 1, "two more batches")
        return str(self.query()["taskmanager-id"])

    def ask(self, kind: str) -> str:
        trigger, name = new_job_id(), "targetDirectory" if kind == "stop" else "target-directory"
        self.client.post(f"/jobs/{self.job_id}/{kind}", {"triggerId": trigger, name: self.saved})
        return trigger

    def location(self, trigger: str) -> str:
        """Of the savepoint, "" where the operation has failed."""
        path = f"/jobs/{self.job_id}/savepoints/{trigger}"
        self.wait(lambda: self.client.get(path)["status"]["id"] != "IN_PROGRESS", "the end of the operation")
        return str(self.client.get(path)["operation"].get("location", ""))

    def is_over(self) -> bool:
        return self.client.status(self.job_id).status.is_globally_terminal

    def start_again_if_stopped(self, trigger: str) -> None:
        """All or nothing: the job has FINISHED, and another one goes on from its savepoint, or it goes on itself."""
        if location := self.location(trigger):
            self.wait(self.is_over, "the end of the job")
            assert self.client.status(self.job_id).status.value == "FINISHED"
            self.start("--from-savepoint", urlsplit(location).path)
        self.goes_on()


@pytest.fixture
def cluster(class_archive: Path | None) -> Iterator[ScriptCluster]:
    with ScriptCluster(OPTIONS, job_masters=2, workers=3, class_archive=class_archive) as made:
        yield made


def parts(pid: int, role: str) -> list[psutil.Process]:
    """The slot processes of a TaskManager, or its JVM."""
    return [one for one in psutil.Process(pid).children(recursive=True) if PARTS.get(one.name()) == role]


def test_whatever_happens_meanwhile_each_row_is_there_once(cluster: ScriptCluster, tmp_path: Path) -> None:
    with cluster.connect() as client:
        job = AttackedStream(cluster, client, tmp_path)
        job.start()
        drain_two_at_once(job)
        stop_a_task_manager_below_a_savepoint(job)
        drain_the_owner_of_a_stop(job)
        kill_the_jvm_below(job, "savepoints")
        kill_the_jvm_below(job, "stop")
        freeze_below_a_stop(job, "slot")
        freeze_below_a_stop(job, "spark")
        wanted = job.end()
        stopped = cluster.cli("stop", job.job_id, "--drain", "--savepoint", job.saved, timeout=400)
        assert stopped.returncode == 0, stopped.stderr
        job.wait(job.is_over, "the end of the job")
        found = rows_of(tmp_path, "table")
        assert ((wanted - found).total(), (found - wanted).total()) == (0, 0)
        assert not list(Path(job.saved).glob(".*")), "nothing is left of savepoints that failed"


def drain_two_at_once(job: AttackedStream) -> None:
    first = job.goes_on()
    others = [one["id"] for one in job.client.get("/taskmanagers")["taskmanagers"] if one["id"] != first]
    for one in (first, others[0]):
        job.client.post(f"/taskmanagers/{one}/drain", {})
    job.wait(lambda: job.query()["taskmanager-id"] == others[1], "the query on the third one")
    assert job.goes_on() == others[1]
    for one in (first, others[0]):
        job.client.post(f"/taskmanagers/{one}/undrain", {})


def stop_a_task_manager_below_a_savepoint(job: AttackedStream) -> None:
    pid = process_of(job.cluster, job.client, job.goes_on())
    trigger = job.ask("savepoints")
    os.kill(pid, signal.SIGTERM)
    _ = job.location(trigger)
    _ = job.goes_on()
    job.cluster.start_task_manager()


def drain_the_owner_of_a_stop(job: AttackedStream) -> None:
    address = job.client.get(f"/jobs/{job.job_id}")["jobmaster"]
    (owner,) = [one["id"] for one in job.client.get("/jobmasters")["jobmasters"] if one["address"] == address]
    trigger = job.ask("stop")
    job.client.post(f"/jobmasters/{owner}/drain", {})
    job.start_again_if_stopped(trigger)
    job.client.post(f"/jobmasters/{owner}/undrain", {})


def kill_the_jvm_below(job: AttackedStream, kind: str) -> None:
    """As soon as there is something of the copy, or the operation is over."""
    pid = process_of(job.cluster, job.client, job.goes_on())
    trigger = job.ask(kind)
    path = f"/jobs/{job.job_id}/savepoints/{trigger}"
    while not list(Path(job.saved).glob(".*.part")) and job.client.get(path)["status"]["id"] == "IN_PROGRESS":
        pass
    for jvm in parts(pid, "spark"):
        jvm.kill()
    if kind == "stop":
        job.start_again_if_stopped(trigger)
    else:
        _ = job.location(trigger)
        _ = job.goes_on()


def freeze_below_a_stop(job: AttackedStream, role: str) -> None:
    """Longer than the operation may take."""
    frozen = parts(process_of(job.cluster, job.client, job.goes_on()), role)
    for one in frozen:
        one.suspend()
    trigger = job.ask("stop")
    try:
        _ = job.location(trigger)
    finally:
        for one in frozen:
            if one.is_running():
                one.resume()
    job.start_again_if_stopped(trigger)
