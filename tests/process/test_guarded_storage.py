"""R51: storage that opens for the token of now only is read by tasks and written by commits, while tokens change."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from airflow_flinklike.client import FlinklikeClient, new_job_id
from runtime.common.states import JobStatus
from runtime.jobgraph.graph import FunctionReference, JobGraph, JobVertex, Operator, OperatorKind, vertex_id_of
from tests.kit.cluster.script_cluster import ScriptCluster
from tests.kit.host.levels import reached
from tests.kit.storage.guarded_files import give_out, install

pytestmark = [pytest.mark.process]

READ = """
import sys
import fsspec
with fsspec.open("guarded://" + sys.argv[1]) as file:
    print("read", file.read().decode())
"""


@pytest.fixture
def site(tmp_path: Path) -> Path:
    folder = tmp_path / "site"
    install(folder)
    return folder


def renew(tmp_path: Path, site: Path, key: str) -> None:
    """A new key, and a provider that gives it to the cluster."""
    give_out(site, key)
    draft = tmp_path / "lake.new"
    draft.touch(mode=0o600)
    draft.write_text(json.dumps({"values": {"fsspec.guarded.secret": key}}))
    draft.replace(tmp_path / "lake.json")


@pytest.fixture
def cluster(tmp_path: Path, site: Path) -> Iterator[ScriptCluster]:
    renew(tmp_path, site, "first-key")
    prefix = "security.delegation.token.provider.lake"
    options = {
        "taskmanager.spark.enabled": "false",
        f"{prefix}.type": "file",
        f"{prefix}.path": str(tmp_path / "lake.json"),
    }
    made = ScriptCluster(options, job_masters=1)
    made.environment["PYTHONPATH"] = str(site)
    with made:
        yield made


def write(client: FlinklikeClient, base: Path) -> None:
    """A job whose outputs a TaskManager moves into that place."""
    code = FunctionReference(target="tests.kit.cluster.credential_programs:write_with_fsspec")
    sink = JobVertex(
        id=vertex_id_of("sink"),
        name="sink",
        operators=(Operator(name="sink", kind=OperatorKind.FUNCTION, code=code),),
        parallelism=1,
        max_parallelism=1,
    )
    graph = JobGraph(name="writes", vertices=(sink,), params={"base": f"guarded://{base}", "files": 3})
    job_id = new_job_id()
    client.submit(graph, job_id=job_id)
    assert client.wait_for_result(job_id).status is JobStatus.FINISHED
    assert len([path for path in base.iterdir() if path.name[0] not in "._"]) == 3


def test_tasks_and_commits_use_the_newest(cluster: ScriptCluster, tmp_path: Path, site: Path) -> None:
    (tmp_path / "data").write_text("some rows")
    (tmp_path / "read.py").write_text(READ)

    def reads() -> bool:
        done = cluster.cli("run", str(tmp_path / "read.py"), str(tmp_path / "data"))
        return done.returncode == 0 and "read some rows" in done.stdout

    with cluster.connect() as client:
        for number, key in enumerate(("first-key", "second-key", "third-key")):
            if number:
                renew(tmp_path, site, key)
            reached(reads, f"a task opens it with {key}")
            write(client, tmp_path / f"out-{number}")
    kept = [path for path in (cluster.run / "run").rglob("*") if path.is_file() and b"third-key" in path.read_bytes()]
    assert [path.name for path in kept] == ["lake.json"]
