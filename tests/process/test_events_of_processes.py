"""The leader of a real cluster is killed: the next one tells what has happened before, and what has happened since."""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Iterator
from typing import Any

import pytest

from airflow_flinklike.client import FlinklikeClient
from tests.kit.cluster.job_managers import leader_and_standby, seconds_until_answer
from tests.kit.cluster.naps import run_naps
from tests.kit.cluster.script_cluster import ROOT, ScriptCluster
from tests.kit.etcd.stored_keys import KEYS, revisions
from tests.kit.host.levels import reached
from tests.process.conftest import WITHOUT_SPARK

pytestmark = [pytest.mark.process, pytest.mark.etcd]

OPTIONS = {**WITHOUT_SPARK, "high-availability.lease-timeout": "3 s"}


@pytest.fixture(scope="module")
def cluster() -> Iterator[ScriptCluster]:
    with ScriptCluster(OPTIONS, masters=2) as made:
        yield made


@pytest.fixture
def client(cluster: ScriptCluster) -> Iterator[FlinklikeClient]:
    with cluster.connect() as made:
        yield made


def events(client: FlinklikeClient) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = client.get("/events", limit="1000")["events"]
    return found


def kinds(client: FlinklikeClient) -> list[str]:
    return [one["kind"] for one in events(client)]


def test_events_outlive_the_leader_and_each_is_told_once(cluster: ScriptCluster, client: FlinklikeClient) -> None:
    def has_begun() -> list[dict[str, Any]]:
        found = events(client)
        told = {one["kind"] for one in found}
        return found if {"leader-elected", "jobmaster-registered", "taskmanager-registered"} <= told else []

    reached(has_begun, "the first events")
    reached(lambda: client.get("/overview")["stand-bys"], "the overview names the stand-by")
    (job,) = run_naps(client, 1)
    owner = client.get(f"/jobs/{job}")["jobmaster-id"]
    client.post(f"/jobmasters/{owner}/drain")
    reached(lambda: {"job-taken-over", "jobmaster-draining"} <= set(kinds(client)), "the drain and the move are told")
    what_a_person_follows(cluster)
    before = events(client)
    reached(lambda: len(revisions(cluster, KEYS.cluster_events)) == len(before), "all of it is stored")
    leader, standby = leader_and_standby(cluster)
    os.kill(leader.pid, signal.SIGKILL)
    seconds_until_answer(cluster, standby.url, 0.0)
    reached(lambda: client.get("/taskmanagers")["taskmanagers"], "the TaskManager has registered with the next leader")
    after = events(client)
    assert after[: len(before)] == before, "not one is lost or told in another way"
    news = [one["kind"] for one in after[len(before) :]]
    assert "leader-elected" in news
    assert not [one for one in news if one.startswith(("jobmaster", "taskmanager"))], "who was there is not told as new"
    assert len({one["id"] for one in after}) == len(after)
    (task_manager,) = cluster.pids()["taskmanager"]
    os.kill(task_manager, signal.SIGKILL)
    reached(lambda: "taskmanager-dead" in kinds(client), "the death of the TaskManager is told")


def what_a_person_follows(cluster: ScriptCluster) -> None:
    """`flinklike events --follow` begins with what has happened."""
    command = [str(ROOT / "bin" / "flinklike"), "events", "--follow", "--json"]
    process = subprocess.Popen(command, env=cluster.environment, stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    assert "leader-elected" in process.stdout.readline()
    process.send_signal(signal.SIGINT)
    process.stdout.close()
    assert process.wait(60) == 130
