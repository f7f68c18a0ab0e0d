"""A query that has FINISHED beside one that does not end is part of a savepoint, and goes on behind its last batch."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from airflow_flinklike.client import FlinklikeClient
from runtime.checkpoint.savepoint.savepoint_files import read_savepoint
from runtime.common.ids import JobId
from tests.kit.cluster.script_cluster import ScriptCluster
from tests.kit.host.levels import reached_while
from tests.process.conftest import SPARK

pytestmark = [pytest.mark.process, pytest.mark.spark, pytest.mark.timeout(600)]

PROGRAM = """
from pathlib import Path

from airflow_flinklike import Pipeline


def read(ctx):
    read = ctx.spark.readStream.schema("n long").option("maxFilesPerTrigger", 1)
    return read.json(f"{ctx.params['place']}/in")


def table(ctx, df):
    return df.writeStream.format("json").option("path", f"{ctx.params['place']}/table")


def write(ctx, batch, batch_id):
    with Path(ctx.params["place"], "out").open("a") as out:
        out.writelines(f"{batch_id}:{row.n}\\n" for row in batch.collect())


def build(place):
    pipeline = Pipeline("both", params={"place": place})
    rows = pipeline.stream_source("rows", read)
    rows.stream_sink("backlog", table, trigger="availableNow", foreach_batch=False)
    rows.stream_sink("news", write, trigger="200 milliseconds", foreach_batch=True)
    return pipeline
"""


@pytest.fixture(scope="module")
def cluster(class_archive: Path | None) -> Iterator[ScriptCluster]:
    with ScriptCluster(SPARK, class_archive=class_archive) as made:
        yield made


@pytest.fixture
def client(cluster: ScriptCluster) -> Iterator[FlinklikeClient]:
    with cluster.connect() as made:
        yield made


class Both:
    """The job and its files."""

    def __init__(self, cluster: ScriptCluster, client: FlinklikeClient, place: Path) -> None:
        self._cluster, self._client, self._place = cluster, client, place
        (place / "in").mkdir()
        (place / "job.py").write_text(PROGRAM)

    def comes(self, *numbers: int) -> None:
        for number in numbers:
            hidden = self._place / "in" / f".{number}.json"
            hidden.write_text(json.dumps({"n": number}) + "\n")
            hidden.rename(self._place / "in" / f"{number}.json")

    def runs(self, *options: str) -> JobId:
        """A job whose first query has finished, and whose other one has written all that there is."""
        given = ("--param", f"place={self._place}", f"{self._place / 'job.py'}:build")
        done = self._cluster.cli("run", "-d", "--json", *options, *given)
        assert done.returncode == 0, done.stderr
        job_id = JobId(json.loads(done.stdout)["job_id"])
        numbers = sorted(int(one.stem) for one in (self._place / "in").glob("*.json"))
        self.wait(lambda: sorted(int(one.split(":")[1]) for one in self.news()) == numbers, "all rows")
        ended = ["FINISHED", "RUNNING"]
        self.wait(lambda: sorted(one["status"] for one in self.vertices(job_id)) == ended, "one has finished")
        return job_id

    def vertices(self, job_id: JobId) -> Any:
        return self._client.get(f"/jobs/{job_id}")["vertices"]

    def wait(self, look: Any, what: str) -> None:
        reached_while(look, what, progress=self._cluster.cpu)

    def saves(self, job_id: JobId, *command: str) -> Path:
        done = self._cluster.cli(command[0], job_id, *command[1:], "--json")
        assert done.returncode == 0, done.stderr
        return Path(json.loads(done.stdout)["location"].removeprefix("file:"))

    def news(self) -> list[str]:
        """`batch:number` of each row."""
        out = self._place / "out"
        return out.read_text().split() if out.exists() else []

    def table(self) -> list[int]:
        """As a reader of Spark sees it: what the log of the sink names."""
        log = self._place / "table" / "_spark_metadata"
        named = [json.loads(line) for one in log.glob("[0-9]*") for line in one.read_text().splitlines()[1:]]
        parts = [Path(one["path"].removeprefix("file://")) for one in named]
        return sorted(json.loads(line)["n"] for part in parts for line in part.read_text().splitlines())


def test_what_has_ended_goes_on_behind_its_last_batch(
    cluster: ScriptCluster, client: FlinklikeClient, tmp_path: Path
) -> None:
    job, target = Both(cluster, client, tmp_path), str(tmp_path / "savepoints")
    job.comes(0, 1)
    first = job.runs()
    saved = job.saves(first, "savepoint", target)
    found = {one.uid: one for one in read_savepoint(saved).queries}
    assert {uid: one.snapshot.batch_id for uid, one in found.items()} == {"backlog": 1, "news": 1}
    assert found["backlog"].snapshot.sink_path == str(tmp_path / "table")
    assert {one.sources for one in found.values()} == {(f"FileStreamSource[file:{tmp_path / 'in'}]",)}
    client.cancel(first)
    job.wait(lambda: client.status(first).status.value == "CANCELED", "the end of the first job")
    job.comes(2)
    second = job.runs("--from-savepoint", str(saved))
    first_two, last = job.news()[:-1], job.news()[-1]  # files of one millisecond come in any order
    assert ([line[0] for line in first_two], last) == (["0", "1"], "2:2")
    assert job.table() == [0, 1, 2], "each row once, and nothing read again"
    stopped = job.saves(second, "stop", "--savepoint", target)
    assert {one.snapshot.batch_id for one in read_savepoint(stopped).queries} == {2}
    job.wait(lambda: client.status(second).status.value == "FINISHED", "the end of the second job")
