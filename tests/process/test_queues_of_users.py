"""Shares with real processes: two users, two slots, and a queue that is somebody else's (R64)."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from tests.kit.cluster.script_cluster import ScriptCluster
from tests.kit.host.levels import reached
from tests.process.test_tokens_of_people import as_, asked, new_token, signs_in

pytestmark = [pytest.mark.process, pytest.mark.etcd]

PROGRAM = """
import pathlib, sys, time
place, name = pathlib.Path(sys.argv[1]), sys.argv[2]
(place / f"began-{name}").touch()
while not (place / f"end-{name}").exists():
    time.sleep(0.05)
"""
QUEUE = "slotmanager.queue.reports"


@pytest.fixture(scope="module")
def cluster() -> Iterator[ScriptCluster]:
    options = {
        "high-availability.type": "etcd",
        "taskmanager.spark.enabled": "false",
        "taskmanager.numberOfTaskSlots": "2",
        f"{QUEUE}.weight": "2",
        f"{QUEUE}.max-running-jobs": "1",
        f"{QUEUE}.namespaces": "team-b",
    }
    with ScriptCluster(options, job_masters=1) as made:
        yield made


class User:
    """Submits programs that run until the test ends them."""

    def __init__(self, cluster: ScriptCluster, place: Path, name: str, namespace: str) -> None:
        self.cluster, self.place = cluster, place
        (place / "hold.py").write_text(PROGRAM)
        self.token = new_token(cluster, name, "--role", "submitter", "--namespace", namespace)
        reached(lambda: signs_in(cluster.url, self.token), f"{name} is known")

    def run(self, job: str, *options: str) -> str:
        """Submits the job, and returns why not."""
        arguments = ("run", "-d", "--job-id", job * 32, *options, "hold.py", str(self.place), job)
        done = as_(self.cluster, self.token, *arguments, cwd=self.place)
        assert bool(done.returncode) == bool(done.stderr.strip()), done.stderr
        return done.stderr

    def waits(self, job: str) -> str:
        answer: httpx.Response = asked(self.cluster.url, self.token, f"/jobs/{job * 32}/status")
        return str(answer.json()["pending-reason"])

    def began(self) -> set[str]:
        return {path.name.removeprefix("began-") for path in self.place.glob("began-*")}

    def end(self, job: str) -> None:
        (self.place / f"end-{job}").touch()


def test_the_job_of_another_user_has_the_next_slot(cluster: ScriptCluster, tmp_path: Path) -> None:
    sam, bea = User(cluster, tmp_path, "sam", "team-a"), User(cluster, tmp_path, "bea", "team-b")
    for job in "123456":
        assert sam.run(job) == ""
    reached(lambda: sam.began() == {"1", "2"}, "both slots are taken")
    reached(lambda: "4th of 4 in queue sam, which holds 2 of its share of 2 slots" in sam.waits("6"), "its place")
    assert bea.run("b") == ""
    reached(lambda: "1st of 1 in queue bea, which holds 0 of its share of 1 slot" in bea.waits("b"), "the next turn")
    sam.end("1")
    assert reached(lambda: sam.began() - {"1", "2"}, "the slot is used") == {"b"}
    queues = {one["name"]: one for one in json.loads(cluster.cli("queues", "--json").stdout)["queues"]}
    assert {name: (one["slots-held"], one["jobs-waiting"]) for name, one in queues.items()} == {
        "sam": (1, 4),
        "bea": (1, 0),
        "reports": (0, 0),
    }
    for job in "23456b":
        sam.end(job)
    reached(lambda: len(sam.began()) == 7, "all have had their turn")


def test_a_queue_is_for_the_namespaces_that_it_names(cluster: ScriptCluster, tmp_path: Path) -> None:
    eve, ben = User(cluster, tmp_path, "eve", "team-a"), User(cluster, tmp_path, "ben", "team-b")
    assert "slotmanager.queue.reports.namespaces has team-a" in eve.run("e", "--queue", "reports")
    for job, priority in (("7", "0"), ("8", "1"), ("9", "9")):
        assert ben.run(job, "--queue", "reports", "--priority", priority) == ""
        reached(lambda: "7" in ben.began(), "the first one runs")
    reached(lambda: "queue reports runs the 1 jobs that it may run at once; 2nd of 2" in ben.waits("8"), "the limit")
    assert "queue reports with priority 9" in cluster.cli("info", "9" * 32).stdout
    for job, begun in (("7", {"7", "9"}), ("9", {"7", "8", "9"})):
        assert len(ben.began()) == len(begun) - 1, "though two slots are free"
        ben.end(job)
        reached(lambda: len(ben.began()) == len(begun), "the next one")  # noqa: B023
        assert ben.began() == begun, "the higher priority first"
    ben.end("8")
