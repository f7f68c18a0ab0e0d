"""A streaming job on a real cluster whose batches wait at gates, but the first one; each writes what it has read."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from airflow_flinklike.client import FlinklikeClient, new_job_id
from runtime.common.ids import JobId
from tests.kit.cluster.script_cluster import ScriptCluster
from tests.kit.host.levels import reached_while

PROGRAM = """
import time
from pathlib import Path

from airflow_flinklike import Pipeline


def files(ctx):
    return ctx.spark.readStream.schema("id long").option("maxFilesPerTrigger", 1).json(ctx.params["in"])


def gated(ctx, batch, batch_id):
    begun = Path(ctx.params["gates"]) / f"begun-{batch_id}"
    begun.touch()
    while batch_id and not begun.with_name(f"open-{batch_id}").exists():
        time.sleep(0.05)
    with Path(ctx.params["out"]).open("a") as out:
        out.writelines(f"{batch_id} {row.id}\\n" for row in sorted(batch.collect()))


def build(place):
    pipeline = Pipeline("gated", params={name: f"{place}/{name}" for name in ("in", "gates", "out")})
    pipeline.stream_source("files", files).stream_sink("each", gated, trigger="200 milliseconds", foreach_batch=True)
    return pipeline
"""


class GatedStream:
    """A job that runs, and its first batch is written."""

    def __init__(self, cluster: ScriptCluster, client: FlinklikeClient, place: Path) -> None:
        self.cluster, self.client, self.place = cluster, client, place
        for name in ("in", "gates"):
            (place / name).mkdir()
        (place / "job.py").write_text(PROGRAM)
        self.job_id: JobId = new_job_id()
        self.rows(1)
        run = cluster.cli(
            "run", "-d", "--job-id", self.job_id, "--param", f"place={place}", f"{place / 'job.py'}:build"
        )
        assert run.returncode == 0, run.stderr
        self.wait(lambda: "0 1" in self.written(), "the first batch")

    def wait(self, look: Any, what: str) -> None:
        """A level that is reached as long as the cluster works."""
        reached_while(look, what, progress=self.cluster.cpu)

    def rows(self, number: int) -> None:
        """One more file, with one row: a batch."""
        hidden = self.place / "in" / f".{number}.json"
        hidden.write_text(json.dumps({"id": number}) + "\n")
        hidden.rename(self.place / "in" / f"{number}.json")

    def begin(self, batch: int) -> None:
        """The next batch, which waits at its gate."""
        self.rows(batch + 1)
        self.wait((self.place / "gates" / f"begun-{batch}").exists, f"batch {batch}")

    def open(self, batch: int) -> None:
        """Let a batch end."""
        (self.place / "gates" / f"open-{batch}").touch()

    def written(self) -> list[str]:
        """`batch row` of each row."""
        out = self.place / "out"
        return out.read_text().splitlines() if out.exists() else []

    def operation(self, trigger_id: str) -> Any:
        """A savepoint or stop, as REST tells it."""
        return self.client.get(f"/jobs/{self.job_id}/savepoints/{trigger_id}")

    def outcome(self, trigger_id: str) -> Any:
        """The operation once it has ended."""
        self.wait(lambda: self.operation(trigger_id)["operation"], f"the end of {trigger_id}")
        return self.operation(trigger_id)["operation"]

    def attempts(self) -> set[str]:
        """The ids of all attempts of the job."""
        found = self.client.get(f"/jobs/{self.job_id}/attempts")
        return {str(one["attempt"]) for vertex in found["vertices"] for one in vertex["attempts"]}
