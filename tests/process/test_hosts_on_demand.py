"""`resourcemanager.driver: ssh`: hosts of conf/workers, which a real sshd serves, are cold until jobs come (R65)."""

from __future__ import annotations

import json
import os
import signal
import subprocess
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from airflow_flinklike.client import FlinklikeClient, new_job_id
from runtime.common.ids import JobId
from runtime.common.states import JobStatus
from runtime.jobgraph.graph import JobGraph
from tests.benchmarks.cluster import job_graph
from tests.kit.cluster.script_cluster import ScriptCluster
from tests.kit.drivers.rigs import HOSTS, ProcessRig
from tests.kit.drivers.rigs import LABEL as WORKER
from tests.kit.drivers.sshd import SshHosts, why_no_sshd
from tests.kit.etcd.server import EtcdProcess
from tests.kit.host.levels import reached

REASON = why_no_sshd()
pytestmark = [
    pytest.mark.process,
    pytest.mark.etcd,
    pytest.mark.slow,
    pytest.mark.skipif(bool(REASON), reason=REASON),
]

MASTER = "127.0.0.2"
ONE, _ = HOSTS
NAP = job_graph("nap", "tests.benchmarks.programs:nap", params={"seconds": 1})
HOLD = job_graph("hold", "tests.benchmarks.programs:nap", params={"seconds": 300})
CONFIG = """
high-availability: {{type: etcd, cluster-id: {name}, storageDir: {run}/storage, lease-timeout: 3 s}}
high-availability.etcd: {{endpoints: "{etcd.endpoint}", allow-unsafe-version: true}}
high-availability.etcd.tls: {{ca: {etcd.tls.ca}, cert: {etcd.tls.client}, key: {etcd.tls.client}}}
jobmanager: {{rpc.port: 0, rpc.address: {master}, bind-host: 0.0.0.0, jobmaster.single.enable: false}}
rest: {{port: {port}, bind-address: 127.0.0.1}}
taskmanager: {{bind-host: 0.0.0.0, spark.enabled: false, numberOfTaskSlots: 1}}
exchange.dir: {run}/exchange
security: {{token-file: {run}/token, cluster-key-file: {run}/cluster-key}}
resourcemanager: {{driver: ssh, taskmanager-timeout: 4 s, ssh: {{look-interval: 1 s, retry-interval: 1 s}}}}
env.ssh.opts: {ssh}
"""


class Cluster(ScriptCluster):
    """A JobManager here; two lines for each of two hosts, on which nothing runs at first."""

    def __init__(self, etcd: EtcdProcess) -> None:
        super().__init__({}, job_masters=0, workers=0)
        self.hosts = SshHosts(self.run / "ssh", self.run / "run", HOSTS)
        conf = self.run / "conf"
        (conf / "workers").write_text("".join(f"{host}\n{host}\n" for host in HOSTS))
        names = {"name": self.run.name, "run": self.run, "master": MASTER, "port": self.port}
        (conf / "config.yaml").write_text(CONFIG.format(**names, etcd=etcd, ssh=self.hosts.options))
        self.environment["FLINKLIKE_TOKEN_FILE"] = str(self.run / "token")

    @property
    def token(self) -> str:
        """The cluster's token."""
        return (self.run / "token").read_text().strip()

    def workers(self, host: str) -> set[str]:
        """Labels of what runs on a host."""
        return {label for line in self.hosts.processes(host).values() for label in WORKER.findall(line)}


@pytest.fixture
def cluster(etcd: EtcdProcess) -> Iterator[Cluster]:
    made = Cluster(etcd)
    with made.hosts, made:
        yield made


def submit(client: FlinklikeClient, count: int, graph: JobGraph = NAP) -> list[JobId]:
    jobs = [new_job_id() for _ in range(count)]
    for job in jobs:
        client.submit(graph, job_id=job)
    return jobs


def finished(cluster: Cluster, jobs: list[JobId]) -> bool:
    def wait(job: JobId) -> JobStatus:
        with cluster.connect() as client:
            return client.wait_for_result(job).status

    with ThreadPoolExecutor(len(jobs)) as threads:
        return list(threads.map(wait, jobs)) == [JobStatus.FINISHED] * len(jobs)


def test_hosts_are_cold_until_jobs_come_and_afterwards_though_the_leader_is_killed(cluster: Cluster) -> None:
    def look() -> dict[str, set[str]]:
        now = {host: cluster.workers(host) for host in HOSTS}
        assert max(len(found) for found in now.values()) <= 2, "no host has more than lines, whoever leads"
        return now

    assert not any(look().values())
    with cluster.connect() as client:
        jobs = submit(client, 12)
        reached(lambda: all(look().values()), "both hosts have one")
        os.kill(cluster.pids()["jobmanager"][0], signal.SIGKILL)
        look()
        done = cluster.script("jobmanager.sh", "start", *cluster.dynamic)
        assert done.returncode == 0, done.stdout + done.stderr
        while not all(client.get(f"/jobs/{job}/status")["status"] == "FINISHED" for job in jobs):
            look()
    assert finished(cluster, jobs)
    reached(lambda: not any(look().values()), "idle ones are gone")


def test_what_runs_on_a_host_that_is_cut_off_goes_on_and_is_not_doubled(cluster: Cluster) -> None:
    with cluster.connect() as client:
        (hold,) = submit(client, 1, HOLD)
        reached(lambda: client.get(f"/jobs/{hold}/status")["status"] == "RUNNING", "it runs")
        (cut,) = (host for host in HOSTS if cluster.workers(host))
        (other,) = set(HOSTS) - {cut}
        before = cluster.workers(cut)
        cluster.hosts.cut_off(cut)
        assert finished(cluster, submit(client, 8))
        told = [event["message"] for event in client.get("/events")["events"]]
        assert all(f"{cut} cannot be reached" in one for one in told if "did not come up" in one), told
        assert cluster.workers(cut) == before
        assert client.get(f"/jobs/{hold}/status")["status"] == "RUNNING"
        workers = {one["id"]: one["state"] for one in client.get("/resourcemanager")["workers"]}
        assert [workers[label] for label in before] == ["registered"]
        cluster.hosts.connect(cut)
        client.cancel(hold)
        reached(lambda: not cluster.workers(cut) | cluster.workers(other), "idle ones are gone, there too")


def test_a_stop_ends_them_on_all_hosts(cluster: Cluster) -> None:
    with cluster.connect() as client:
        submit(client, 4, HOLD)
        reached(lambda: all(len(cluster.workers(host)) == 2 for host in HOSTS), "as many as there are lines")
    (cluster.run / "conf" / "workers").write_text(f"{ONE}\n")
    done = cluster.script("stop-cluster.sh")
    assert done.returncode == 0, done.stdout + done.stderr
    assert [cluster.hosts.processes(host) for host in HOSTS] == [{}, {}]


def test_a_stop_asks_hosts_of_job_managers_for_their_containers(tmp_path: Path) -> None:
    rig = ProcessRig(tmp_path / "here")
    with SshHosts(tmp_path / "ssh", rig.layout.run, (ONE,)) as hosts:
        files = {"masters": f"{ONE}\n", "workers": "", "JOB_MASTERS": ""}
        config = f"resourcemanager.driver: docker\nhigh-availability.cluster-id: x\nenv.ssh.opts: {hosts.options}\n"
        for name, text in {**files, "config.yaml": config}.items():
            (rig.layout.conf / name).write_text(text)
        hosts.run_of(ONE).mkdir(mode=0o700)
        record = {"host": "unix:///nowhere.sock", "certificates": "", "cluster_id": "x"}
        (hosts.run_of(ONE) / "containers.json").write_text(json.dumps(record))
        command = [str(rig.layout.home / "bin" / "stop-cluster.sh")]
        done = subprocess.run(command, env=rig.environment, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 1, done.stdout
    assert f"jobmanager on {ONE}: " in done.stderr
    assert "docker at unix:///nowhere.sock does not answer" in done.stderr
