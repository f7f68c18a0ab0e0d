"""R50: which options of slot users go together, and which ranges are too small."""

from __future__ import annotations

import pytest

from runtime.common.errors import InvalidInputError
from runtime.config.loading import InvalidConfigurationError, load
from runtime.entrypoint.slot_users import not_enforced, slot_users

RANGE = "taskmanager.slots.uids=20000-20009"
TLS = tuple(f"security.ssl.internal.{one}" for one in ("enabled=true", "cert=/c", "key=/c", "ca=/ca"))
UIDS = (RANGE, *TLS)
USER = "taskmanager.spark.user=spark"
WITHOUT_SPARK = "taskmanager.spark.enabled=false"
WRONG = {
    "no-account": (UIDS, "takes taskmanager.spark.user beside Spark"),
    "plain-links": ((RANGE, WITHOUT_SPARK), "hears what processes of the cluster show each other"),
    "no-uids": ((USER,), "set taskmanager.slots.uids too"),
    "spark-cluster": (
        (*UIDS, USER, "spark.master=spark://h:7077", "taskmanager.spark.allow-unauthenticated=true"),
        "is for spark.master local",
    ),
    "no-limit": (("taskmanager.slots.max-processes=64",), "has no effect without taskmanager.slots.uids"),
    "sockets": ((*UIDS, USER, "spark.python.unix.domain.socket.enabled=true"), "cannot open the sockets of the JVM"),
}


@pytest.mark.parametrize("wrong", WRONG)
def test_what_contradicts_is_refused(wrong: str) -> None:
    options, words = WRONG[wrong]
    with pytest.raises(InvalidConfigurationError) as caught:
        load(None, environment={}, dynamic=options)
    (problem,) = caught.value.problems
    assert words in problem


def test_with_an_account_and_without_spark_it_is_taken() -> None:
    load(None, environment={}, dynamic=[*UIDS, USER])
    load(None, environment={}, dynamic=[*UIDS, f"{USER},spark-1", "taskmanager.slot.isolation=jvm"])
    load(None, environment={}, dynamic=[*UIDS, WITHOUT_SPARK])


@pytest.mark.parametrize(("options", "slots_max"), [((*UIDS, USER), 7), ((*UIDS, WITHOUT_SPARK), 8)])
def test_a_range_has_numbers_for_one_job(options: tuple[str, ...], slots_max: int) -> None:
    configuration = load(None, environment={}, dynamic=options)
    users = slot_users(configuration, slots_max)
    assert users is not None
    assert len(users.job_gids) == 1
    with pytest.raises(InvalidInputError, match="too small"):
        slot_users(configuration, slots_max + 1)


def test_a_limit_of_processes_is_taken_where_there_is_one() -> None:
    limit = "taskmanager.slots.max-processes=64"
    load(None, environment={}, dynamic=[*UIDS, WITHOUT_SPARK, limit])
    load(None, environment={}, dynamic=["taskmanager.slots.cgroups=auto", limit])


@pytest.mark.parametrize("uid", [0, 1000])
def test_who_has_tasks_run_as_root_is_warned(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, uid: int
) -> None:
    monkeypatch.setattr("os.geteuid", lambda: uid)
    assert slot_users(load(None, environment={}), 2) is None
    assert ("tasks run as root here: each can read the cluster's token" in caplog.text) is (uid == 0)


def test_one_jvm_for_all_is_told_where_all_else_is_enforced() -> None:
    beside = slot_users(load(None, environment={}, dynamic=[*UIDS, USER]), 2)
    alone = slot_users(load(None, environment={}, dynamic=[*UIDS, WITHOUT_SPARK]), 2)
    assert "spark" in not_enforced(beside, ())
    assert "spark" not in not_enforced(alone, ())
    assert "spark" not in not_enforced(None, ())
