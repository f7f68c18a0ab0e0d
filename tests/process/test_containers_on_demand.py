"""`resourcemanager.driver: docker`: TaskManagers are containers of a real daemon that come with jobs and go (R65)."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.kit.cluster.compose import SHARED, ComposeCluster, why_not
from tests.kit.host.levels import reached

REASON = why_not()
pytestmark = [
    pytest.mark.process,
    pytest.mark.slow,
    pytest.mark.timeout(900),
    pytest.mark.skipif(bool(REASON), reason=REASON),
]

MOST = 2
JOBS = 20
ENVIRONMENT = {
    "FLINKLIKE__TASKMANAGER__SPARK__ENABLED": "false",
    "FLINKLIKE__TASKMANAGER__NUMBEROFTASKSLOTS": "2",
    "FLINKLIKE__JOBMANAGER__JOBMASTER__SINGLE__ENABLE": "false",
    "FLINKLIKE__SLOTMANAGER__NUMBER_OF_SLOTS__MAX": str(2 * MOST),
    "FLINKLIKE__RESOURCEMANAGER__TASKMANAGER_TIMEOUT": "4 s",
    "FLINKLIKE__RESTART_STRATEGY__TYPE": "none",
}
GATE = f"{SHARED}/exchange/gate"
WAIT = f"""
import pathlib, time
while not pathlib.Path("{GATE}").exists():
    time.sleep(0.1)
"""
LEADERS = ("jobmanager-1", "jobmanager-2")


@pytest.fixture
def cluster() -> Iterator[ComposeCluster]:
    with ComposeCluster(ENVIRONMENT, services=("etcd", "jobmanager"), has_driver=True) as made:
        yield made


def submit(cluster: ComposeCluster, name: str, count: int, script: str = WAIT) -> list[str]:
    code, said = cluster.shell(name, f"cat > /tmp/wait.py <<'EOF'\n{script}\nEOF")
    assert code == 0, said
    run = "/opt/flinklike/bin/container.sh flinklike run --detached /tmp/wait.py"
    line = f"for n in $(seq {count}); do {run} & done; wait"
    code, said = cluster.shell(name, line)
    jobs = [line.split()[-1] for line in said.splitlines() if "JobID" in line]
    assert (code, len(jobs)) == (0, count), said
    return jobs


def test_containers_come_with_jobs_and_go_when_they_are_idle_though_the_leader_is_killed(
    cluster: ComposeCluster,
) -> None:
    assert cluster.all_workers() == []
    seen: set[str] = set()

    def look() -> dict[str, str]:
        now = cluster.workers()
        assert len(now) <= MOST, now
        seen.update(now)
        return now

    jobs = submit(cluster, "jobmanager-1", JOBS)
    reached(lambda: len(look()) == MOST, "as many as are allowed run")
    leader = cluster.leader(LEADERS)
    cluster.containers[leader].kill()
    (other,) = set(LEADERS) - {leader}

    def states() -> list[str]:
        look()
        return cluster.states(other, jobs)

    reached(lambda: states().count("RUNNING") == 2 * MOST, "the tasks are taken over", timeout=240)
    cluster.shell(other, f"touch {GATE}")
    reached(lambda: states() == ["FINISHED"] * JOBS, "all end", timeout=240)
    assert len(seen) == MOST, "the new leader, in another container, has neither lost nor doubled one"
    reached(lambda: not look(), "idle ones have ended")
    reached(lambda: not cluster.all_workers(), "nothing of them is left")


def test_job_masters_are_containers_too() -> None:
    more = {
        "FLINKLIKE__JOBMANAGER__JOBMASTER__SINGLE__ENABLE": "true",
        "FLINKLIKE__JOBMANAGER__JOBMASTER__AUTOSCALE__MAX": "1",
        "FLINKLIKE__JOBMANAGER__JOBMASTER__AUTOSCALE__SCALE_DOWN__INTERVAL": "3 s",
    }
    with ComposeCluster({**ENVIRONMENT, **more}, services=("etcd", "jobmanager-1"), has_driver=True) as cluster:
        (job,) = submit(cluster, "jobmanager-1", 1)
        reached(lambda: cluster.states("jobmanager-1", [job]) == ["RUNNING"], "it runs", timeout=240)
        assert cluster.kinds() == {"jobmaster", "taskmanager"}
        cluster.shell("jobmanager-1", f"touch {GATE}")
        reached(lambda: cluster.states("jobmanager-1", [job]) == ["FINISHED"], "it ends", timeout=240)
        reached(lambda: not cluster.all_workers(), "idle ones are gone", timeout=240)


def test_a_job_that_waits_says_what_the_daemon_lacks() -> None:
    more = {"FLINKLIKE__RESOURCEMANAGER__DOCKER__IMAGE": "flinklike-that-is-missing"}
    with ComposeCluster({**ENVIRONMENT, **more}, services=("etcd", "jobmanager-1"), has_driver=True) as cluster:
        submit(cluster, "jobmanager-1", 1)
        said = (
            "TaskManagers do not come up: docker at unix:///var/run/docker.sock has no image flinklike-that-is-missing"
        )
        reached(lambda: said in cluster.flinklike("jobmanager-1", "list")[1], "the reason is shown", every=0.5)
