"""The cluster of conf/docker/compose.yaml on a real docker daemon: it runs jobs, and may lose one of each."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.kit.cluster.compose import ComposeCluster, why_not
from tests.kit.host.levels import reached

REASON = why_not()
pytestmark = [
    pytest.mark.process,
    pytest.mark.slow,
    pytest.mark.timeout(900),
    pytest.mark.skipif(bool(REASON), reason=REASON),
]

SHARED = "/var/lib/flinklike-shared"
SCRIPT = f"""
import pathlib, time
shared = pathlib.Path("{SHARED}/exchange")
with (shared / "runs").open("a") as file:
    file.write("run\\n")
while not (shared / "go").exists():
    time.sleep(0.05)
print("the container is", pathlib.Path("/etc/hostname").read_text().strip())
"""


@pytest.fixture
def cluster() -> Iterator[ComposeCluster]:
    with ComposeCluster({"FLINKLIKE__TASKMANAGER__SPARK__ENABLED": "false"}) as made:
        yield made


def submit(cluster: ComposeCluster, name: str) -> str:
    code, said = cluster.shell(name, f"cat > /tmp/etl.py <<'EOF'\n{SCRIPT}\nEOF")
    assert code == 0, said
    code, said = cluster.flinklike(name, "run --detached /tmp/etl.py")
    assert code == 0, said
    return said.split()[-1]


def state(cluster: ComposeCluster, name: str, job: str) -> str:
    _, said = cluster.flinklike(
        name,
        f"list --json | python3 -c 'import json, sys; "
        f'print(*[one["state"] for one in json.load(sys.stdin)["jobs"] if one["jid"] == "{job}"])\'',
    )
    return said.strip()


def test_one_of_each_may_be_killed_while_a_job_runs(cluster: ComposeCluster) -> None:
    job = submit(cluster, "jobmanager-1")
    runs = f"cat {SHARED}/exchange/runs"
    reached(lambda: cluster.shell("jobmanager-1", runs)[1] == "run\n", "the task runs", every=0.5)
    for name in ("etcd-1", "jobmaster-1", "jobmanager-1"):
        cluster.containers[name].kill()
    reached(lambda: state(cluster, "jobmanager-2", job) == "RUNNING", "the job is taken over", every=0.5)
    assert cluster.shell("jobmanager-2", runs)[1] == "run\n", "its task has not run again"
    for name in ("etcd-1", "jobmaster-1", "jobmanager-1"):
        cluster.containers[name].start()
        cluster.wait_healthy(name)
    cluster.containers["taskmanager-1"].kill()
    cluster.containers["taskmanager-1"].start()
    cluster.shell("jobmanager-1", f"touch {SHARED}/exchange/go")
    reached(lambda: state(cluster, "jobmanager-1", job) == "FINISHED", "the job ends", timeout=240, every=0.5)


def test_a_stop_is_in_order(cluster: ComposeCluster) -> None:
    codes = {}
    for name in ("taskmanager-1", "jobmaster-1", "jobmanager-1"):
        made = cluster.containers[name]
        made.stop(timeout=40)
        codes[name] = made.wait()["StatusCode"]
    assert codes == {"taskmanager-1": 0, "jobmaster-1": 0, "jobmanager-1": 143}
