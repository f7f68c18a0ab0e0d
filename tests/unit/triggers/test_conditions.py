"""One look of a sensor, for every state of a job and every kind of TaskManager."""

from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any

import pytest

from airflow_flinklike.client import FlinklikeClient
from airflow_flinklike.exceptions import JobNotFoundError
from airflow_flinklike.triggers.conditions import (
    ClusterWish,
    JobLook,
    JobWish,
    Verdict,
    job_wish,
    look_at_cluster,
    look_at_job,
    parse_states,
)
from runtime.common.errors import InvalidInputError
from runtime.common.ids import JobId
from runtime.common.states import JobStatus
from tests.kit.rest.fake_cluster import TOKEN, FakeCluster, FakeJob, fake_cluster

JOB = JobId("a" * 32)
OTHER = JobId("b" * 32)


@pytest.fixture
def cluster() -> Iterator[FakeCluster]:
    with fake_cluster() as found:
        yield found


@pytest.fixture
def client(cluster: FakeCluster) -> Iterator[FlinklikeClient]:
    with FlinklikeClient([cluster.url], TOKEN, retry_for=0.0) as connected:
        yield connected


def put(cluster: FakeCluster, job_id: JobId, status: str, *passed: str, name: str = "etl", started: int = 5) -> None:
    cluster.jobs[job_id] = FakeJob({"name": name}, "", status, started=started, passed=list(passed))


def job_of(look: JobLook) -> JobId:
    assert look.state is not None
    return look.state.job_id


@pytest.mark.parametrize(
    ("states", "status", "passed", "verdict"),
    [
        ("FINISHED", "CREATED", [], Verdict.WAITING),
        ("FINISHED", "RUNNING", ["CREATED"], Verdict.WAITING),
        ("FINISHED", "RESTARTING", ["RUNNING"], Verdict.WAITING),
        ("FINISHED", "FINISHED", ["RUNNING"], Verdict.REACHED),
        ("FINISHED", "FAILED", ["RUNNING"], Verdict.MISSED),
        ("FINISHED", "CANCELED", ["RUNNING"], Verdict.MISSED),
        ("FAILED,CANCELED", "FAILED", ["RUNNING"], Verdict.REACHED),
        ("FAILED,CANCELED", "FINISHED", ["RUNNING"], Verdict.MISSED),
        ("RUNNING", "CREATED", [], Verdict.WAITING),
        ("RUNNING", "RUNNING", ["CREATED"], Verdict.REACHED),
        ("RUNNING", "FINISHED", ["CREATED", "RUNNING"], Verdict.REACHED),
        ("RUNNING", "FAILED", ["CREATED", "RUNNING"], Verdict.REACHED),
        ("RUNNING", "CANCELED", ["CREATED"], Verdict.MISSED),
        ("RUNNING, FINISHED", "FINISHED", [], Verdict.REACHED),
    ],
)
def test_the_verdict(
    cluster: FakeCluster, client: FlinklikeClient, states: str, status: str, passed: list[str], verdict: Verdict
) -> None:
    put(cluster, JOB, status, *passed)
    look = client.run(look_at_job(JobWish(parse_states(states), JOB)))
    assert look.state is not None
    assert (look.verdict, look.state.job_id, look.state.status) == (verdict, JOB, JobStatus(status))


def test_every_state_has_a_verdict(cluster: FakeCluster, client: FlinklikeClient) -> None:
    for status in JobStatus:
        put(cluster, JOB, status.value)
        for wanted in JobStatus:
            look = client.run(look_at_job(JobWish(frozenset({wanted}), JOB)))
            is_over = status.is_globally_terminal
            expected = Verdict.REACHED if status is wanted else Verdict.MISSED if is_over else Verdict.WAITING
            assert look.verdict is expected, (status, wanted)


def test_a_name_means_the_newest_job(cluster: FakeCluster, client: FlinklikeClient) -> None:
    wish = job_wish("FINISHED", name="etl")
    assert client.run(look_at_job(wish)).verdict is Verdict.WAITING
    put(cluster, OTHER, "FINISHED", name="other", started=20)
    assert client.run(look_at_job(wish)).state is None
    put(cluster, JOB, "RUNNING", started=10)
    put(cluster, OTHER, "FINISHED", started=5)
    look = client.run(look_at_job(wish))
    assert (job_of(look), look.verdict) == (JOB, Verdict.WAITING)


def test_jobs_that_started_too_early_do_not_count(cluster: FakeCluster, client: FlinklikeClient) -> None:
    moment = datetime(2024, 5, 6, tzinfo=UTC)
    millis = int(moment.timestamp() * 1000)
    put(cluster, JOB, "FINISHED", started=millis - 1)
    wish = job_wish("FINISHED", name="etl", started_after=moment)
    for text in ("2024-05-06", "2024-05-06T00:00:00+00:00", "2024-05-06 02:00:00+02:00"):
        assert job_wish("FINISHED", name="etl", started_after=text) == wish
        assert wish.started_after_millis == millis
        assert client.run(look_at_job(wish)).state is None
    put(cluster, JOB, "FINISHED", started=millis)
    assert job_of(client.run(look_at_job(wish))) == JOB
    put(cluster, JOB, "CREATED", started=-1)
    assert job_of(client.run(look_at_job(wish))) == JOB


def test_a_long_poll_goes_on_from_what_was_seen(cluster: FakeCluster, client: FlinklikeClient) -> None:
    put(cluster, JOB, "RUNNING")
    wish = JobWish(parse_states("FINISHED"), JOB)
    seen = client.run(look_at_job(wish, wait=0.05))
    _ = client.run(look_at_job(wish, wait=0.05, seen=seen))
    assert [path for _, path in cluster.requests] == [
        f"/jobs/{JOB}/status",
        f"/jobs/{JOB}/status?wait=0.05&since=1",
    ]


def test_an_unknown_id_is_an_error(client: FlinklikeClient) -> None:
    with pytest.raises(JobNotFoundError):
        client.run(look_at_job(JobWish(parse_states("FINISHED"), JOB)))


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"states": "FINISHED"}, "either job_id= or job_name="),
        ({"states": "FINISHED", "job_id": JOB, "name": "etl"}, "either job_id= or job_name="),
        ({"states": "DONE, RUNNING", "job_id": JOB}, "'DONE' given, expected some of INITIALIZING, CREATED"),
        ({"states": [], "job_id": JOB}, "none given, expected some of"),
        ({"states": "FINISHED", "name": "etl", "started_after": "yesterday"}, "yesterday"),
    ],
)
def test_what_cannot_be_meant(arguments: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        job_wish(**arguments)


def test_an_id_is_checked() -> None:
    with pytest.raises(InvalidInputError, match="is not a job id"):
        job_wish("FINISHED", job_id="xyz")


def manager(free: int, **fields: Any) -> dict[str, Any]:
    return {"id": "tm", "freeSlots": free, "spark": True, "state": "ready", **fields}


@pytest.mark.parametrize(
    ("managers", "wish", "reached", "free"),
    [
        ([], ClusterWish(), False, 0),
        ([], ClusterWish(0), False, 0),
        ([manager(0)], ClusterWish(), False, 0),
        ([manager(0)], ClusterWish(0), True, 0),
        ([manager(1)], ClusterWish(), True, 1),
        ([manager(1), manager(2)], ClusterWish(3), True, 3),
        ([manager(1), manager(2, state="draining")], ClusterWish(2), False, 1),
        ([manager(1), manager(2, state="drained")], ClusterWish(2), False, 1),
        ([manager(2, spark=False)], ClusterWish(2), True, 2),
        ([manager(2, spark=False), manager(1)], ClusterWish(2, has_spark=True), False, 1),
        ([manager(2, **{"spark-profile": "big"}), manager(4)], ClusterWish(2, spark_profile="big"), True, 2),
        ([manager(4)], ClusterWish(1, spark_profile="big"), False, 0),
    ],
)
def test_room(
    cluster: FakeCluster,
    client: FlinklikeClient,
    managers: list[dict[str, Any]],
    wish: ClusterWish,
    reached: bool,
    free: int,
) -> None:
    cluster.task_managers = managers
    look = client.run(look_at_cluster(wish))
    assert (look.is_reached, look.free_slots) == (reached, free)
