"""Commits of outputs on a real cluster, with storage that a test holds: movers and owners die, freeze and come back."""

from __future__ import annotations

import os
import re
import shlex
import signal
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import suppress
from pathlib import Path

import psutil
import pytest

from airflow_flinklike.client import FlinklikeClient, new_job_id
from airflow_flinklike.exceptions import ClusterUnavailableError, FlinklikeClientError, JobFailedError
from runtime.common.ids import JobId
from runtime.jobgraph.graph import FunctionReference, JobGraph, JobVertex, Operator, OperatorKind, vertex_id_of
from tests.kit.cluster.script_cluster import ScriptCluster
from tests.kit.host.levels import reached
from tests.kit.storage.gated_files import install, visible, waiting

pytestmark = [pytest.mark.process, pytest.mark.etcd, pytest.mark.slow]

FILES = 20
OPTIONS = {
    "taskmanager.spark.enabled": "false",
    "taskmanager.numberOfTaskSlots": "2",
    "taskmanager.isolation-timeout": "8 s",
    "heartbeat.interval": "500 ms",
    "heartbeat.timeout": "4 s",
    "restart-strategy.type": "fixed-delay",
    "restart-strategy.fixed-delay.delay": "0 s",
}


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[ScriptCluster]:
    made = ScriptCluster(OPTIONS, workers=2)
    made.environment["PYTHONPATH"] = install(tmp_path / "path")
    with made:
        yield made


@pytest.fixture
def client(cluster: ScriptCluster) -> Iterator[FlinklikeClient]:
    with cluster.connect() as made:
        yield made


def vertex(name: str, code: str = "write", parallelism: int = 1) -> JobVertex:
    operator = Operator(
        name=name,
        kind=OperatorKind.FUNCTION,
        code=FunctionReference(target=f"tests.kit.cluster.commit_programs:{code}"),
    )
    return JobVertex(
        id=vertex_id_of(name),
        name=name,
        operators=(operator,),
        parallelism=parallelism,
        max_parallelism=parallelism,
    )


def submit(client: FlinklikeClient, base: Path, *vertices: JobVertex, **params: int | str) -> JobId:
    job_id = new_job_id()
    graph = JobGraph(
        name="commit",
        vertices=vertices or (vertex("sink", parallelism=2),),
        params={"base": f"gated://{base}", "files": FILES, **params},
    )
    client.submit(graph, job_id=job_id)
    return job_id


def hold(base: Path, what: str, after: int = 0) -> Path:
    gate = Path(f"{base}.hold-{what}")
    gate.write_text(str(after))
    return gate


def expected(subtasks: int = 2, name: str = "sink") -> list[str]:
    return sorted(f"part-{name}-{subtask}-{number}" for subtask in range(subtasks) for number in range(FILES))


def state(client: FlinklikeClient, job_id: JobId) -> str:
    (found,) = [job["state"] for job in client.get("/jobs/overview")["jobs"] if job["jid"] == job_id]
    return str(found)


def ended(client: FlinklikeClient, job_id: JobId) -> str:
    reached(lambda: state(client, job_id) in {"FINISHED", "FAILED", "CANCELED"}, "the job ends", timeout=200)
    return state(client, job_id)


def reason(client: FlinklikeClient, job_id: JobId) -> str:
    """As the leader has heard it; it answers a cancel by the same summary."""
    return str(client.get(f"/jobs/{job_id}/status").get("pending-reason", ""))


def held(base: Path, others: Sequence[int] = ()) -> int:
    """The one mover that waits at the gate."""
    reached(lambda: len(waiting(base) - {*others}) == 1, "one mover waits")
    (mover,) = waiting(base) - {*others}
    return mover


def owner_of(client: FlinklikeClient, job_id: JobId) -> str:
    """The address of its JobMaster process, "" while no leader knows it."""
    with suppress(ClusterUnavailableError):
        return str(client.get(f"/jobs/{job_id}").get("jobmaster", ""))
    return ""


def pid_of(cluster: ScriptCluster, address: str) -> int:
    """The JobMaster process that listens there."""
    port = int(address.rpartition(":")[2])
    (found,) = [
        pid
        for pid in cluster.pids()["jobmaster"]
        if any(one.laddr.port == port for one in psutil.Process(pid).net_connections("tcp") if one.status == "LISTEN")
    ]
    return found


@pytest.mark.parametrize("is_heard", [True, pytest.param(False, marks=pytest.mark.extended)], ids=["heard", "unheard"])
def test_the_owner_dies_while_a_task_manager_moves(
    cluster: ScriptCluster, client: FlinklikeClient, tmp_path: Path, is_heard: bool
) -> None:
    """Its last word reaches the next owner, also one that came when it was said: all slots are with others."""
    base = tmp_path / "out"
    gate = hold(base, "copy", 5)
    job_id = submit(client, base)
    mover = held(base)
    owner = owner_of(client, job_id)
    os.kill(pid_of(cluster, owner), signal.SIGKILL)
    other = submit(client, tmp_path / "other", vertex("busy", "wait", parallelism=4))
    if is_heard:
        reached(lambda: owner_of(client, job_id) not in {"", owner}, "it has another owner")
        reached(lambda: "committing" in reason(client, job_id), "the commit goes on")
        assert waiting(base) == {mover}
    gate.unlink()
    assert ended(client, job_id) == "FINISHED"
    assert visible(base) == expected()
    assert waiting(base) == {mover}
    client.cancel(other)


def test_the_mover_is_killed_and_another_one_goes_on(client: FlinklikeClient, tmp_path: Path) -> None:
    base = tmp_path / "out"
    gate = hold(base, "copy", 5)
    job_id = submit(client, base)
    first = held(base)
    os.kill(first, signal.SIGKILL)
    second = held(base, [first])
    assert second != first
    gate.unlink()
    assert ended(client, job_id) == "FINISHED"
    assert visible(base) == expected()


def test_the_mover_is_killed_between_copies_and_deletions(client: FlinklikeClient, tmp_path: Path) -> None:
    """No rename: the files are there twice, and the next mover finds them proved."""
    base = tmp_path / "out"
    base.mkdir()
    (base / "old").touch()
    gate = hold(base, "delete")
    job_id = submit(client, base)
    first = held(base)
    assert visible(base) == expected()
    os.kill(first, signal.SIGKILL)
    held(base, [first])
    gate.unlink()
    assert ended(client, job_id) == "FINISHED"
    assert visible(base) == expected()
    reached(lambda: [path.name for path in base.glob(".*")] == [], "nothing is left over")


def test_a_mover_that_was_given_up_has_no_say_when_it_wakes(client: FlinklikeClient, tmp_path: Path) -> None:
    """Its guard has ended it before another one moves, and it is back as another TaskManager."""
    base = tmp_path / "out"
    gate = hold(base, "copy", 5)
    job_id = submit(client, base)
    first = held(base)
    os.kill(first, signal.SIGSTOP)
    try:
        second = held(base, [first])
        gate.unlink()
        assert ended(client, job_id) == "FINISHED"
        after = {path.name: path.stat().st_ino for path in base.iterdir()}
    finally:
        wake(first)
    reached(lambda: len(client.get("/taskmanagers")["taskmanagers"]) == 2, "it is back")
    assert psutil.pid_exists(second)
    assert state(client, job_id) == "FINISHED"
    seen = {path.name: path.stat().st_ino for path in base.iterdir()}
    assert {name for name in seen if name[0] != "."} == {name for name in after if name[0] != "."}
    assert visible(base) == expected()


def wake(pid: int) -> None:
    """If it is there still."""
    with suppress(ProcessLookupError):
        os.kill(pid, signal.SIGCONT)


def test_a_mover_that_stood_before_its_next_file_deletes_nothing_of_a_later_job(
    client: FlinklikeClient, tmp_path: Path
) -> None:
    """R27: its threads have looked whether they may, and are frozen behind that."""
    base = tmp_path / "out"
    assert ended(client, submit(client, base, vertex("later", parallelism=2))) == "FINISHED"
    gate = hold(base, "remove")
    job_id = submit(client, base)
    first = held(base)
    os.kill(first, signal.SIGSTOP)
    try:
        held(base, [first])
        gate.unlink()
        assert ended(client, job_id) == "FINISHED"
        assert ended(client, submit(client, base, vertex("later", parallelism=2))) == "FINISHED"
        assert visible(base) == expected(name="later")
    finally:
        wake(first)
    reached(lambda: len(client.get("/taskmanagers")["taskmanagers"]) == 2, "it is back")
    assert visible(base) == expected(name="later")
    assert not psutil.pid_exists(first), "it was ended, so that it could not go on where it stood"


def test_a_cancel_while_files_move_is_too_late(client: FlinklikeClient, tmp_path: Path) -> None:
    base = tmp_path / "out"
    gate = hold(base, "copy", 5)
    job_id = submit(client, base)
    held(base)
    reached(lambda: reason(client, job_id).startswith("committing"), "it is said")
    with pytest.raises(FlinklikeClientError, match="cannot be cancelled any more"):
        client.cancel(job_id)
    assert state(client, job_id) == "RUNNING"
    gate.unlink()
    assert ended(client, job_id) == "FINISHED"
    assert visible(base) == expected()


def test_a_sink_beside_a_vertex_that_fails_leaves_nothing_visible(client: FlinklikeClient, tmp_path: Path) -> None:
    base = tmp_path / "out"
    job_id = submit(client, base, vertex("sink", parallelism=2), vertex("other", "fail"), writers=2)
    assert ended(client, job_id) == "FAILED"
    assert visible(base) == []
    assert not (base / "_SUCCESS").exists()
    assert ended(client, submit(client, base)) == "FINISHED"
    assert ended(client, submit(client, base)) == "FINISHED", "a rerun gives the same rows"
    assert visible(base) == expected()


def test_what_no_mover_could_claim_is_kept_and_committed_by_the_command_that_the_failure_names(
    cluster: ScriptCluster, client: FlinklikeClient, tmp_path: Path
) -> None:
    """R28: no TaskManager deletes it, though the storage has never heard of a commit."""
    base = tmp_path / "out"
    job_id = submit(client, base, blocked=1)
    assert ended(client, job_id) == "FAILED"
    message = client.get(f"/jobs/{job_id}/exceptions")["exceptionHistory"]["entries"][0]["stacktrace"]
    arguments = shlex.split(message.rpartition("bin/commit-outputs.sh ")[2].splitlines()[0])
    assert len(arguments) == 2
    reached(lambda: client.get("/overview")["slots-available"] == client.get("/overview")["slots-total"], "it is over")
    (base / f".commit-{job_id}").unlink()
    command = [sys.executable, "-m", "tests.kit.control_plane.repeated_commit", *arguments]
    subprocess.run(command, check=True, env={**os.environ, **cluster.environment}, capture_output=True)
    assert visible(base) == expected()


@pytest.mark.parametrize("mode", ["overwrite", pytest.param("append", marks=pytest.mark.extended)])
def test_two_jobs_that_write_to_one_base_do_so_one_after_the_other(
    client: FlinklikeClient, tmp_path: Path, mode: str
) -> None:
    """R27: the second job names the one that it waits for; a reader sees all files of one job, or of both."""
    base = tmp_path / "out"
    gate = hold(base, "copy", after=FILES // 2)
    first = submit(client, base, vertex("first", parallelism=2), mode=mode)
    held(base)
    second = submit(client, base, vertex("second", parallelism=2), mode=mode)
    reached(lambda: f"job {first} commits to" in reason(client, second), "the second one waits")
    assert not [name for name in visible(base) if "second" in name]
    assert not (base / "_SUCCESS").exists()
    gate.unlink()
    assert (ended(client, first), ended(client, second)) == ("FINISHED", "FINISHED")
    assert visible(base) == sorted((expected(name="first") if mode == "append" else []) + expected(name="second"))
    assert not list(base.glob(".commit-*.turn"))


def test_a_rerun_of_an_append_that_has_failed_half_way_doubles_nothing(
    cluster: ScriptCluster, client: FlinklikeClient, tmp_path: Path
) -> None:
    """R27: it fails for good before it shows anything, and names the command that mends the first one."""
    base = tmp_path / "out"
    refusing = Path(f"{base}.refuse-copy")
    refusing.write_text("5")
    first = submit(client, base, mode="append")
    assert ended(client, first) == "FAILED"
    refusing.unlink()
    half = visible(base)
    assert 0 < len(half) < len(expected())
    again = submit(client, base, vertex("again", parallelism=2), mode="append")
    assert ended(client, again) == "FAILED"
    assert visible(base) == half
    assert not (base / "_SUCCESS").exists()
    result = client.get(f"/jobs/{again}/execution-result")["job-execution-result"]
    failure = JobFailedError(again, result["failure-cause"])
    assert f"the commit of job {first} has failed half way in gated://{base}" in failure.stack_trace
    assert (failure.kind, failure.is_recoverable) == ("USER", False), "no retry of Airflow's comes to another end"
    (argument,) = re.findall(r"repeat that commit with bin/commit-outputs.sh (\S+)", failure.stack_trace)
    command = [sys.executable, "-m", "tests.kit.control_plane.repeated_commit", argument]
    subprocess.run(command, check=True, env={**os.environ, **cluster.environment}, capture_output=True)
    assert visible(base) == expected()
    assert (base / "_SUCCESS").exists()
