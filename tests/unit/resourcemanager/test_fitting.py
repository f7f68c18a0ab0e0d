"""Which TaskManagers could serve a job: profile, static conf, Spark."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Collection

import pytest

from runtime.common.ids import AllocationId, JobId
from runtime.common.spark_conf import ISOLATION
from runtime.common.spark_environments import SparkOffer, SparkWish
from runtime.common.waiting import Waiting
from runtime.gateways.resource_manager import ResourceProfile, SparkEnvironmentStatus
from runtime.resourcemanager.core import events as ev
from runtime.resourcemanager.core import fitting, matching
from runtime.resourcemanager.core.job_needs import JobNeeds
from runtime.resourcemanager.core.slots import TaskManagerSlots
from tests.kit.control_plane.slot_requests import T1, T2, Cluster, job, kinds, reasons, requests

GIB = 1 << 30
MEMORY = b'{"spark.executor.memory": "1024m"}'
LOCAL = {"spark.master": "local[*]", "spark.driver.memory": "1g"}


def test_a_profile_must_fit() -> None:
    cluster = Cluster()
    cluster.register(T1, 1, ResourceProfile(cpu_cores=1, memory_bytes=1 << 30))
    assert requests(cluster.declare(1, 1, ResourceProfile(memory_bytes=2 << 30))) == []
    assert len(requests(cluster.declare(2, 1, ResourceProfile(cpu_cores=1)))) == 1


def test_labels_must_be_there() -> None:
    cluster = Cluster()
    gpu, both = ResourceProfile(labels=("gpu=a100",)), ResourceProfile(labels=("gpu=a100", "zone=b"))
    cluster.register(T1, 2)
    told = reasons(cluster.declare(1, 1, gpu))
    assert told == {job(1): "none of 1 TaskManagers offers a slot with label gpu=a100"}
    assert cluster.lacking_slots() == 0, "more of the same would not help"
    assert [peer for peer, _ in requests(cluster.register(T2, 2, both))] == [T2]
    assert [peer for peer, _ in requests(cluster.declare(2, 1, both))] == [T2]
    (reason,) = reasons(cluster.declare(3, 1, ResourceProfile(labels=("gpu=h100", "zone=b")))).values()
    assert reason == "none of 2 TaskManagers offers a slot with labels gpu=h100, zone=b"
    assert len(requests(cluster.declare(4, 2))) == 2, "who asks for none may be anywhere"


def test_static_conf_is_served_by_a_task_manager_that_offers_it() -> None:
    cluster = Cluster()
    cluster.register(T1, 4, spark_conf={})
    assert reasons(cluster.declare(1, 2, static_conf=MEMORY, needs_spark=True))[job(1)].endswith(
        "start one with -D spark.executor.memory=1024m"
    )
    assert [peer for peer, _ in requests(cluster.register(T2, 1, spark_conf={"spark.executor.memory": "1g"}))] == [T2]
    assert "all 1 slots that fit are in use" in cluster.manager.job(job(1)).waiting.reason  # type: ignore[union-attr]
    assert [peer for peer, _ in requests(cluster.declare(2, 4))] == [T1] * 4, "others take the rest"


def test_a_job_that_was_submitted_before_any_task_manager_is_judged_when_one_registers() -> None:
    cluster = Cluster()
    assert "no TaskManager is registered" in reasons(cluster.declare(1, 1, static_conf=MEMORY))[job(1)]
    effects = cluster.register(T1, 1, spark_conf={"spark.executor.memory": "2g"})
    assert requests(effects) == []
    assert "no TaskManager offers '1024m'" in reasons(effects)[job(1)]
    assert requests(cluster.register(T2, 1, spark_conf={"spark.executor.memory": "1g"}))


def test_a_task_manager_that_comes_back_with_another_conf_is_judged_by_that() -> None:
    cluster = Cluster()
    cluster.register(T1, 1, spark_conf={})
    cluster.declare(1, 1, static_conf=MEMORY, needs_spark=True)
    assert requests(cluster.register(T1, 1, spark_conf={"spark.executor.memory": "1g"}))


def test_code_that_expects_spark_goes_where_spark_is() -> None:
    cluster = Cluster()
    cluster.register(T1, 2)
    cluster.register(T2, 1, spark_conf={})
    assert [peer for peer, _ in requests(cluster.declare(1, 3, needs_spark=True))] == [T2]
    assert [peer for peer, _ in requests(cluster.declare(2, 2))] == [T1, T1]


def test_without_any_spark_the_code_is_plain_python() -> None:
    cluster = Cluster()
    cluster.register(T1, 1)
    assert [peer for peer, _ in requests(cluster.declare(1, 1, needs_spark=True))] == [T1]


def test_spark_that_is_away_is_waited_for() -> None:
    cluster = Cluster()
    cluster.register(T1, 1)
    cluster.register(T2, 1, spark_conf={})
    cluster.handle(ev.TaskManagerDisconnected(T2))
    effects = cluster.declare(1, 1, needs_spark=True)
    assert requests(effects) == []
    assert reasons(effects)[job(1)] == "no TaskManager with Spark has such slots"
    assert kinds(effects)[job(1)] == "fitting_slots"


def static(heap: str) -> bytes:
    return json.dumps({"spark.driver.memory": heap}).encode()


def environment(heap: str, users: int = 0) -> SparkEnvironmentStatus:
    spec = SparkOffer(LOCAL).environment(SparkWish(asked={"spark.driver.memory": heap}))
    return SparkEnvironmentStatus(spec.key, spec.memory_bytes, users)


def test_an_environment_is_started_where_there_is_memory_for_it() -> None:
    cluster = Cluster()
    cluster.register(T1, 2, spark_conf=LOCAL)
    cluster.register(T2, 2, spark_conf=LOCAL, environment_bytes=4 * GIB)
    assert [peer for peer, _ in requests(cluster.declare(1, 2, static_conf=static("3g"), needs_spark=True))] == [T2, T2]
    effects = cluster.declare(2, 1, static_conf=static("9g"), needs_spark=True)
    assert "takes 10137 MiB, and TaskManagers have at most 4096 MiB" in reasons(effects)[job(2)]
    assert kinds(effects)[job(2)] == "fitting_slots"
    effects = cluster.declare(3, 1, static_conf=b'{"spark.local.dir": "/d"}', needs_spark=True)
    assert "a job cannot set it" in reasons(effects)[job(3)]


def test_a_task_manager_that_has_the_environment_is_preferred() -> None:
    cluster = Cluster()
    for peer in (T1, T2):
        cluster.register(peer, 4, spark_conf=LOCAL, environment_bytes=4 * GIB)
    cluster.report(T2, [None] * 4, environment("3g"))
    assert [peer for peer, _ in requests(cluster.declare(1, 6, static_conf=static("3g")))] == [T2] * 4 + [T1] * 2


def test_a_task_manager_whose_spark_has_the_conf_needs_no_environment() -> None:
    cluster = Cluster()
    cluster.register(T1, 2, spark_conf=LOCAL, environment_bytes=8 * GIB)
    cluster.register(T2, 1, spark_conf={**LOCAL, "spark.driver.memory": "3072m"})
    assert [peer for peer, _ in requests(cluster.declare(1, 1, static_conf=static("3g")))] == [T2]


def test_environments_of_others_are_waited_for_and_unused_ones_give_way() -> None:
    cluster = Cluster()
    cluster.register(T1, 4, spark_conf=LOCAL, environment_bytes=4 * GIB)
    ((_, first),) = requests(cluster.declare(1, 1, static_conf=static("3g")))
    effects = cluster.declare(2, 1, static_conf=static("2g"))
    assert requests(effects) == []
    assert reasons(effects)[job(2)].startswith("no room for its Spark environment: those of other jobs are in use on")
    assert kinds(effects)[job(2)] == "spark_environment"
    held = (first.allocation_id, job(1))
    assert requests(cluster.report(T1, [held, None, None, None], environment("3g", users=1))) == []
    assert requests(cluster.declare(3, 1)), "jobs without static conf are served"
    cluster.declare(1, 0)
    assert requests(cluster.report(T1, [None] * 4, environment("3g", users=1))) == [], "an attempt has it still"
    assert [peer for peer, _ in requests(cluster.report(T1, [None] * 4, environment("3g")))] == [T1]


def test_what_a_script_sets_itself_leads_to_a_task_manager_that_can_have_it() -> None:
    cluster = Cluster()
    cluster.register(T1, 2, spark_conf=LOCAL)
    cluster.register(T2, 1, spark_conf=LOCAL, environment_bytes=4 * GIB)
    assert [peer for peer, _ in requests(cluster.declare(1, 1, script_conf=static("3g"), needs_spark=True))] == [T2]
    assert [peer for peer, _ in requests(cluster.declare(2, 2, script_conf=static("9g"), needs_spark=True))] == [T1] * 2


def test_and_keeps_no_job_from_a_cluster_without_spark() -> None:
    cluster = Cluster()
    cluster.register(T1, 1)
    assert requests(cluster.declare(1, 1, script_conf=static("3g"), needs_spark=True))


def test_no_two_jobs_share_the_memory_of_a_metastore_of_their_own() -> None:
    cluster = Cluster()
    cluster.register(T1, 4, spark_conf=LOCAL, environment_bytes=2 * GIB)
    hive = b'{"spark.sql.catalogImplementation": "hive"}'
    assert requests(cluster.declare(1, 1, static_conf=hive))
    assert requests(cluster.declare(2, 1, static_conf=hive)) == []


def test_the_next_leader_counts_environments_of_slots_that_it_finds() -> None:
    cluster = Cluster()
    cluster.register(T1, 4, spark_conf=LOCAL, environment_bytes=4 * GIB)
    held = (AllocationId("e" * 32), job(1))
    cluster.report(T1, [held, None, None, None])
    cluster.declare(1, 1, static_conf=static("3g"))
    assert requests(cluster.declare(2, 1, static_conf=static("2g"))) == []


OWN_JVMS = {**LOCAL, ISOLATION: "jvm"}


def test_where_each_job_has_a_jvm_its_room_is_counted() -> None:
    cluster = Cluster()
    cluster.register(T1, 4, spark_conf=OWN_JVMS, environment_bytes=2 * GIB)
    assert requests(cluster.declare(1, 1, needs_spark=True))
    effects = cluster.declare(2, 1, needs_spark=True)
    assert requests(effects) == []
    assert reasons(effects)[job(2)].startswith("no room for its Spark environment: those of other jobs are in use on")
    assert requests(cluster.declare(1, 2, needs_spark=True)), "the same job has its JVM for all its tasks"
    assert requests(cluster.declare(3, 1)), "code that may do without Spark waits in its slot, if it has to"


def test_the_next_leader_counts_jvms_of_jobs_without_conf() -> None:
    cluster = Cluster()
    cluster.register(T1, 4, spark_conf=OWN_JVMS, environment_bytes=2 * GIB)
    cluster.report(T1, [(AllocationId("e" * 32), job(1)), None, None, None])
    cluster.declare(1, 1, needs_spark=True)
    assert requests(cluster.declare(2, 1, needs_spark=True)) == []


def test_a_job_without_conf_rather_goes_where_spark_is_warm() -> None:
    cluster = Cluster()
    cluster.register(T1, 1, spark_conf=OWN_JVMS, environment_bytes=2 * GIB)
    cluster.register(T2, 1, spark_conf=LOCAL)
    assert [peer for peer, _ in requests(cluster.declare(1, 2, needs_spark=True))] == [T2, T1]


def test_no_more_environments_are_promised_than_there_are_accounts() -> None:
    cluster = Cluster()
    cluster.register(T1, 4, spark_conf=LOCAL, environment_bytes=9 * GIB, environment_accounts=1)
    assert requests(cluster.declare(1, 1, static_conf=static("2g")))
    effects = cluster.declare(2, 1, static_conf=static("3g"))
    assert requests(effects) == []
    assert "(taskmanager.memory.spark.total, accounts of taskmanager.spark.user)" in reasons(effects)[job(2)]
    assert requests(cluster.declare(3, 1, static_conf=static("2g"))), "it is shared as ever"


# --- the reasons of many jobs ---------------------------------------------------------------------------------


def test_a_reason_is_found_once_for_all_jobs_that_need_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    cluster, asked = Cluster(), Counter[ResourceProfile]()
    cluster.register(T1, 1)
    for number in range(1, 40):
        cluster.declare(number, 1, ResourceProfile(cpu_cores=float(number % 3 == 0)))
    found = fitting.shortage

    def counted(
        peers: Collection[TaskManagerSlots], needs: JobNeeds, profile: ResourceProfile, advice: str, choices: None
    ) -> Waiting:
        asked[profile] += 1
        return found(peers, needs, profile, advice, choices)

    monkeypatch.setattr(fitting, "shortage", counted)
    cluster.handle(ev.AdviceChanged("a driver starts them"))
    assert list(asked.values()) == [1, 1]
    for number in range(2, 40):
        assert cluster.manager.shown_waiting(job(number))
    assert list(asked.values()) == [1, 1]


def test_a_reason_that_was_found_is_not_kept_beyond_an_event() -> None:
    cluster = Cluster()
    cluster.declare(1, 1)
    cluster.declare(2, 1)
    assert "no TaskManager is registered" in cluster.manager.shown_waiting(job(2)).reason
    cluster.register(T1, 1)
    assert "all 1 slots that fit are in use" in cluster.manager.shown_waiting(job(2)).reason


def test_reasons_are_of_the_reach_the_namespace_and_the_environment_of_each_job() -> None:
    cluster = Cluster()
    cluster.register(T1, 1, spark_conf=LOCAL, environment_bytes=2 * GIB, environment_accounts=1)
    own = json.dumps({ISOLATION: "jvm", **LOCAL}).encode()
    cluster.declare(1, 2, static_conf=own, needs_spark=True)
    cluster.declare(2, 1, static_conf=own, needs_spark=True)
    cluster.declare(3, 1, unreachable=(T1,))
    cluster.declare(4, 1)
    shown = [cluster.manager.shown_waiting(job(number)).kind.value for number in (1, 2, 3, 4)]
    assert shown == ["slots", "spark_environment", "taskmanagers", "slots"]


def test_a_tick_looks_for_no_slots_of_jobs_whose_owners_reach_all_task_managers(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    cluster, looks = Cluster(), Counter[JobId]()
    cluster.register(T1, 1)
    for number in (1, 2, 3):
        cluster.declare(number, 1)
    cluster.declare(4, 1, unreachable=(T1,))

    def counted(
        _peers: Collection[TaskManagerSlots], needs: JobNeeds, _profile: ResourceProfile
    ) -> list[TaskManagerSlots]:
        looks[needs.job_id] += 1
        return []

    monkeypatch.setattr(matching, "fitting", counted)
    cluster.tick(1.0)
    assert looks == {job(4): 1}
