"""Every process below running streaming queries is killed, at random moments, and each row is there once.

What a kill does not concern goes on: queries outlive the processes of the control plane.
"""

from __future__ import annotations

import asyncio
import os
import random
import signal
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from airflow_flinklike import function_job
from airflow_flinklike.client import FlinklikeClient
from runtime.common.ids import JobId
from tests.chaos.members import ChaosCluster
from tests.kit.cluster.counted_streams import Numbers, counting, judge, written
from tests.kit.cluster.process_jobs import submit
from tests.kit.host.levels import reached, reached_while
from tests.process.conftest import SPARK

pytestmark = [pytest.mark.process, pytest.mark.spark, pytest.mark.etcd, pytest.mark.slow, pytest.mark.timeout(2400)]

OPTIONS = {
    **SPARK,
    "taskmanager.numberOfTaskSlots": "4",
    "restart-strategy.type": "fixed-delay",
    "restart-strategy.fixed-delay.attempts": "1000",
    "restart-strategy.fixed-delay.delay": "500 ms",
    "heartbeat.interval": "1 s",
    "heartbeat.timeout": "120 s",
}
QUERIES = 3
CONTROL_PLANE = ("jobmaster", "jobmanager")
PATIENCE = 600.0


@pytest.fixture
def cluster(class_archive: Path | None) -> Iterator[ChaosCluster]:
    with ChaosCluster(OPTIONS, masters=1, job_masters=2, workers=1, class_archive=class_archive) as made:
        yield made


def queries(client: FlinklikeClient, job_id: JobId) -> dict[str, dict[str, Any]]:
    """What each query does that runs, by its uid."""
    vertices = client.get(f"/jobs/{job_id}/streams")["vertices"]
    return {
        vertex["uid"]: query
        for vertex in vertices
        for subtask in vertex["subtasks"]
        if subtask["status"] == "RUNNING"
        for query in subtask["queries"]
    }


def runs(client: FlinklikeClient, job_id: JobId) -> dict[str, str]:
    return {uid: query["run-id"] for uid, query in queries(client, job_id).items()}


def all_run(client: FlinklikeClient, job_id: JobId, *, but: dict[str, str] | None = None) -> dict[str, str]:
    """The runs of all queries once they run and have made a batch; those of `but` do not count."""

    def look() -> dict[str, str] | None:
        found = queries(client, job_id)
        ready = {uid: one["run-id"] for uid, one in found.items() if one["batches"] > 0}
        return ready if len(ready) == QUERIES and not (but or {}).items() & ready.items() else None

    return reached(look, "all queries have made a batch", timeout=PATIENCE, every=0.2)


class Killer:
    """Kills one process, or all of them, and starts again what does not come by itself."""

    def __init__(self, cluster: ChaosCluster, base: Path, draw: random.Random) -> None:
        self._cluster = cluster
        self._base = base
        self._draw = draw

    def kill(self, whom: str) -> None:
        if whom == "everything":
            for pid in self._cluster.processes():
                with suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
            self._cluster.start()
            return
        if whom == "slot":
            os.kill(int((self._base / "pid").read_text()), signal.SIGKILL)
            return
        self._draw.choice(self._cluster.members(whom)).send(signal.SIGKILL)
        role = "taskmanager" if whom == "main" else whom
        if role in self._cluster.wanted:
            reached(lambda: self._cluster.missing().get(role), f"a {role} is gone")
            done = asyncio.run(self._cluster.start_one(role))
            assert done.returncode == 0, done.stdout + done.stderr


def judged(client: FlinklikeClient, base: Path) -> dict[str, int]:
    found: dict[str, int] = submit(client, function_job(judge, args=[str(base)])).result()
    return found


def after(client: FlinklikeClient, job_id: JobId, whom: str, known: dict[str, str]) -> dict[str, str]:
    """The runs once all is well again: those of queries that the kill does not concern are the same as before."""
    hit = {} if whom in CONTROL_PLANE else {"batches": known["batches"]} if whom == "slot" else known
    if not hit:
        reached(lambda: runs(client, job_id) == known, f"all go on without the {whom}", timeout=PATIENCE)
    now = all_run(client, job_id, but=hit)
    untouched = known.keys() - hit.keys()
    assert {uid: now[uid] for uid in untouched} == {uid: known[uid] for uid in untouched}, whom
    return now


OTHERS = (2, 3)


@pytest.mark.parametrize("seed", [1, *(pytest.param(seed, marks=pytest.mark.extended) for seed in OTHERS)])
def test_each_row_is_there_once(cluster: ChaosCluster, tmp_path: Path, seed: int) -> None:
    draw = random.Random(seed)
    killer = Killer(cluster, tmp_path, draw)
    victims = ["slot", "spark", "main", *CONTROL_PLANE, "everything"]
    draw.shuffle(victims)
    with cluster.connect(retry_for=PATIENCE) as client, Numbers(tmp_path / "landing") as source:
        job_id = submit(client, counting(tmp_path)).job_id
        known = all_run(client, job_id)
        for whom in victims:
            time.sleep(draw.uniform(0.0, 2.0))
            begun = time.monotonic()
            killer.kill(whom)
            known = after(client, job_id, whom, known)
            print(f"{whom}: all run again after {time.monotonic() - begun:.1f} s")
        assert client.get(f"/jobs/{job_id}")["state"] == "RUNNING"
    with cluster.connect(retry_for=PATIENCE) as client:
        right = {"rows": source.written}
        all_is_read(tmp_path, source.written)
        assert client.get(f"/jobs/{job_id}/checkpoints")["counts"]["completed"] > 0, "its own interval, whoever owns it"
        state = cluster.run / "run" / "checkpoints" / job_id
        assert {one.name for one in state.iterdir()} == {*known, "_tables"}
        client.cancel(job_id)
        reached(lambda: client.get(f"/jobs/{job_id}")["state"] == "CANCELED", "it has ended")
        reached(lambda: not state.exists(), "a job that keeps nothing when it is cancelled has no directories any more")
        assert nonzero(judged(client, tmp_path)) == right


def all_is_read(base: Path, rows: int) -> None:
    """What came in while nothing ran is read by its progress: batches of a busy machine may take any time."""
    found: dict[str, int] = {}

    def look() -> bool:
        found.update(written(base))
        return min(found.values()) >= rows

    reached_while(look, "all is read", progress=lambda: dict(found), quiet=PATIENCE)


def nonzero(found: dict[str, int]) -> dict[str, int]:
    return {name: count for name, count in found.items() if count}
