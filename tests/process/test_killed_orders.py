"""The job of dags/stream_orders.py under ten kills of six kinds, and stopped, divided anew and started again meanwhile.

A generator writes orders, one query keeps windows with a watermark and writes them with Spark's file sink, one keeps
each order in SQLite. In the end a batch query over what came in has the same rows, each once.
"""

from __future__ import annotations

import json
import random
import signal
import sqlite3
import time
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from airflow_flinklike import function_job
from airflow_flinklike.client import FlinklikeClient, new_job_id
from runtime.common.ids import JobId
from tests.chaos.members import ChaosCluster
from tests.kit.checkpoint.query_directories import table_files
from tests.kit.cluster.counted_orders import Orders, judge, kept
from tests.kit.cluster.process_jobs import submit
from tests.kit.cluster.script_cluster import ROOT
from tests.kit.host.levels import reached, reached_while
from tests.process.test_killed_streams import CONTROL_PLANE, OPTIONS, PATIENCE, Killer, queries

pytestmark = [
    pytest.mark.process,
    pytest.mark.spark,
    pytest.mark.etcd,
    pytest.mark.slow,
    pytest.mark.extended,
    pytest.mark.timeout(5400),
]

KINDS = ("slot", "spark", "main", *CONTROL_PLANE, "everything")
KILLS = 10
UIDS = {"minutes", "ledger"}
STATE_STORE = "spark.sql.streaming.stateStore.providerClass"
ROCKS = "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"
PARTITIONS = (2, 3)
"""Of the state of the windows: as `orders_pipeline` has it, and in the job that follows."""
PROGRAM = f"{ROOT}/dags/stream_orders.py:orders_pipeline"


@pytest.fixture
def cluster(class_archive: Path | None) -> Iterator[ChaosCluster]:
    options = {**OPTIONS, STATE_STORE: ROCKS}  # the one whose partitions Spark divides anew
    with ChaosCluster(options, masters=1, job_masters=2, workers=1, class_archive=class_archive) as made:
        yield made


class OrdersJob:
    """The job, and the one that follows it."""

    def __init__(self, cluster: ChaosCluster, client: FlinklikeClient, base: Path) -> None:
        self._cluster, self._client, self._base = cluster, client, base
        self.job_id: JobId = self._start()

    def _start(self, *more: str) -> JobId:
        job_id = new_job_id()
        places = {"landing": "landing", "table": "table", "database": "orders.db"}
        params = [part for name, place in places.items() for part in ("--param", f"{name}={self._base}/{place}")]
        run = self._cluster.cli("run", "-d", "--job-id", job_id, *more, *params, PROGRAM)
        assert run.returncode == 0, run.stdout + run.stderr
        return job_id

    @property
    def partitions(self) -> int:
        """How many the state of the windows has."""
        state = self._cluster.run / "run" / "checkpoints" / self.job_id / "minutes" / "0" / "state" / "0"
        return sum(one.name.isdigit() for one in state.iterdir())

    def upgrade(self) -> None:
        """Stop it with a savepoint, and start the next one from there, with more partitions of its state."""
        assert self.partitions == PARTITIONS[0]
        stopped = self._cluster.cli(
            "stop", self.job_id, "--savepoint", str(self._base / "savepoints"), "--json", timeout=PATIENCE
        )
        assert stopped.returncode == 0, stopped.stdout + stopped.stderr
        path = urlsplit(json.loads(stopped.stdout)["location"]).path
        reached(lambda: self._client.get(f"/jobs/{self.job_id}")["state"] == "FINISHED", "the job before has ended")
        self.job_id = self._start("--from-savepoint", path, "--state-partitions", f"minutes={PARTITIONS[1]}")

    def all_run(self, but: dict[str, str] | None = None) -> dict[str, str]:
        """The runs of both queries, once they have made a batch and are others than those of `but`."""

        def look() -> dict[str, str] | None:
            found = queries(self._client, self.job_id)
            ready = {uid: one["run-id"] for uid, one in found.items() if one["batches"] > 0}
            return ready if ready.keys() == UIDS and not (but or {}).items() & ready.items() else None

        return reached(look, "both queries have made a batch", timeout=PATIENCE, every=0.2)

    def kill(self, killer: Killer, whom: str, known: dict[str, str]) -> dict[str, str]:
        """Kill, and wait until both run; what the kill does not concern goes on."""
        if whom == "slot":
            for one in self._cluster.members("slot"):
                one.send(signal.SIGKILL)
            return self.all_run(but=known)
        killer.kill(whom)
        if whom in CONTROL_PLANE:
            runs = self.all_run()
            assert runs == known, f"all go on without the {whom}"
            return runs
        return self.all_run(but=known)


def test_orders_are_there_once(cluster: ChaosCluster, tmp_path: Path) -> None:
    draw = random.Random(4)
    victims = [*KINDS, *draw.choices(KINDS[:-1], k=KILLS - len(KINDS))]
    draw.shuffle(victims)
    with cluster.connect(retry_for=PATIENCE) as client:
        with Orders(tmp_path) as source:
            job = OrdersJob(cluster, client, tmp_path)
            killer = Killer(cluster, tmp_path, draw)
            known = job.all_run()
            for number, whom in enumerate(victims):
                time.sleep(draw.uniform(0.0, 2.0))
                begun = time.monotonic()
                known = job.kill(killer, whom, known)
                print(f"{whom}: both run again after {time.monotonic() - begun:.1f} s", flush=True)
                if number == KILLS // 2:
                    job.upgrade()
                    known = job.all_run()
                    print(f"upgraded after {time.monotonic() - begun:.1f} s", flush=True)
        seen: dict[str, int] = {}
        written = source.written
        assert job.partitions == PARTITIONS[1]
        reached_while(lambda: _is_done(tmp_path, written, seen), "all is kept", progress=seen.copy, quiet=PATIENCE)
        client.cancel(job.job_id)
        reached(lambda: client.get(f"/jobs/{job.job_id}")["state"] == "CANCELED", "it has ended")
        found = judged(client, tmp_path)
        assert found == {"orders": source.written, "windows": found["windows"]}
        spoil(tmp_path)
        spoiled = judged(client, tmp_path)
        assert spoiled.pop("missing windows") > 0
        assert spoiled == {**found, "missing orders": 1, "orders too much": 1}, "the judge sees what is wrong"


def judged(client: FlinklikeClient, base: Path) -> dict[str, int]:
    """What the judge counts and is not 0."""
    found: dict[str, int] = submit(client, function_job(judge, args=[str(base)])).result()
    return {name: count for name, count in found.items() if count}


def spoil(base: Path) -> None:
    """One order in the place of another one, and a batch of windows that the log of the table does not have."""
    with sqlite3.connect(base / "orders.db", timeout=60) as database:
        database.execute("update orders set id = 1 where id = 0")
    table = base / "table"
    before = table_files(table)
    while table_files(table) == before:
        entries = [one for one in (table / "_spark_metadata").iterdir() if one.name.partition(".")[0].isdigit()]
        max(entries, key=lambda one: int(one.name.partition(".")[0])).unlink()


def _is_done(base: Path, orders: int, progress: dict[str, int]) -> bool:
    """Are all orders in the ledger, and in windows, but the last one, which has closed those of the others?"""
    from pyarrow.parquet import read_table

    rows = [row for part in table_files(base / "table") for row in read_table(part).to_pylist()]
    progress.update(kept=kept(base), closed=sum(row["orders"] for row in rows))
    return progress["kept"] >= orders and progress["closed"] >= orders - 1
