"""A streaming job goes on with other splits and another parallelism: each split with its own state (R60)."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterator
from pathlib import Path

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
    (region,) = ctx.splits
    return ctx.spark.readStream.schema("id long").json(f"{ctx.params['place']}/in/{region}")


def counted(ctx, df):
    return df.groupBy("id").count()


def write(ctx, batch, batch_id):
    (region,) = ctx.splits
    with Path(ctx.params["place"], "out", region).open("a") as out:
        out.writelines(f"{row.id}={row['count']}\\n" for row in sorted(batch.collect()))


def build(place, regions):
    pipeline = Pipeline("regions", params={"place": place})
    regions = regions.split(",")
    rows = pipeline.stream_source("rows", read, splits=regions, parallelism=len(regions)).map("counted", counted)
    rows.stream_sink("each", write, trigger="200 milliseconds", output_mode="update", foreach_batch=True)
    return pipeline
"""


@pytest.fixture(scope="module")
def cluster(class_archive: Path | None) -> Iterator[ScriptCluster]:
    options = {**SPARK, "taskmanager.numberOfTaskSlots": "3"}
    with ScriptCluster(options, class_archive=class_archive) as made:
        yield made


@pytest.fixture
def client(cluster: ScriptCluster) -> Iterator[FlinklikeClient]:
    with cluster.connect() as made:
        yield made


class Regions:
    """The job, its input by region and what it has written."""

    def __init__(self, cluster: ScriptCluster, place: Path) -> None:
        self.cluster, self.place = cluster, place
        (place / "out").mkdir()
        (place / "job.py").write_text(PROGRAM)

    def comes(self, region: str, file: int, *ids: int) -> None:
        """A file of rows for a region."""
        directory = self.place / "in" / region
        directory.mkdir(parents=True, exist_ok=True)
        part = self.place / f"{region}-{file}"
        part.write_text("".join(f'{{"id": {one}}}\n' for one in ids))
        part.rename(directory / f"{file}.json")

    def run(self, regions: str, *options: str) -> subprocess.CompletedProcess[str]:
        given = ("--param", f"place={self.place}", "--param", f"regions={regions}")
        return self.cluster.cli("run", "-d", "--json", *options, *given, f"{self.place / 'job.py'}:build")

    def submit(self, regions: str, *options: str) -> JobId:
        done = self.run(regions, *options)
        assert done.returncode == 0, done.stderr
        return JobId(json.loads(done.stdout)["job_id"])

    def writes(self, **regions: list[str]) -> None:
        """Soon this is all that was ever written."""

        def written() -> dict[str, list[str]]:
            return {one.name: one.read_text().split() for one in (self.place / "out").iterdir()}

        try:
            reached_while(lambda: written() == regions, "the rows of all regions", progress=self.cluster.cpu)
        except AssertionError:
            assert written() == regions

    def stop(self, client: FlinklikeClient, job_id: JobId) -> Path:
        """A query is RUNNING behind its first trigger, which its owner hears after the rows are there."""
        reached_while(
            lambda: {one["status"] for one in client.get(f"/jobs/{job_id}")["vertices"]} == {"RUNNING"},
            "all queries run",
            progress=self.cluster.cpu,
        )
        done = self.cluster.cli("stop", job_id, "--savepoint", str(self.place / "savepoints"), "--json")
        assert done.returncode == 0, done.stderr
        return Path(json.loads(done.stdout)["location"].removeprefix("file:"))


def test_regions_come_and_change_places_and_each_goes_on_with_its_state(
    cluster: ScriptCluster, client: FlinklikeClient, tmp_path: Path
) -> None:
    job = Regions(cluster, tmp_path)
    job.comes("north", 1, 1, 2)
    job.comes("south", 1, 7)
    first = job.submit("north,south")
    job.writes(north=["1=1", "2=1"], south=["7=1"])
    savepoint = job.stop(client, first)
    assert {query.splits: query.state_schema[:15] for query in read_savepoint(savepoint).queries} == {
        ('"north"',): "0: (id long) ->",
        ('"south"',): "0: (id long) ->",
    }
    for number, region in enumerate(("north", "south", "west")):
        job.comes(region, 2, 7 - 6 * (number == 0))
    second = job.submit("west,south,north", "--from-savepoint", str(savepoint))
    job.writes(north=["1=1", "2=1", "1=2"], south=["7=1", "7=2"], west=["7=1"])
    savepoint = job.stop(client, second)
    for regions, sentence in (
        ("west,south", 'for the splits "north", which the job does not have'),
        ("east,west,south", 'for the splits "north", which the job does not have'),
    ):
        refused = job.run(regions, "--from-savepoint", str(savepoint))
        assert (refused.returncode, sentence in refused.stderr) == (1, True), refused.stderr
    job.comes("west", 3, 7)
    fourth = job.submit("west,south", "--from-savepoint", str(savepoint), "--allow-non-restored-state")
    job.writes(north=["1=1", "2=1", "1=2"], south=["7=1", "7=2"], west=["7=1", "7=2"])
    client.cancel(fourth)
