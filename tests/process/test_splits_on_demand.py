"""Splits on demand, real processes: a slow one holds back no other, and each counts once whoever is killed (R12)."""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from airflow_flinklike.client import FlinklikeClient
from runtime.common.ids import JobId
from tests.kit.cluster.script_cluster import ScriptCluster
from tests.kit.host.levels import reached

pytestmark = [pytest.mark.process, pytest.mark.etcd]

SPLITS = 8
PROGRAM = """
import os
import time
from pathlib import Path
from airflow_flinklike import Pipeline

SPLITS = 8


def read(ctx):
    place, rows = Path(ctx.params["place"]), []
    for split in ctx.next_splits():
        with (place / f"taken-{split}").open("a") as taken:
            taken.write(f"{os.getpid()}\\n")
        while not (place / f"go-{split}").exists():
            time.sleep(0.02)
        rows.append(split)
    return rows


def read_slowly(ctx):
    place, rows = Path(ctx.params["place"]), []
    for split in ctx.next_splits():
        while split == 0 and len(list(place.glob("read-*"))) < SPLITS - 1:
            time.sleep(0.02)  # for as long as another one is left
        (place / f"read-{split}").touch()
        rows.append(split)
    return rows


def find(ctx):
    return list(range(SPLITS))


def report(ctx, read):
    return [sorted(split for rows in read for split in rows), [len(rows) for rows in read]]


gated = Pipeline("gated")
gated.source("read", read, splits=range(SPLITS), splits_on_demand=True, parallelism=2).gather().sink("report", report)
slow = Pipeline("slow")
slow.source("read", read_slowly, splits=find, splits_on_demand=True, parallelism=2).gather().sink("report", report)
"""


@pytest.fixture(scope="module")
def cluster() -> Iterator[ScriptCluster]:
    options = {
        "taskmanager.spark.enabled": "false",
        "taskmanager.numberOfTaskSlots": "1",
        "restart-strategy.type": "fixed-delay",
        "restart-strategy.fixed-delay.delay": "0 s",
        "restart-strategy.fixed-delay.attempts": "10",
        "high-availability.lease-timeout": "60 s",
        "heartbeat.timeout": "120 s",
    }
    with ScriptCluster(options, workers=2, job_masters=1) as made:
        yield made


@pytest.fixture
def client(cluster: ScriptCluster) -> Iterator[FlinklikeClient]:
    with cluster.connect() as made:
        yield made


def run(cluster: ScriptCluster, place: Path, pipeline: str) -> JobId:
    (place / "jobs.py").write_text(PROGRAM)
    done = cluster.cli("run", "-d", "--json", "--param", f"place={place}", f"jobs.py:{pipeline}", cwd=place)
    assert done.returncode == 0, done.stderr
    return JobId(json.loads(done.stdout)["job_id"])


def test_a_slow_split_holds_back_no_other(cluster: ScriptCluster, client: FlinklikeClient, tmp_path: Path) -> None:
    """It is read only when all others are: dealt out beforehand, those behind it in its share would wait for ever."""
    job_id = run(cluster, tmp_path, "slow")
    rows, numbers = client.wait_for_result(job_id).value
    assert rows == list(range(SPLITS))
    assert sorted(numbers) == [1, SPLITS - 1]
    (vertex,) = [one for one in client.get(f"/jobs/{job_id}")["vertices"] if one["name"] == "read"]
    assert vertex["splits"] == {"total": SPLITS, "finished": SPLITS, "running": 0, "left": 0}
    assert vertex["progress"]["text"] == f"{SPLITS} of {SPLITS} splits"


class Reader:
    """Which splits were taken, by which processes, and which may be read to their end."""

    def __init__(self, place: Path) -> None:
        self._place = place

    def takers(self, split: int) -> list[int]:
        path = self._place / f"taken-{split}"
        return [int(pid) for pid in path.read_text().split()] if path.exists() else []

    def wait(self, split: int, times: int = 1) -> int:
        """Until it was taken so often. The process that has taken it last."""
        reached(lambda: len(self.takers(split)) >= times, f"split {split} is taken")
        return self.takers(split)[times - 1]

    def go(self, *splits: int) -> None:
        for split in splits:
            (self._place / f"go-{split}").touch()


def kill_task_manager(slot_process: int, watchers: list[int]) -> None:
    """That of a slot process, at once: they stand still first, so that none of them acts on the end of another."""
    (watcher,) = [one.pid for one in psutil.Process(slot_process).parents() if one.pid in watchers]
    (guard,) = psutil.Process(watcher).children()
    (main,) = guard.children()
    for number in (signal.SIGSTOP, signal.SIGKILL):
        for pid in (watcher, guard.pid, main.pid):
            os.kill(pid, number)


def test_each_split_counts_once_whoever_is_killed(
    cluster: ScriptCluster, client: FlinklikeClient, tmp_path: Path
) -> None:
    reader = Reader(tmp_path)
    job_id = run(cluster, tmp_path, "gated")
    first, second = reader.wait(0), reader.wait(1)
    assert first != second
    reader.go(1)
    assert reader.wait(2) == second

    os.kill(first, signal.SIGKILL)  # the slot process, with split 0
    third = reader.wait(3)
    assert third not in {first, second}

    (owner,) = cluster.pids()["jobmaster"]
    os.kill(owner, signal.SIGKILL)
    assert cluster.script("start-jobmaster.sh", "start", *cluster.dynamic).returncode == 0
    reached(lambda: client.get(f"/jobs/{job_id}")["takeovers"], "the job has another owner")
    reader.go(3)
    assert reader.wait(4) == third, "no task has restarted, and the next owner knows what was handed out"
    assert len(reader.takers(3)) == 1

    kill_task_manager(second, cluster.pids()["taskmanager"])  # with splits 1 and 2
    reader.go(*range(SPLITS))
    rows, _ = client.wait_for_result(job_id).value
    assert rows == list(range(SPLITS))
    assert [len(reader.takers(split)) for split in (0, 2, 3)] == [2, 2, 1]
