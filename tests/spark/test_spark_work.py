"""What the JVM says of the work of one attempt: its own jobs, stages and queries, and nothing of another session's."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any

import pytest

from runtime.common.ids import JobId
from runtime.gateways.spark_work import SparkQuery, SparkWork
from runtime.taskexecutor.spark.spark_answers import WorkAsked
from tests.kit.spark.slot_box import SlotBox
from tests.kit.spark.spark_box import SparkBox, wait_until

pytestmark = pytest.mark.timeout(600)  # one JVM per module, and it may have to wait for its turn


@pytest.fixture
def slots(box: SparkBox, tmp_path_factory: pytest.TempPathFactory) -> Iterator[SlotBox]:
    made = SlotBox(box, tmp_path_factory.mktemp("slots"))
    yield made
    made.stop()


SHUFFLE = """
spark.range(0, 1000, 1, 4).selectExpr("id % 7 as k").groupBy("k").count().collect()
emit("done")
ask()
"""
FAILS = """
try:
    spark.sparkContext.parallelize(range(2), 2).map(lambda x: 1 // 0).collect()
except Exception:
    emit("failed")
ask()
"""


def work(
    box: SparkBox, session_id: str, since: float, until: float = 0.0, *, stages: int = 100
) -> tuple[SparkWork, tuple[SparkQuery, ...]]:
    asked = WorkAsked(session_id, int(since * 1000), int(until * 1000))
    told = box.run(box.environment.work(asked, stages, has_plans=True))
    assert told is not None
    return told


def test_stages_and_plans_of_one_attempt(box: SparkBox) -> None:
    since = time.time() - 0.01
    slot, other = box.slot(SHUFFLE), box.slot(FAILS, slot_index=1)
    assert (slot.next(), other.next()) == ("done", "failed")
    now = time.time()
    told, queries = work(box, slot.session.session_id, since, now)
    assert told.jobs >= 1
    assert told.jobs_failed == 0
    assert told.stages_total >= 2
    assert told.total.tasks_completed >= 5
    assert told.total.shuffle_write_bytes > 0
    assert told.total.shuffle_read_bytes > 0
    done = [one for one in told.stages if one.state == "COMPLETE"]
    assert all(since * 1000 - 1 <= one.submitted_millis <= one.completed_millis <= now * 1000 + 1000 for one in done)
    assert len(queries) == 1
    assert "HashAggregate" in queries[0].plan
    assert queries[0].completed_millis >= queries[0].submitted_millis > 0
    failed, none = work(box, other.session.session_id, since, now)
    assert (failed.jobs, failed.jobs_failed, none) == (1, 1, ())
    assert failed.total.tasks_failed >= 1
    assert work(box, slot.session.session_id, now + 1)[0].jobs == 0, "another attempt of the same process"
    assert len(work(box, slot.session.session_id, since, now, stages=1)[0].stages) == 1


def test_heap_and_conf_of_the_jvm_are_told_without_secrets(box: SparkBox) -> None:
    told = box.run(box.environment.jvm_figures("k"))
    assert told is not None
    assert told.key == "k"
    assert 0 < told.heap_used <= told.heap_committed <= told.heap_max
    assert told.gc_count > 0
    conf = {one.key: one.value for one in told.conf}
    assert conf["spark.scheduler.mode"] == "FAIR"
    assert told.resident_bytes > told.heap_used / 2


def test_it_is_told_in_little_time(box: SparkBox) -> None:
    slot = box.slot(SHUFFLE)
    slot.next()
    times = []
    for _ in range(20):
        begin = time.perf_counter()
        work(box, slot.session.session_id, 0.0, time.time())
        times.append(time.perf_counter() - begin)
    print("seconds for one look:", sorted(times)[10])
    assert sorted(times)[10] < 0.2


def counts_by_key(ctx: Any) -> Any:
    return ctx.spark.range(0, 1000, 1, 4).selectExpr("id % 7 as k").groupBy("k").count().count()


def test_a_report_has_the_stages_of_its_attempt_whose_plans_can_be_asked_for(slots: SlotBox) -> None:
    job = JobId("7" * 32)
    first = slots.do(slots.bench.run(slots.work(counts_by_key, job_id=job)))
    again = slots.do(slots.bench.run(slots.work(counts_by_key, job_id=job)))
    works = [report.spark_work for report in (first, again)]
    assert works[0] is not None
    assert works[1] is not None
    assert works[0].jobs == works[1].jobs >= 1
    assert works[0].total.shuffle_write_bytes > 0
    assert not {one.stage_id for one in works[0].stages} & {one.stage_id for one in works[1].stages}
    assert {one.state for one in works[1].stages} <= {"COMPLETE", "SKIPPED"}
    assert slots.do(slots.bench.run(slots.work(lambda ctx: 1, job_id=job))).spark_work is None
    (told,) = slots.do(slots.pool.views.spark([first.attempt_id], has_plans=True)).found
    done = {one for one in works[0].stages if one.state == "COMPLETE"}
    assert done  # Spark forgets skipped stages first, once it has seen 200 of all jobs
    assert done <= set(told.work.stages) <= set(works[0].stages)
    assert any("HashAggregate" in query.plan for query in told.queries)


def two_queries(ctx: Any) -> Any:
    ctx.spark.range(0, 1000, 1, 4).selectExpr("id % 7 as k").groupBy("k").count().collect()
    ctx.spark.range(10).count()
    ctx.spark.sparkContext.setJobDescription("sales of a day")
    return ctx.spark.range(10).count()


def test_queries_have_the_name_that_users_give_them_or_that_of_their_call(slots: SlotBox) -> None:
    """The description of Spark's jobs is the id of the cluster's job, which each query of it had."""
    done = slots.do(slots.bench.run(slots.work(two_queries, job_id=JobId("7" * 32))))
    (told,) = slots.do(slots.pool.views.spark([done.attempt_id], has_plans=True)).found
    described = [one.description for one in sorted(told.queries, key=lambda one: one.query_id)]
    assert described[0].startswith("collect at ")
    assert "test_spark_work.py:" in described[0]
    assert described[1:] == ["count", "sales of a day"]


def slow_query(ctx: Any) -> Any:
    def sleep(rows: Any) -> Any:
        import time

        time.sleep(60)
        return rows

    return ctx.spark.sparkContext.parallelize([1, 2], 2).mapPartitions(sleep).count()


def test_stages_of_a_running_attempt_are_told(slots: SlotBox) -> None:
    work = slots.work(slow_query, job_id=JobId("7" * 32))
    _, running = slots.begin(work)

    def active() -> int:
        found = slots.do(slots.pool.views.spark([work.task.attempt_id], has_plans=False)).found
        return sum(one.work.total.tasks_active for one in found)

    wait_until(lambda: active() > 0)
    slots.do(slots.pool.cancel(0, work.task.attempt_id))
    slots.end(running)
