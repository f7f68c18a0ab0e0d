"""The history server by its script: jobs that their clusters have forgotten, two clusters, kill and restart, rights."""

from __future__ import annotations

from pathlib import Path

import httpx
import pytest

from runtime.common.ids import JobId
from tests.benchmarks.cluster import job_graph
from tests.kit.cluster.script_cluster import ScriptCluster
from tests.kit.history.histories import Histories, ended, job_id
from tests.kit.history.server import HistoryServer
from tests.kit.host.levels import reached
from tests.process.conftest import WITHOUT_SPARK

pytestmark = [pytest.mark.process, pytest.mark.slow]

NO_OP = job_graph("no-op", "tests.benchmarks.programs:no_op")
BROKEN = job_graph("broken", "tests.benchmarks.programs:nothing_of_that_name")
FORGETS = {
    **WITHOUT_SPARK,
    "jobstore.max-capacity": "1",
    "jobmanager.job-id.max-count": "1",
    "high-availability.cluster-id": "forgetful",
}
OWN = JobId("0" * 31 + "1")
FAILED = JobId("0" * 31 + "2")
LAST = JobId("0" * 31 + "3")


@pytest.fixture(scope="module")
def forgotten(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The history of a cluster that has run three jobs, shows one of them, and is stopped."""
    history = tmp_path_factory.mktemp("kept") / "history"
    with ScriptCluster({**FORGETS, "jobmanager.archive.fs.dir": str(history)}, job_masters=1) as cluster:
        with cluster.connect() as client:
            for number, graph in ((OWN, NO_OP), (FAILED, BROKEN), (LAST, NO_OP)):
                client.submit(graph, job_id=number)
                client.wait_for_result(number)
                reached(lambda: files(history), "the history of the job")
            reached(lambda: len(jobs_of(cluster)) == 1, "the cluster shows its last job only")
        reached(lambda: indexed(history) >= {OWN, FAILED, LAST}, "all jobs in the history")
    return history


def files(history: Path) -> list[Path]:
    return list(history.glob("cluster-*/*/*.jobs"))


def indexed(history: Path) -> set[JobId]:
    text = b"".join(path.read_bytes() for path in files(history))
    return {one for one in (OWN, FAILED, LAST) if one.encode() in text}


def jobs_of(cluster: ScriptCluster) -> list[str]:
    with cluster.connect() as client:
        return [one["jid"] for one in client.get("/jobs/overview")["jobs"]]


def test_what_the_cluster_has_forgotten_is_shown_beside_another_cluster(forgotten: Path, tmp_path: Path) -> None:
    other = Histories(tmp_path / "storage" / "history")
    other.put(ended(9, name="of another"), cluster="second")
    directories = f"{forgotten}, {tmp_path / 'storage'}"
    with HistoryServer({"historyserver.archive.fs.dir": directories}) as server:
        assert f"History server: {server.url}/ui" in server.said
        reached(lambda: len(server.jobs()) == 4, "the jobs of both clusters")
        jobs = server.jobs()
        assert {one: jobs[one]["cluster"] for one in jobs} == {
            OWN: "forgetful",
            FAILED: "forgetful",
            LAST: "forgetful",
            job_id(9): "second",
        }
        assert server.get(f"/jobs/{OWN}")["vertices"][0]["status"] == "FINISHED"
        failure = server.get(f"/jobs/{FAILED}/exceptions")["exceptionHistory"]["entries"][0]
        assert "nothing_of_that_name" in failure["stacktrace"]
        assert [one["jid"] for one in server.cli("history", "--state", "failed")["jobs"]] == [FAILED]
        assert len(server.cli("history", "--name", "no-op", "--since", "1d")["jobs"]) == 2
        assert OWN in str(server.cli("info", OWN, "--address", server.url))
        # It changes nothing, and knows nothing of what runs.
        for method, path in (
            ("PATCH", f"/jobs/{OWN}"),
            ("POST", "/jobs"),
            ("GET", "/taskmanagers"),
            ("GET", "/overview"),
        ):
            answer = server.ask(path, method)
            assert (answer.status_code, "JobManager" in answer.text) == (404, True), path
        server.kill()
        server.start()
        reached(lambda: len(server.jobs()) == 4, "all jobs after a restart")
        other.put(ended(10), cluster="second")
        reached(lambda: job_id(10) in server.jobs(), "a job that has ended since")
        assert "Stopping historyserver" in server.script("stop").stdout
        assert "No historyserver daemon" in server.script("stop").stdout
    other.io.close()


def test_strangers_read_nothing_and_damage_is_left_out(tmp_path: Path) -> None:
    histories = Histories(tmp_path)
    histories.put(ended(1))
    bad = histories.put(ended(2), cluster="evil")
    bad.write_bytes(bad.read_bytes()[:-30])
    histories.io.close()
    with HistoryServer({"historyserver.archive.fs.dir": str(tmp_path)}) as server:
        reached(lambda: job_id(1) in server.jobs(), "the job of the other cluster")
        assert job_id(2) not in server.jobs()
        assert bad.name in server.log
        for token in ("none", "f" * 64):
            answer = httpx.get(f"{server.url}/jobs/overview", headers={"authorization": f"Bearer {token}"})
            assert answer.status_code == 401


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        (["historyserver.web.address=0.0.0.0", "security.authentication=none"], "shows the jobs of all clusters"),
        (["historyserver.archive.fs.dir=nosuchscheme://bucket"], "Protocol not known: nosuchscheme"),
        (["historyserver.archive.retained-jobs=0"], "historyserver.archive.retained-jobs"),
    ],
)
def test_what_cannot_be_served_is_refused_with_a_sentence(tmp_path: Path, options: list[str], sentence: str) -> None:
    server = HistoryServer({}, run=tmp_path / "run")
    done = server.script("start", *(word for one in options for word in ("-D", one)))
    assert done.returncode == 1
    assert sentence in done.stdout + done.stderr


def test_a_taken_port_is_named_with_its_option(tmp_path: Path) -> None:
    with HistoryServer({}) as first:
        second = HistoryServer({"historyserver.web.port": str(first.port)}, run=tmp_path / "run")
        done = second.script("start", "-D", f"historyserver.web.port={first.port}")
        assert "-D historyserver.web.port=<port>" in done.stdout + done.stderr
