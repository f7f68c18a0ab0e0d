"""Many jobs are cancelled at once: no process logs a warning."""

from __future__ import annotations

import pytest

from tests.kit.cluster.naps import run_naps
from tests.kit.cluster.script_cluster import ScriptCluster
from tests.kit.host.levels import reached

pytestmark = [pytest.mark.process, pytest.mark.etcd]

JOBS = 120
OPTIONS = {"taskmanager.spark.enabled": "false", "taskmanager.numberOfTaskSlots": str(JOBS)}


def warnings(cluster: ScriptCluster) -> list[str]:
    """What processes have logged above INFO."""
    files = sorted((cluster.run / "run" / "log").glob("*.log"))
    lines = [line for path in files for line in path.read_text(errors="replace").splitlines()]
    return [line for line in lines if " WARNING " in line or " ERROR " in line]


def test_a_cancel_of_many_jobs_warns_of_nothing() -> None:
    with ScriptCluster(OPTIONS, job_masters=1) as cluster, cluster.connect() as client:
        ids = run_naps(client, JOBS)
        before = warnings(cluster)
        for job_id in ids:
            client.cancel(job_id)

        def states() -> set[str]:
            return {one["state"] for one in client.get("/jobs/overview")["jobs"]}

        reached(lambda: states() == {"CANCELED"}, "all are cancelled")
        slots = "slots-available"
        reached(lambda: client.get("/overview")[slots] == JOBS, "every slot is free again")
        assert [line for line in warnings(cluster) if line not in before] == []
