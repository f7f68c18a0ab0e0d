"""`slotmanager.preemption` with real processes: a queue gets its share though no task of the other one ends (R64)."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from airflow_flinklike.client import FlinklikeClient
from runtime.common.ids import JobId
from tests.kit.cluster.script_cluster import ScriptCluster
from tests.kit.host.levels import reached

pytestmark = [pytest.mark.process, pytest.mark.etcd]

PROGRAM = """
import time
from pathlib import Path
from airflow_flinklike import Pipeline


def hold(ctx):
    place = Path(ctx.params["place"])
    with (place / f"began-{ctx.params['name']}-{ctx.subtask_index}").open("a") as began:
        began.write("x")
    while not (place / f"end-{ctx.params['name']}").exists():
        time.sleep(0.05)
    return ctx.subtask_index


pipeline = Pipeline("hold")
pipeline.source("hold", hold, parallelism=2, exclusive=False)
alone = Pipeline("alone")
alone.source("hold", hold)  # exclusive, as it has no consumer
"""


@pytest.fixture(scope="module")
def cluster() -> Iterator[ScriptCluster]:
    options = {
        "taskmanager.spark.enabled": "false",
        "taskmanager.numberOfTaskSlots": "2",
        "slotmanager.preemption": "true",
        "slotmanager.preemption.timeout": "1 s",
        "restart-strategy.type": "none",
    }
    with ScriptCluster(options) as made:
        yield made


@pytest.fixture
def client(cluster: ScriptCluster) -> Iterator[FlinklikeClient]:
    with cluster.connect() as made:
        yield made


class Jobs:
    """Programs that run until the test ends them."""

    def __init__(self, cluster: ScriptCluster, client: FlinklikeClient, place: Path) -> None:
        self.cluster, self.client, self.place = cluster, client, place
        (place / "hold.py").write_text(PROGRAM)

    def run(self, name: str, queue: str, pipeline: str = "pipeline") -> JobId:
        params = ("--param", f"place={self.place}", "--param", f"name={name}")
        done = self.cluster.cli("run", "-d", "--json", "--queue", queue, *params, f"hold.py:{pipeline}", cwd=self.place)
        assert done.returncode == 0, done.stderr
        return JobId(json.loads(done.stdout)["job_id"])

    def begun(self, name: str) -> list[int]:
        """How often each subtask has begun."""
        return [len(path.read_text()) for path in sorted(self.place.glob(f"began-{name}-*"))]

    def end(self, name: str, job_id: JobId) -> object:
        (self.place / f"end-{name}").touch()
        return self.client.wait_for_result(job_id).value


@pytest.fixture
def jobs(cluster: ScriptCluster, client: FlinklikeClient, tmp_path: Path) -> Jobs:
    return Jobs(cluster, client, tmp_path)


def test_a_task_above_the_share_of_its_queue_runs_again_later(jobs: Jobs) -> None:
    first = jobs.run("a", "etl")
    reached(lambda: jobs.begun("a") == [1, 1], "both slots are taken")
    second = jobs.run("b", "reports")
    reached(lambda: len(jobs.begun("b")) == 1, "the other queue has its share, though no task has ended")
    told = jobs.client.get(f"/jobs/{first}/exceptions")
    (failure,) = told["exceptionHistory"]["entries"]
    assert failure["exceptionName"] == "SlotPreempted"
    assert (
        "its slot goes to queue reports, which holds 0 of its share of 1 slot and has waited for more than 1 s"
        in failure["stacktrace"]
    )
    assert sorted(jobs.begun("a")) == [1, 1], "it waits"
    assert jobs.end("b", second) == {"hold": [0, 1]}
    reached(lambda: sorted(jobs.begun("a")) == [1, 2], "it runs again, though no restart is allowed")
    assert jobs.end("a", first) == {"hold": [0, 1]}
    assert sorted(jobs.begun("a")) == [1, 2]


def test_what_is_exclusive_is_not_ended(jobs: Jobs, cluster: ScriptCluster) -> None:
    kept = [jobs.run(name, "etl", "alone") for name in ("c", "d")]
    reached(lambda: jobs.begun("c") + jobs.begun("d") == [1, 1], "both slots are taken")
    waiting = jobs.run("e", "reports", "alone")
    reached(lambda: "1st of 1 in queue reports" in cluster.cli("info", waiting).stdout, "it waits")
    log = Path(cluster.run / "run" / "log")
    asked = lambda: "gives 1 slots back" in "".join(path.read_text() for path in log.glob("*jobmanager*.log"))  # noqa: E731
    reached(asked, "a slot was asked back")
    assert jobs.begun("e") == []
    assert jobs.end("c", kept[0]) == 0
    reached(lambda: jobs.begun("e") == [1], "the slot of a task that has ended by itself")
    assert (jobs.end("d", kept[1]), jobs.end("e", waiting)) == (0, 0)
    assert jobs.begun("d") == [1]
