"""Which Spark environment a job's static conf asks for, and what of it is refused."""

from __future__ import annotations

import pytest

from runtime.common.spark_conf import ISOLATION
from runtime.common.spark_environments import (
    SparkOffer,
    SparkWish,
    environment_key,
    jar_paths,
    jars_of_jobs,
    overhead_bytes,
    refused_static_conf,
    with_jars,
)

GIB = 1 << 30
LOCAL = {"spark.master": "local[*]", "spark.driver.memory": "1024m", "spark.serializer": "java"}
ALONE = SparkOffer(LOCAL)
ON_DEMAND = SparkOffer(LOCAL, 4 * GIB)
KRYO = {"spark.serializer": "kryo"}
ALONE_IN_JVM = {ISOLATION: "jvm"}
OWN_JVMS = SparkOffer({**LOCAL, **ALONE_IN_JVM}, 4 * GIB)


@pytest.mark.parametrize(
    ("static", "difference"),
    [
        ({}, {}),
        ({"spark.serializer": "java", "spark.driver.memory": "1g"}, {}),
        ({"spark.serializer": "kryo", "spark.driver.memory": "1g"}, {"spark.serializer": "kryo"}),
        (
            {
                "spark.eventLog.enabled": "False",
                "spark.shuffle.compress": "true",
                "spark.kryoserializer.buffer.max": "65536k",
            },
            {},
        ),
        ({"spark.eventLog.enabled": "true", "spark.speculation": "false"}, {"spark.eventLog.enabled": "true"}),
        (
            {"spark.serializer": "org.apache.spark.serializer.JavaSerializer"},
            {"spark.serializer": "org.apache.spark.serializer.JavaSerializer"},
        ),
        ({"spark.executor.memory": "9g", "spark.yarn.queue": "q", "spark.dynamicAllocation.enabled": "true"}, {}),
    ],
)
def test_an_environment_is_named_by_what_it_has_beyond_the_default(
    static: dict[str, str], difference: dict[str, str]
) -> None:
    found = ON_DEMAND.environment(SparkWish(asked=static))
    assert (found.conf, found.is_default) == (difference, not difference)
    assert found.key == (environment_key(difference) if difference else "")


def test_what_means_the_same_has_the_same_name() -> None:
    assert environment_key({"a": "1024m", "b": "True"}) == environment_key({"b": "true", "a": "1g"})
    assert environment_key({"a": "1g"}) != environment_key({"a": "2g"})
    assert environment_key({"a": "1g"}) != environment_key({"b": "1g"})
    assert environment_key({"spark.jars": "/A.jar"}) != environment_key({"spark.jars": "/a.jar"})


@pytest.mark.parametrize(
    ("static", "heap", "overhead"),
    [
        (KRYO, GIB, 512 << 20),
        ({"spark.driver.memory": "3g"}, 3 * GIB, 512 << 20),
        ({"spark.driver.memory": "20g"}, 20 * GIB, 2 * GIB),
        ({"spark.driver.memory": "3000"}, 3000 << 20, 512 << 20),
        ({"spark.driver.memory": "3g", "spark.driver.memoryOverhead": "1g"}, 3 * GIB, GIB),
    ],
)
def test_its_memory_is_heap_and_overhead(static: dict[str, str], heap: int, overhead: int) -> None:
    found = ON_DEMAND.environment(SparkWish(asked=static))
    assert (found.heap_bytes, found.memory_bytes) == (heap, heap + overhead)


def test_the_overhead_is_a_share_of_a_large_heap() -> None:
    assert (overhead_bytes(GIB, {}), overhead_bytes(100 * GIB, {})) == (512 << 20, 10 * GIB)
    assert overhead_bytes(100 * GIB, {"spark.driver.memoryOverheadFactor": "0.2"}) == 20 * GIB
    assert overhead_bytes(100 * GIB, {"spark.driver.memoryOverheadFactor": "much"}) == 10 * GIB


def test_executors_have_conf_where_they_are_processes_of_a_cluster() -> None:
    cluster = SparkOffer({**LOCAL, "spark.master": "spark://host:7077"}, 4 * GIB)
    assert cluster.environment(SparkWish(asked={"spark.executor.memory": "9g"})).conf == {"spark.executor.memory": "9g"}


@pytest.mark.parametrize(
    ("static", "offers", "expected"),
    [
        (KRYO, [], []),
        ({"mine": "x", "spark.my.key": "v", "spark.hadoop.fs.s3a.endpoint": "http://host"}, [ALONE], []),
        (KRYO, [ALONE, ON_DEMAND], []),
        ({"spark.driver.memory": "3g", "spark.sql.catalogImplementation": "hive"}, [ON_DEMAND], []),
        (KRYO, [ALONE], ["spark_conf spark.serializer: static, and no TaskManager offers 'kryo': start one with -D"]),
        (
            {"spark.driver.memory": "1.5g"},
            [],
            ["spark_conf spark.driver.memory: '1.5g': expected a size of at"],
        ),
        (
            {"spark.driver.extraJavaOptions": "-Xmx9g"},
            [ON_DEMAND],
            ["spark_conf spark.driver.extraJavaOptions: -Xmx"],
        ),
        ({"spark.x": "y", "spark.jars": "j" * 200_000}, [], ["spark_conf: its static keys have 200010 characters, at"]),
        ({ISOLATION: "yes"}, [ON_DEMAND], ["spark_conf spark.flinklike.isolation: 'yes': expected jvm, for a JVM of"]),
        (ALONE_IN_JVM, [ALONE], ["spark_conf spark.flinklike.isolation: no TaskManager starts a JVM for a job: task"]),
        (
            {**ALONE_IN_JVM, "spark.driver.memory": "4g"},
            [ON_DEMAND],
            ["spark_conf spark.driver.memory, spark.flinklike.isolation: a Spark environment for the job takes 4608"],
        ),
        (ALONE_IN_JVM, [ON_DEMAND], []),
        ({"spark.driver.memory": "0g"}, [ON_DEMAND], ["spark_conf spark.driver.memory: '0g': expected a size"]),
        (
            {"spark.driver.memoryOverhead": "x"},
            [ALONE],
            ["spark_conf spark.driver.memoryOverhead: 'x': expected a"],
        ),
        (
            {"spark.executor.memory": "4gigs", "spark.executor.cores": "two", "spark.executor.instances": "3"},
            [ALONE],
            [
                "spark_conf spark.executor.memory: '4gigs': expected a size, such as 3g or 1500m",
                "spark_conf spark.executor.cores: 'two': expected a number, such as 4",
            ],
        ),
        ({"spark.executor.memory": "4294967296b", "spark.executor.memoryOverhead": "512"}, [SparkOffer(LOCAL)], []),
        ({"spark.driver.memory": "2g"}, [ALONE], ["spark_conf spark.driver.memory: no TaskManager starts a Spark env"]),
        (
            {**KRYO, "spark.local.dir": "/d"},
            [ON_DEMAND],
            ["spark_conf spark.local.dir: a job cannot set it: it lies in"],
        ),
        (
            {**KRYO, "spark.driver.memory": "4g"},
            [ALONE, ON_DEMAND],
            ["spark_conf spark.driver.memory, spark.serializer: a Spark environment for the job takes 4608 MiB"],
        ),
    ],
)
def test_what_no_task_manager_can_serve_is_refused(
    static: dict[str, str], offers: list[SparkOffer], expected: list[str]
) -> None:
    found = refused_static_conf(static, offers)
    assert len(found) == len(expected)
    for sentence, begin in zip(found, expected, strict=True):
        assert sentence.startswith(begin)


def test_a_refusal_names_what_lacks_where_the_least_does() -> None:
    wanted = {"spark.executor.memory": "1024m", "spark.local.dir": "/d", "spark.sql.extensions": "a.B"}
    owned, static = refused_static_conf(wanted, [SparkOffer({"spark.executor.memory": "1g"}), SparkOffer()])
    assert owned.startswith("spark_conf spark.local.dir: a job cannot set it")
    assert static.endswith("start one with -D spark.sql.extensions=a.B")


@pytest.mark.parametrize(
    ("offer", "expected"),
    [
        (ON_DEMAND, {"spark.serializer": "kryo", "spark.sql.extensions": "a.B"}),
        (SparkOffer(LOCAL, GIB), {"spark.serializer": "kryo"}),
        (ALONE, {"spark.serializer": "kryo"}),
    ],
)
def test_what_a_script_sets_itself_is_fulfilled_where_that_is_possible(
    offer: SparkOffer, expected: dict[str, str]
) -> None:
    asked = SparkWish("j", KRYO)
    wish = SparkWish("j", KRYO, {"spark.sql.extensions": "a.B"})
    assert offer.can_serve(wish) == offer.can_serve(asked)
    assert dict(offer.environment(wish).conf) == expected
    alone = SparkWish("j", {}, wish.script)
    assert offer.can_serve(alone), "such a wish keeps no job from running"


def test_no_other_job_has_an_environment_with_a_metastore_of_its_own() -> None:
    hive = {"spark.sql.catalogImplementation": "hive"}
    first, second = (ON_DEMAND.environment(SparkWish(job, hive)).key for job in "12")
    assert first != second
    empty = {**hive, "spark.hadoop.hive.metastore.uris": " ", "spark.sql.catalogImplementation": " hive"}
    first, second = (ON_DEMAND.environment(SparkWish(job, empty)).key for job in "12")
    assert first != second
    shared = {**hive, "spark.hadoop.hive.metastore.uris": "thrift://h:9083", "spark.sql.warehouse.dir": "file:/w"}
    first, second = (ON_DEMAND.environment(SparkWish(job, shared)).key for job in "12")
    assert first == second
    assert ON_DEMAND.can_serve(SparkWish("1", shared))
    assert not ON_DEMAND.can_serve(SparkWish("1", {"spark.sql.warehouse.dir": "file:/w"}))


def test_a_task_manager_that_fulfils_what_the_script_sets_is_told_from_one_that_can_only_serve_it() -> None:
    wish = SparkWish("j", {}, KRYO)
    assert (ON_DEMAND.fulfils(wish), ALONE.fulfils(wish)) == (True, False)
    assert ALONE.can_serve(wish)


def test_what_a_script_cannot_set_leaves_the_rest_of_what_it_sets() -> None:
    script = {"spark.local.dir": "/d", "spark.sql.warehouse.dir": "/w", "spark.driver.memory": "9g", **KRYO}
    assert dict(ON_DEMAND.environment(SparkWish("j", {}, script)).conf) == KRYO
    assert dict(ON_DEMAND.environment(SparkWish("j", {}, {**KRYO, "spark.driver.memory": "lots"})).conf) == KRYO


def test_the_overhead_that_the_task_manager_names_counts_for_all() -> None:
    offer = SparkOffer({**LOCAL, "spark.driver.memoryOverhead": "2g"}, 4 * GIB)
    assert offer.environment(SparkWish(asked=KRYO)).memory_bytes == 3 * GIB


def test_hive_support_beside_a_catalog_of_the_task_manager_is_asked_for_again() -> None:
    hive = {"spark.sql.catalogImplementation": "hive"}
    offer = SparkOffer({**LOCAL, **hive}, 4 * GIB)
    assert offer.environment(SparkWish("1", hive)).is_default
    found = offer.environment(SparkWish("1", {**hive, **KRYO}))
    assert dict(found.conf) == {**KRYO, **hive}


def test_jobs_with_the_same_jars_share_an_environment() -> None:
    asked = with_jars({"spark.jars": "/opt/a.jar, "}, [("0a", "b.jar"), ("0c", "d.jar")])
    assert asked == {"spark.jars": "/opt/a.jar, ,blob:0a/b.jar,blob:0c/d.jar"}
    assert jar_paths(asked, "/work/jars") == {"spark.jars": "/opt/a.jar,/work/jars/0a/b.jar,/work/jars/0c/d.jar"}
    assert jars_of_jobs(asked) == {"0a", "0c"}
    assert with_jars(KRYO, []) == jar_paths(KRYO, "/work/jars") == KRYO
    assert jars_of_jobs(KRYO) == jars_of_jobs({"spark.jars": "/opt/a.jar"}) == set()
    (refused,) = refused_static_conf({"spark.jars": "blob:0a/b.jar"}, [ON_DEMAND])
    assert "give jars of the client as jars of the job" in refused
    (refused,) = refused_static_conf({}, [ALONE], jars=[("0a", "b.jar")])
    assert refused.startswith("jars: no TaskManager starts a JVM for a job: taskmanager.memory.spark.total")
    assert refused_static_conf({}, [ALONE, ON_DEMAND], jars=[("0a", "b.jar")]) == []


def test_an_application_has_room_of_its_own_and_shares_no_key() -> None:
    wish = SparkWish("1" * 32, {"spark.driver.memory": "2g"}, is_application=True)
    found = ON_DEMAND.environment(wish)
    assert (found.is_application, found.heap_bytes, found.memory_bytes) == (True, 2 * GIB, 2 * GIB + (512 << 20))
    assert found.key != ON_DEMAND.environment(SparkWish("2" * 32, wish.asked, is_application=True)).key
    plain = ON_DEMAND.environment(SparkWish("1" * 32, is_application=True))
    assert (plain.is_default, plain.heap_bytes) == (False, GIB)
    assert ON_DEMAND.can_serve(wish)
    assert ON_DEMAND.fulfils(wish)
    assert not ALONE.can_serve(wish)
    assert not SparkWish(is_application=True).is_empty


@pytest.mark.parametrize(
    ("conf", "offer", "told"),
    [
        ({}, ALONE, "a Java application needs a JVM of its own, and no TaskManager starts a JVM for a job"),
        ({"spark.driver.memory": "9g"}, ON_DEMAND, "spark.driver.memory: the JVM of the application takes 10137 MiB"),
        ({"spark.local.dir": "/x"}, ON_DEMAND, "spark.local.dir: a job cannot set it"),
    ],
)
def test_an_application_that_no_task_manager_can_run_is_refused(
    conf: dict[str, str], offer: SparkOffer, told: str
) -> None:
    (refused,) = refused_static_conf(conf, [offer], is_application=True)
    assert told in refused


@pytest.mark.parametrize(("offer", "asked"), [(ON_DEMAND, ALONE_IN_JVM), (OWN_JVMS, {}), (OWN_JVMS, ALONE_IN_JVM)])
def test_a_jvm_of_its_own_has_the_job_in_its_key(offer: SparkOffer, asked: dict[str, str]) -> None:
    """Asked for by the job, or what the TaskManager has for each."""
    first, again, other = (offer.environment(SparkWish(job_id * 32, asked)) for job_id in "112")
    assert first == again
    assert first.key != other.key
    assert (first.job_id, first.memory_bytes, first.is_default) == ("1" * 32, GIB + (512 << 20), False)


def test_a_script_asks_for_a_jvm_of_its_own_too() -> None:
    assert ON_DEMAND.environment(SparkWish("1" * 32, script=ALONE_IN_JVM)).job_id == "1" * 32
    assert ON_DEMAND.environment(SparkWish("1" * 32, script={ISOLATION: "yes"})).is_default


def test_what_jobs_share_is_no_jobs() -> None:
    assert not ON_DEMAND.environment(SparkWish("1" * 32, KRYO)).job_id
    assert ON_DEMAND.environment(SparkWish("1" * 32)).is_default
    hive = ON_DEMAND.environment(SparkWish("1" * 32, {"spark.sql.catalogImplementation": "hive"}))
    assert hive.job_id == "1" * 32, "its metastore is the job's"


def test_where_slots_have_users_there_are_as_many_as_accounts_and_no_applications() -> None:
    offer = SparkOffer(LOCAL, 4 * GIB, accounts=2)
    assert offer.has_room_beside([GIB], GIB)
    assert not offer.has_room_beside([GIB, GIB], GIB)
    assert not offer.has_room_beside([3 * GIB], 2 * GIB)
    assert ON_DEMAND.has_room_beside([GIB, GIB], GIB)
    assert refused_static_conf(KRYO, [offer]) == []
    (refused,) = refused_static_conf({}, [offer], is_application=True)
    assert refused.startswith(
        "a Java application runs as the user of its slot, and where slots have users of their own"
    )
    assert refused_static_conf({}, [offer, ON_DEMAND], is_application=True) == []
