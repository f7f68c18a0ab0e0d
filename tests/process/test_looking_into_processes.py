"""R48 with real processes: each shows its own log files, stacks and environment, to operators of all namespaces."""

from __future__ import annotations

import json
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import quote

import httpx
import pytest

from runtime.security.principals import Role
from tests.kit.cluster.script_cluster import ROOT, ScriptCluster
from tests.kit.host.levels import reached

pytestmark = [pytest.mark.process, pytest.mark.etcd]

SECRET = "hunter2"
GOES_ON = """
import sys, threading, time
from pathlib import Path
def in_user_code(gate):
    while not gate.exists():
        time.sleep(0.01)
def helps(gate):
    in_user_code(gate)
def main(gate):
    threading.Thread(target=helps, args=(gate,), name="helper").start()
    (gate.parent / "begun").touch()
    in_user_code(gate)
main(Path(sys.argv[1]))
print("went on")
"""
BECOMES_ANOTHER = """
import os, sys
waits = f"touch {sys.argv[1]}.begun; while ! [ -e {sys.argv[1]} ]; do sleep 0.05; done; exit 7"
os.execv("/bin/sh", ["sh", "-c", waits])
"""


@pytest.fixture(scope="module")
def cluster() -> Iterator[ScriptCluster]:
    options = {
        "taskmanager.spark.enabled": "false",
        "taskmanager.numberOfTaskSlots": "2",
        "env.log.format": "json",
        "env.log.level": "DEBUG",
        "spark.hadoop.fs.s3a.proxy": f"http://me:{SECRET}@proxy:3128",
    }
    made = ScriptCluster(options, masters=2, job_masters=2)
    with (made.run / "conf" / "config.yaml").open("a") as file:
        file.write(f"\nspark.hadoop.fs.s3a.secret.key: {SECRET}\n")
    with made:
        yield made


@pytest.fixture(scope="module")
def processes(cluster: ScriptCluster) -> dict[str, str]:
    """REST path of each process -> the name of its log without `.log`."""
    with cluster.connect() as client:
        of_jobs = [f"/jobmasters/{one['id']}" for one in client.get("/jobmasters")["jobmasters"]]
        managers = [f"/taskmanagers/{quote(one['id'])}" for one in client.get("/taskmanagers")["taskmanagers"]]
        paths = ["/jobmanager", *of_jobs, *managers]
        listed = {path: [one["name"] for one in client.get(f"{path}/logs")["logs"]] for path in paths}
    return {path: min(names, key=len).rpartition(".")[0] for path, names in listed.items()}


def get(cluster: ScriptCluster, path: str, *, token: str = "", url: str = "") -> httpx.Response:
    headers = {"authorization": f"Bearer {token or cluster.token}"}
    return httpx.get((url or cluster.url) + path, headers=headers, timeout=60)


def test_each_process_has_its_own_files_and_no_others(cluster: ScriptCluster, processes: dict[str, str]) -> None:
    assert len(processes) == 4
    assert len(set(processes.values())) == 4
    for path, stem in processes.items():
        names = {one["name"] for one in get(cluster, f"{path}/logs").json()["logs"]}
        assert names == {f"{stem}.log", f"{stem}.out"}, path
        own = get(cluster, f"{path}/log")
        assert own.headers["x-truncated"] == "false"
        lines = [json.loads(line) for line in own.text.splitlines()]
        assert any(one["message"].startswith("ready: ") for one in lines), path
        assert own.text.startswith(get(cluster, f"{path}/log?offset=0&limit=50").text)
        assert get(cluster, f"{path}/stdout").status_code == 200
    everything = sorted(one.name for one in (cluster.run / "run" / "log").iterdir())
    assert len(everything) > 10
    for path, stem in processes.items():
        for name in everything:
            status = get(cluster, f"{path}/logs/{quote(name)}").status_code
            assert status == (200 if name in {f"{stem}.log", f"{stem}.out"} else 404), (path, name)
        for name in ("..%2F..%2Ftoken", "%2e%2e", "attempts%2F..", "../../token"):
            assert get(cluster, f"{path}/logs/{name}").status_code == 404


def test_a_stand_by_forwards(cluster: ScriptCluster, processes: dict[str, str]) -> None:
    for view in ("environment", "logs", "log?offset=0&limit=90"):
        leading, standing = (get(cluster, f"/jobmanager/{view}", url=url) for url in cluster.urls)
        assert leading.status_code == standing.status_code == 200
        if view != "logs":
            assert leading.text == standing.text
    assert processes["/jobmanager"] in get(cluster, "/jobmanager/logs", url=cluster.urls[1]).text


def test_operators_of_all_namespaces_only(cluster: ScriptCluster, processes: dict[str, str]) -> None:
    people = {"own": ("operator", "team-a"), "looks": ("viewer", "*"), "all": ("operator", "*")}
    for name, (role, namespace) in people.items():
        made = cluster.cli("tokens", "create", name, "--role", role, "--namespace", namespace)
        token = made.stdout.strip()
        for path, stem in processes.items():
            for view in ("logs", "log", "stdout", "thread-dump", f"logs/{stem}.log"):
                answer = get(cluster, f"{path}/{view}", token=token)
                assert answer.status_code == (200 if name == "all" else 403), (name, path, view)
                if name != "all":
                    assert Role.OPERATOR.text in answer.json()["errors"][0]


def test_no_secret_is_in_what_is_shown(cluster: ScriptCluster, processes: dict[str, str]) -> None:
    secrets = {SECRET, cluster.token, (cluster.run / "run" / "cluster-key").read_text().strip()}
    for path in processes:
        views = ["logs", "log", "stdout", "thread-dump", *([] if "taskm" in path else ["environment"])]
        for view in views:
            text = get(cluster, f"{path}/{view}").text
            assert not [secret for secret in secrets if secret in text], (path, view)
    told = get(cluster, "/jobmanager/environment").json()
    assert "spark.hadoop.fs.s3a.proxy=******" in told["jvm"]["options"]
    assert f"rest.port={cluster.port}" in told["jvm"]["options"]


def begun(cluster: ScriptCluster, program: Path, gate: Path) -> subprocess.Popen[str]:
    command = [str(ROOT / "bin" / "flinklike"), "run", str(program), str(gate)]
    return subprocess.Popen(command, env=cluster.environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def dump_of_task_manager(cluster: ScriptCluster, processes: dict[str, str]) -> dict[str, str]:
    path = next(one for one in processes if one.startswith("/taskmanagers"))
    infos: list[dict[str, Any]] = get(cluster, f"{path}/thread-dump").json()["threadInfos"]
    return {one["threadName"]: one["stringifiedThreadInfo"] for one in infos}


def test_stacks_of_user_code_which_goes_on(cluster: ScriptCluster, processes: dict[str, str], tmp_path: Path) -> None:
    program, gate = tmp_path / "goes_on.py", tmp_path / "gate"
    program.write_text(GOES_ON)
    running = begun(cluster, program, gate)
    reached((tmp_path / "begun").exists, "the script has begun", timeout=120)
    for _ in range(20):
        _ = dump_of_task_manager(cluster, processes)
    found = dump_of_task_manager(cluster, processes)
    texts = {name: text for name, text in found.items() if "in_user_code" in text}
    assert len(texts) == 2, sorted(found)  # its main thread, and its helper
    assert all(re.match(r"slot [01] attempt [0-9a-f]{32}_[0-9a-f]{32}_0_\d+_0 \(pid \d+\) ", name) for name in texts)
    assert any('goes_on.py", line' in text and " in main" in text for text in texts.values())
    assert "MainThread" in found
    assert any(name.startswith("task task executor/attempt ") for name in found)
    gate.touch()
    out, err = running.communicate(timeout=120)
    assert (running.returncode, out) == (0, "went on\n"), err


def test_a_slot_process_that_runs_another_program_gets_no_signal(
    cluster: ScriptCluster, processes: dict[str, str], tmp_path: Path
) -> None:
    """The signal would end it: the end is its own, with its own code."""
    program, gate = tmp_path / "becomes.py", tmp_path / "gate"
    program.write_text(BECOMES_ANOTHER)
    running = begun(cluster, program, gate)
    reached((tmp_path / "gate.begun").exists, "the program has begun", timeout=120)
    found = dump_of_task_manager(cluster, processes)
    assert any("runs another program" in text for text in found.values()), found
    gate.touch()
    _, err = running.communicate(timeout=120)
    assert "with exit code 7" in err, err
    assert "signal" not in err


def test_the_command_line(cluster: ScriptCluster, processes: dict[str, str]) -> None:
    path = next(one for one in processes if one.startswith("/jobmasters"))
    name, stem = path.rpartition("/")[2], processes[path]
    log = cluster.cli("process-log", "jobmaster", name)
    assert log.stdout == (cluster.run / "run" / "log" / f"{stem}.log").read_text()
    assert f"{stem}.out" in cluster.cli("process-log", "jobmaster", name, "--list").stdout
    assert cluster.cli("process-log", "jobmaster", name, "--file", f"{stem}.out").returncode == 0
    refused = cluster.cli("process-log", "jobmaster", name, "--file", f"{processes['/jobmanager']}.log")
    assert refused.returncode == 1
    assert f"JobMaster process {name}: this process has no log file" in refused.stderr
    dump = cluster.cli("thread-dump", "jobmaster", name, "--json")
    assert {"MainThread", "task jobmaster/main"} <= {
        one["threadName"] for one in json.loads(dump.stdout)["threadInfos"]
    }, dump.stdout[:3000]


@pytest.mark.spark
def test_the_threads_of_the_spark_jvm_which_goes_on(spark_cluster: ScriptCluster) -> None:
    with spark_cluster.connect() as client:
        (manager,) = client.get("/taskmanagers")["taskmanagers"]
        path = f"/taskmanagers/{quote(manager['id'])}"
        infos = client.get(f"{path}/thread-dump")["threadInfos"]
        names = [one["name"] for one in client.get(f"{path}/logs")["logs"]]
        (again,) = client.get("/taskmanagers")["taskmanagers"]
    found = {one["threadName"]: one["stringifiedThreadInfo"] for one in infos}
    assert "java.lang.Thread.State: RUNNABLE" in found["Spark main"]
    assert "PythonGatewayServer" in found["Spark main"]
    assert any(name.startswith("slot ") for name in found)
    assert any(name.endswith("-spark-jvm.log") for name in names)
    assert again["state"] == "ready"
    assert again["problem"] == ""


def test_the_level_of_a_logger_is_changed_everywhere(cluster: ScriptCluster, processes: dict[str, str]) -> None:
    name = "runtime.rest.server"
    done = cluster.cli("log-level", "runtime", "error")
    try:
        assert done.returncode == 0, done.stderr
        assert sorted(line.split()[0] for line in done.stdout.splitlines()[1:]) == [
            "jobmanager:",
            "jobmaster",
            "jobmaster",
            "taskmanager",
        ]
        assert cluster.cli("log-level", name, "DEBUG").stdout.count("was DEFAULT") >= 1
        assert "was ERROR" in cluster.cli("log-level", "runtime", "ERROR").stdout
    finally:
        assert cluster.cli("log-level", "runtime", "DEFAULT").returncode == 0
        assert cluster.cli("log-level", name, "DEFAULT").returncode == 0
    for path in processes:
        told = [json.loads(line)["message"] for line in get(cluster, f"{path}/log").text.splitlines()]
        assert "log level of runtime: ERROR in place of DEFAULT, until this process ends" in told, path
        assert any(one.startswith("log level of runtime: DEFAULT in place of ERROR") for one in told), path
    audits = (cluster.run / "run" / "log").glob("audit-*.jsonl")
    lines = [json.loads(line) for audit in audits for line in audit.read_text().splitlines()]
    changed = [(one["object"], one["level"], one["outcome"]) for one in lines if one["action"] == "set-log-level"]
    assert ("runtime", "ERROR", "done") in changed
    refused = cluster.cli("log-level", "hpack", "DEBUG")
    assert (refused.returncode, "logger: 'hpack'" in refused.stderr) == (1, True)
