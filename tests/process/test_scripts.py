"""The scripts of bin/ on one host: what a start says and leaves behind, and that a stop stops exactly what is ours."""

from __future__ import annotations

import json
import os
import shlex
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest

from runtime.entrypoint.control.daemon import STATED_FOR
from runtime.entrypoint.control.pid_file import ProcessId
from runtime.taskexecutor.guard.records import who_states
from tests.kit.cluster.script_cluster import ROOT, ScriptCluster
from tests.kit.host.levels import reached

pytestmark = [pytest.mark.process, pytest.mark.etcd]

WITHOUT_SPARK = {"FLINKLIKE__TASKMANAGER__SPARK__ENABLED": "false", "FLINKLIKE__TASKMANAGER__NUMBEROFTASKSLOTS": "1"}


def make_cluster(*, job_masters: int, workers: int) -> ScriptCluster:
    """Configured by the environment alone, as a person may do it; nothing is started."""
    cluster = ScriptCluster({}, job_masters=job_masters, workers=workers)
    del cluster.environment["FLINKLIKE_ADDRESS"]
    cluster.environment |= {**WITHOUT_SPARK, "FLINKLIKE__REST__PORT": str(cluster.port)}
    return cluster


@pytest.fixture(scope="module")
def cluster() -> Iterator[ScriptCluster]:
    with make_cluster(job_masters=1, workers=1) as started:
        yield started


@pytest.fixture
def empty() -> Iterator[ScriptCluster]:
    """A run directory in which nothing runs yet."""
    made = make_cluster(job_masters=1, workers=1)
    yield made
    made.close()
    assert made.processes() == {}


def records(cluster: ScriptCluster, kind: str) -> list[int]:
    return cluster.pids().get(kind, [])


def test_a_foreign_process_on_the_port_is_one_sentence(empty: ScriptCluster) -> None:
    with socket.socket() as foreign:
        foreign.bind(("127.0.0.1", empty.port))
        foreign.listen()
        done = empty.script("start-cluster.sh")
    assert done.returncode == 1
    assert done.stderr.count("\n") == 1
    assert f"-D rest.port={empty.port + 1}" in done.stderr
    assert empty.processes() == {}, "nothing was started, etcd neither"


def test_a_start_ends_at_the_first_failure_and_leaves_nothing(empty: ScriptCluster) -> None:
    with socket.socket() as foreign:
        foreign.bind(("127.0.0.1", 0))
        foreign.listen()
        port = foreign.getsockname()[1]
        before = time.monotonic()
        done = empty.script("start-cluster.sh", "-D", f"jobmanager.rpc.port={port}")
    assert time.monotonic() - before < 60, "the JobMaster and the TaskManager wait three minutes for a leader"
    assert (done.returncode, done.stderr.count("Error starting")) == (1, 1)
    assert f"cannot listen on 127.0.0.1:{port}" in done.stderr
    assert empty.processes() == {}


def test_a_start_that_is_interrupted_leaves_nothing(empty: ScriptCluster) -> None:
    (empty.run / "conf" / "masters").write_text("")
    command = [str(ROOT / "bin" / "start-cluster.sh")]
    with subprocess.Popen(command, env=empty.environment, stdout=subprocess.PIPE, text=True) as start:
        reached(lambda: records(empty, "taskmanager"), "it waits for a leader that never comes")
        start.send_signal(signal.SIGTERM)
        assert start.wait(100) == 143
    assert empty.processes() == {}


@pytest.mark.parametrize("file", ["masters", "JOB_MASTERS", "workers"])
def test_a_missing_file_is_said_before_anything_starts(empty: ScriptCluster, file: str) -> None:
    (empty.run / "conf" / file).unlink()
    done = empty.script("start-cluster.sh")
    assert (done.returncode, f"No {file} file." in done.stderr) == (1, True)
    assert empty.processes() == {}


def test_everybody_knows_the_real_port(cluster: ScriptCluster) -> None:
    """A script with another port, in conf/ or by -D, finds the cluster that runs."""
    environment = {name: value for name, value in cluster.environment.items() if "REST__PORT" not in name}
    for arguments in (["status-cluster"], ["status-cluster", "-D", "rest.port=0"]):
        done = control(environment, *arguments)
        assert (done.returncode, f"REST: {cluster.url}\n" in done.stdout) == (0, True), done
    listed = subprocess.run(
        [ROOT / "bin" / "flinklike", "jobmasters", "--json"],
        env=environment,
        capture_output=True,
        text=True,
        check=True,
    )
    assert len(json.loads(listed.stdout)["jobmasters"]) == 1
    again = control(environment, "start-cluster", "-D", "rest.port=1")
    assert (again.returncode, f"REST: {cluster.url}\n" in again.stdout) == (0, True), again
    exports = control(environment, "airflow-environment").stdout
    words = [shlex.split(line)[1].partition("=") for line in exports.splitlines()]
    connection = json.loads({name: value for name, _, value in words}["AIRFLOW_CONN_FLINKLIKE_DEFAULT"])
    assert (connection["host"], connection["port"]) == ("127.0.0.1", cluster.port)
    assert Path(connection["extra"]["token_file"]).read_text().strip() == cluster.token


def control(environment: dict[str, str], *arguments: str) -> subprocess.CompletedProcess[str]:
    """What bin/quickstart.sh calls."""
    command = [sys.executable, "-m", "runtime.entrypoint.control", *arguments]
    return subprocess.run(command, env=environment, capture_output=True, text=True, timeout=60, check=False, cwd=ROOT)


def test_the_example_says_before_anything_starts_where_it_would_fail(cluster: ScriptCluster, tmp_path: Path) -> None:
    options = {"taskmanager.spark.enabled": "false", "security.ssl.internal.enabled": "true"}
    options |= {f"security.ssl.internal.{name}": str(tmp_path / name) for name in ("cert", "key", "ca")}
    given = [word for key, value in options.items() for word in ("-D", f"{key}={value}")]
    assert control(cluster.environment, "check-example", *given).returncode == 0
    refused = control(cluster.environment, "check-example", *given, "-D", "taskmanager.slots.uids=21000-21099")
    assert (refused.returncode, refused.stdout) == (1, "")
    assert "run bin/quickstart.sh without that option (also in conf/) first" in refused.stderr


def test_the_table_shows_every_process(cluster: ScriptCluster) -> None:
    rows = [line.split() for line in control(cluster.environment, "status-cluster").stdout.splitlines()]
    shown = {(row[0], int(row[2])) for row in rows if len(row) == 5 and row[1] == socket.gethostname()}
    assert shown == {(role, pid) for role, pids in cluster.pids().items() for pid in pids}
    assert {role for role, _ in shown} == {"etcd", "jobmanager", "jobmaster", "taskmanager"}
    assert all(
        row[3].startswith("127.0.0.1:") and row[4] == "running" for row in rows if len(row) == 5 and row[2].isdigit()
    )


def test_stop_ends_the_last_and_stop_all_the_rest(cluster: ScriptCluster) -> None:
    (first,) = records(cluster, "taskmanager")
    done = cluster.script("taskmanager.sh", "start", "-Dtaskmanager.numberOfTaskSlots=2")
    assert "1 taskmanager instance(s) are already running" in done.stdout
    assert records(cluster, "taskmanager")[0] == first
    assert len(records(cluster, "taskmanager")) == 2
    assert cluster.script("taskmanager.sh", "stop").returncode == 0
    assert records(cluster, "taskmanager") == [first]
    assert cluster.script("taskmanager.sh", "stop-all").returncode == 0
    assert ProcessId.of(first) is None
    again = cluster.script("taskmanager.sh", "stop")
    assert (again.returncode, "No taskmanager daemon to stop" in again.stdout) == (0, True)
    assert control(cluster.environment, "status-cluster").returncode == 3, "conf/ names one"
    assert "Reusing 2 running" in cluster.start()
    assert len(records(cluster, "taskmanager")) == 1


def test_stop_all_leaves_time_to_hear_of_one_that_was_killed(cluster: ScriptCluster) -> None:  # R30
    guards = Path(cluster.environment["FLINKLIKE_RUN_DIR"]) / "guards"
    cluster.start_task_manager()
    os.kill(records(cluster, "taskmanager")[-1], signal.SIGKILL)
    stating = reached(partial(who_states, guards), "its end is stated")
    begun = time.monotonic()
    assert cluster.script("taskmanager.sh", "stop-all").returncode == 0
    assert time.monotonic() - begun >= STATED_FOR
    assert not any(ProcessId(*one).is_running for one in stating)
    cluster.start()


def test_start_jobmaster_takes_options_first(cluster: ScriptCluster) -> None:
    done = cluster.script("start-jobmaster.sh", "-Djobmanager.jobmaster.capacity=3")
    assert done.returncode == 0, done
    assert cluster.script("start-jobmaster.sh", "stop").returncode == 0
    assert len(records(cluster, "jobmaster")) == 1


def test_start_foreground_is_the_process(cluster: ScriptCluster) -> None:
    command = [str(ROOT / "bin" / "start-jobmaster.sh"), "start-foreground"]
    with subprocess.Popen(command, env=cluster.environment, stderr=subprocess.PIPE, text=True) as process:
        reached(lambda: process.pid in records(cluster, "jobmaster"), "it is recorded")
        reached(lambda: ready(cluster, "jobmaster") == 2, "it is ready")
        assert cluster.script("start-jobmaster.sh", "stop").returncode == 0
        said = process.communicate()[1]
        assert process.returncode == 0, "it had nothing to hand over"
    assert "ready: address" in said
    (log,) = (cluster.run / "run" / "log").glob("flinklike-test-jobmaster-1-*.log")
    assert "ready: address" in log.read_text(), "on the terminal and in the file"


def ready(cluster: ScriptCluster, kind: str) -> int:
    return len(list((cluster.run / "run" / "pid").glob(f"{kind}-*.json")))


def test_what_does_not_end_is_killed(cluster: ScriptCluster) -> None:
    assert cluster.script("start-jobmaster.sh").returncode == 0
    frozen = records(cluster, "jobmaster")[-1]
    os.kill(frozen, signal.SIGSTOP)
    done = cluster.script("start-jobmaster.sh", "stop")
    assert (done.returncode, "didn't stop within 10 seconds. Killing it." in done.stdout) == (0, True)
    assert ProcessId.of(frozen) is None
    assert len(records(cluster, "jobmaster")) == 1


def test_a_recycled_pid_is_left_alone(cluster: ScriptCluster) -> None:
    """Our own pid, like the pid of another program in an old pid file."""
    file = cluster.run / "run" / "pid" / "taskmanager.pid"
    ours = file.read_text()
    file.write_text(f"{ours}{os.getpid()} 1 7\n")
    before = records(cluster, "taskmanager")[0]
    assert cluster.script("taskmanager.sh", "stop").returncode == 0
    assert ProcessId.of(before) is None, "the last one that is ours was stopped"
    assert cluster.script("taskmanager.sh", "start").returncode == 0


def test_two_clusters_and_a_broken_file(cluster: ScriptCluster, empty: ScriptCluster) -> None:
    """Side by side; relative directories; stopped by another user name, with nothing valid left in conf/."""
    before = cluster.pids()
    there = {"FLINKLIKE_RUN_DIR": "run", "FLINKLIKE_CONF_DIR": "conf"}
    absolute, empty.environment = empty.environment, {**empty.environment, **there}
    done = empty.script("start-cluster.sh", cwd=empty.run)
    empty.environment = {**absolute, "USER": "cron", "FLINKLIKE_IDENT_STRING": ""}
    assert done.returncode == 0, done.stderr
    assert {role: len(pids) for role, pids in empty.pids().items()} == {
        role: len(pids) for role, pids in before.items()
    }
    (empty.run / "conf" / "config.yaml").write_text("no-such-option: 1\n")
    (empty.run / "conf" / "workers").unlink()
    stopped = empty.script("stop-cluster.sh")
    assert (stopped.returncode, "no-such-option" in stopped.stdout) == (0, True), stopped
    assert empty.processes() == {}
    assert cluster.pids() == before
