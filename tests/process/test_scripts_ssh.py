"""start-cluster.sh and stop-cluster.sh over other hosts: an `ssh` on PATH that runs the same things in another place.

Each "host" is an address of the loopback network with a run directory and an empty environment of its own.
"""

from __future__ import annotations

import json
import os
import shutil
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.kit.cluster.script_cluster import ScriptCluster
from tests.kit.etcd.server import EtcdProcess
from tests.kit.host.process_tree import carrying

pytestmark = [pytest.mark.process, pytest.mark.etcd]

MASTER, WORKER, UNREACHABLE = "127.0.0.2", "127.0.0.3", "127.0.0.9"
SSH = """#!/bin/bash
echo "$*" >> {log}
while [ "$1" != "--" ]; do shift; done
host="$2"
if [ "$host" = {unreachable} ]; then echo "ssh: connect to host $host port 22: Connection timed out" >&2; exit 255; fi
echo "Welcome to $host."
sed "s#{run}#{run}-$host#" | tee -a {log} | env -i PATH=/usr/bin:/bin HOME=/ /bin/bash -s
"""


class SshCluster(ScriptCluster):
    """JobManager and JobMaster process on one host, two TaskManagers on another; none on this one."""

    def __init__(self, etcd: EtcdProcess) -> None:
        super().__init__({}, job_masters=0, workers=0)
        conf = self.run / "conf"
        for file, hosts in {"masters": [MASTER], "JOB_MASTERS": [MASTER], "workers": [WORKER] * 2}.items():
            (conf / file).write_text("".join(f"{host}\n" for host in hosts))
        self.config = conf / "config.yaml"
        self.config.write_text(self._config(etcd))
        self.log = self.run / "ssh.log"
        ssh = self.run / "bin" / "ssh"
        ssh.parent.mkdir()
        ssh.write_text(SSH.format(log=self.log, run=self.environment["FLINKLIKE_RUN_DIR"], unreachable=UNREACHABLE))
        ssh.chmod(0o755)
        self.environment["PATH"] = f"{ssh.parent}:{os.environ['PATH']}"
        self.environment["FLINKLIKE__TASKMANAGER__NUMBEROFTASKSLOTS"] = "3"
        self.environment["FLINKLIKE_ADDRESS"] = f"http://{MASTER}:{self.port}"
        self.environment["FLINKLIKE_TOKEN_FILE"] = str(self.run / "token")

    def _config(self, etcd: EtcdProcess) -> str:
        return f"""
high-availability: {{type: etcd, cluster-id: {self.run.name}, storageDir: {self.run}/storage}}
high-availability.etcd: {{endpoints: "{etcd.endpoint}", allow-unsafe-version: true}}
high-availability.etcd.tls: {{ca: {etcd.tls.ca}, cert: {etcd.tls.client}, key: {etcd.tls.client}}}
jobmanager: {{rpc.port: 0, bind-host: {MASTER}, jobmaster: {{single.enable: true, bind-host: {MASTER}}}}}
rest: {{port: {self.port}, bind-address: {MASTER}}}
taskmanager: {{bind-host: {WORKER}, spark.enabled: false}}
exchange.dir: {self.run}/exchange
security: {{token-file: {self.run}/token, cluster-key-file: {self.run}/cluster-key}}
env.ssh.opts: -o User=nobody
"""

    def remote(self, host: str) -> dict[int, str]:
        """What runs on a host."""
        return carrying("FLINKLIKE_RUN_DIR", f"{self.environment['FLINKLIKE_RUN_DIR']}-{host}")


@pytest.fixture(scope="module")
def cluster(etcd: EtcdProcess) -> Iterator[SshCluster]:
    with SshCluster(etcd) as started:
        yield started


def test_everything_is_started_and_shown(cluster: SshCluster) -> None:
    """The table has what runs elsewhere, with pids; a second start adds nothing."""
    again = cluster.start()
    rows = [line.split() for line in again.splitlines() if len(line.split()) == 5 and line.split()[2].isdecimal()]
    assert [row[0] for row in rows] == ["jobmanager", "jobmaster", "taskmanager", "taskmanager"]
    assert {(row[1], row[4]) for row in rows} == {(socket.gethostname(), "running")}
    assert [row[3].partition(":")[0] for row in rows] == [MASTER, MASTER, WORKER, WORKER]
    assert f"REST: http://{MASTER}:{cluster.port}\n" in again
    assert {int(row[2]) for row in rows[:2]} <= set(cluster.remote(MASTER))
    assert {int(row[2]) for row in rows[2:]} <= set(cluster.remote(WORKER))
    assert cluster.processes() == {}, "nothing runs here"


def test_a_job_master_and_the_task_managers_are_reached_by_the_names_in_the_files(cluster: SshCluster) -> None:
    found = json.loads(cluster.cli("taskmanagers", "--json").stdout)["taskmanagers"]
    assert [one["slotsNumber"] for one in found] == [3, 3], "FLINKLIKE__* travels"
    found = json.loads(cluster.cli("jobmasters", "--json").stdout)["jobmasters"]
    assert [one["address"].partition(":")[0] for one in found] == [MASTER]


def test_ssh_never_asks_and_shows_no_secrets(cluster: SshCluster) -> None:
    calls = [line for line in cluster.log.read_text().splitlines() if line.startswith("-o ")]
    assert calls
    assert all(call.startswith("-o User=nobody -o BatchMode=yes -o ConnectTimeout=10 ") for call in calls)
    assert not any("FLINKLIKE" in call for call in calls), "the environment goes through standard input"


def test_a_host_out_of_reach_does_not_keep_the_rest(cluster: SshCluster) -> None:
    """It fails a start at once, and a stop only for itself. Neither needs a valid configuration to stop."""
    workers = cluster.run / "conf" / "workers"
    workers.write_text(f"{WORKER}\n{WORKER}\n{UNREACHABLE}\n")
    start = cluster.script("start-cluster.sh")
    assert (start.returncode, start.stderr.count("\n")) == (1, 1)
    assert f"taskmanager on {UNREACHABLE}: ssh: connect to host" in start.stderr
    cluster.config.write_text("rest.prot: 1\n")
    (cluster.run / "conf" / "masters").unlink()
    stop = cluster.script("stop-cluster.sh")
    assert (stop.returncode, stop.stderr.count("\n")) == (1, 2)
    assert f"taskmanager on {UNREACHABLE}: ssh: connect to host" in stop.stderr
    record = cluster.run / "run" / "remote.json"
    assert f"the next stop asks {UNREACHABLE} again; if that is gone for good, delete {record}\n" in stop.stderr
    assert (cluster.remote(MASTER), cluster.remote(WORKER)) == ({}, {})
    calls = [line for line in cluster.log.read_text().splitlines() if line.startswith("-o ")]
    assert all(call.startswith("-o User=nobody ") for call in calls), "the options that reached them are recorded"
    remembered = json.loads(record.read_text())["hosts"]
    assert remembered == [[UNREACHABLE, "taskmanager"]]
    workers.write_text("")
    shutil.rmtree(Path(cluster.run / "run"))
