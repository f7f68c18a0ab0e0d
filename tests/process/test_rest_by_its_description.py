"""REST of a real cluster, asked by what reads /openapi.json and makes requests of it, right and wrong ones (R52)."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from airflow_flinklike.client import FlinklikeClient
from runtime.common.ids import JobId
from runtime.jobgraph.graph import vertex_id_of
from tests.kit.cluster.gated_jobs import GatedJobs
from tests.kit.cluster.script_cluster import ScriptCluster
from tests.kit.host.levels import reached

pytestmark = [pytest.mark.process, pytest.mark.etcd, pytest.mark.slow]

EXAMPLES = "15"
SEED = "12"
# What has the right shape may name what is not there, or contradict itself; 404 says that there is no such method, as
# Flink does.
UNCHECKED = ("positive_data_acceptance", "unsupported_method")
UNCHECKED_OF_KNOWN = (*UNCHECKED, "negative_data_rejection")  # it counts what we have put into the path as its own
GROWTH_MAX = 192 << 20
STOP = "/cluster"
"""Its DELETE ends the cluster."""


@pytest.fixture
def cluster() -> Iterator[ScriptCluster]:
    options = {
        "high-availability.type": "etcd",
        "taskmanager.spark.enabled": "false",
        "rest.long-poll.max-wait": "200 ms",
    }
    with ScriptCluster(options) as made:
        yield made


@pytest.fixture
def client(cluster: ScriptCluster) -> Iterator[FlinklikeClient]:
    with cluster.connect() as made:
        yield made


def feed(cluster: ScriptCluster, *arguments: str, cwd: Path, **path_parameters: str | int) -> None:
    """Every check holds for every request that was made. `path_parameters`: what stands in paths, else anything."""
    known = [f"{name} = {json.dumps(value)}\n" for name, value in path_parameters.items()]
    (cwd / "schemathesis.toml").write_text("".join(["[parameters]\n", *known]))
    command = [str(Path(sys.executable).parent / "schemathesis"), "run", f"{cluster.url}/openapi.json", "--no-color"]
    command += ["--header", f"Authorization: Bearer {cluster.token}", "--seed", SEED, "--max-examples", EXAMPLES]
    unchecked = UNCHECKED_OF_KNOWN if known else UNCHECKED
    command += ["--exclude-checks", ",".join(unchecked), "--request-timeout", "120", "--continue-on-failure"]
    command += ["--generation-database", "none", "--warnings", "off", "--exclude-path", STOP, *arguments]
    environment = {key: value for key, value in os.environ.items() if key != "CI"}
    done = subprocess.run(command, cwd=cwd, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


def undrain_all(client: FlinklikeClient) -> None:
    """Some requests were right."""
    for kind in ("taskmanagers", "jobmasters"):
        for one in client.get(f"/{kind}")[kind]:
            client.post(f"/{kind}/{one['id']}/undrain", {})


def test_no_request_is_answered_otherwise_than_described(
    cluster: ScriptCluster, client: FlinklikeClient, tmp_path: Path
) -> None:
    jobs = GatedJobs(cluster, client, tmp_path)
    (leader,) = cluster.pids()["jobmanager"]
    running, ended = jobs.submit("running"), jobs.submit("ended")
    jobs.open_gate("ended")
    reached(lambda: jobs.states([ended]) == ["FINISHED"], "it ends")
    before = psutil.Process(leader).memory_info().rss

    feed(cluster, cwd=tmp_path)
    vertex = vertex_id_of("ended")
    only = ("--include-path-regex", "^/jobs/[{]job_id[}]", "--include-method", "GET")
    # It gives up on a path with one part of any text beside parts that are given.
    others = dict.fromkeys(("trigger_id", "rescale_id", "operator_id", "task_manager_id"), "e" * 32)
    others["checkpoint_id"] = "7"
    feed(cluster, *only, cwd=tmp_path, job_id=ended, vertex_id=vertex, **others)

    assert cluster.pids()["jobmanager"] == [leader]
    assert psutil.Process(leader).memory_info().rss - before < GROWTH_MAX
    assert "Traceback" not in log_of_leader(cluster)
    undrain_all(client)
    jobs.open_gate("running")
    after: JobId = jobs.submit("after")
    jobs.open_gate("after")
    reached(lambda: jobs.states([after]) == ["FINISHED"], "an ordinary job is served")
    assert jobs.states([running])[0] in {"FINISHED", "CANCELED"}


def log_of_leader(cluster: ScriptCluster) -> str:
    """All that it has written."""
    files = (cluster.run / "run" / "log").glob("*jobmanager*")
    return "".join(path.read_text(encoding="utf-8", errors="replace") for path in files if path.is_file())
