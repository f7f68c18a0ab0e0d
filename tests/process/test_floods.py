"""A client without the token floods a gRPC port: other clients are served, no process loses a role (R39, R40).

The floods last longer than lease and `heartbeat.timeout`. How fast others are served says `bin/bench.sh hostile`.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator

import pytest

from airflow_flinklike.client import new_job_id
from runtime.common.states import JobStatus
from runtime.config import log_files
from tests.benchmarks.cluster import job_graph
from tests.kit.cluster.script_cluster import ScriptCluster
from tests.kit.host.levels import reached
from tests.kit.strangers import bystanders
from tests.kit.strangers.h2_floods import flooding

pytestmark = [pytest.mark.process, pytest.mark.etcd]

LEASE = 8
SECONDS = 12.0
OPTIONS = {
    "taskmanager.spark.enabled": "false",
    "high-availability.lease-timeout": f"{LEASE} s",
    "high-availability.etcd.timeout": f"{LEASE} s",
    "heartbeat.interval": "1 s",
    "heartbeat.timeout": "10 s",
}
FLOODS = [
    ("jobmanager", "continuation"),
    pytest.param("jobmanager", "many-continuations", marks=pytest.mark.extended),  # as "continuation"
    ("jobmanager", "rapid-reset"),
    ("jobmanager", "requests"),
    ("jobmanager", "bad-metadata"),
    ("jobmanager", "unread-pings"),
    ("jobmanager", "silence"),
    ("jobmaster", "continuation"),
    pytest.param("jobmaster", "rapid-reset", marks=pytest.mark.extended),  # as at the JobManager
    ("taskmanager", "continuation"),
]
GROWTH_MAX_MB = 150.0


@pytest.fixture(scope="module")
def cluster() -> Iterator[ScriptCluster]:
    with ScriptCluster(OPTIONS, job_masters=1) as made:
        yield made


@pytest.mark.parametrize(("role", "kind"), FLOODS)
def test_a_flood_disturbs_nobody(cluster: ScriptCluster, role: str, kind: str) -> None:
    victim = bystanders.victims(cluster)[role]
    roles = bystanders.terms_of_leaders(cluster), bystanders.lapses(cluster)
    before = bystanders.resident_mb(victim.pid)
    job = new_job_id()
    with flooding(kind, victim.address, SECONDS), cluster.connect() as client:
        until = time.monotonic() + SECONDS
        client.submit(job_graph("no-op", "tests.benchmarks.programs:no_op"), job_id=job)
        seen = asyncio.run(bystanders.use(cluster, victim, lambda: time.monotonic() > until))
        assert client.wait_for_result(job).status is JobStatus.FINISHED
    for name, who in seen.items():
        # On a machine that is busy with other things, too, a call may have to be repeated; the benchmark counts those.
        assert len(who.failures) < len(who.seconds), (name, who.failures)
    assert (bystanders.terms_of_leaders(cluster), bystanders.lapses(cluster)) == roles
    assert bystanders.resident_mb(victim.pid) < before + GROWTH_MAX_MB
    logs = cluster.run / "run" / "log"
    reached(
        lambda: not [one for one in logs.glob("*.out") if one.stat().st_size > log_files.SIZE_MAX],
        "they are cut",
        timeout=30,
    )
    printed = [one.stat().st_size for one in logs.glob("*.out*")]
    assert max(printed) <= log_files.SIZE_MAX
