"""What the Spark host says of an attempt is read, or refused (R52): jobs run beside it."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from runtime.common.stream_progress import QueryPhase, ScriptLook, ScriptQuery, StreamLook, StreamPosition
from runtime.gateways.spark_work import PLAN_LENGTH_MAX, QUERIES_MAX, SparkStage, sum_of, work_of
from runtime.gateways.task import TaskExecutionReport
from runtime.rpc import codec
from runtime.taskexecutor.spark.spark_answers import read_look, read_script_look, read_work

STAGE = {"stage_id": 1, "name": "x", "state": "COMPLETE", "tasks_total": 2, "run_millis": 3}


def answer(**more: Any) -> str:
    return json.dumps({"jobs": 1, "jobs_failed": 0, "stages": [STAGE], "queries": [], **more})


def test_an_answer() -> None:
    work, queries = read_work(answer())
    assert (work.jobs, work.stages_total, work.total.tasks_total, work.stages[0].name) == (1, 1, 2, "x")
    assert queries == ()


@pytest.mark.parametrize(
    "wrong",
    [
        "",
        "[]",
        "{" * 10_000,
        answer(jobs=-7),
        answer(jobs=1 << 62),
        answer(stages=[{**STAGE, "run_millis": 1 << 63}]),
        answer(stages=[{**STAGE, "run_millis": -5}]),
        answer(stages="none"),
        answer(queries=[{"query_id": 1}]),
    ],
)
def test_anything_else_is_refused(wrong: str) -> None:
    with pytest.raises(ValueError):  # noqa: PT011 - of any reader
        read_work(wrong)


def test_texts_and_numbers_are_bounded_and_can_be_shown() -> None:
    query = {
        "query_id": 1,
        "submitted_millis": 1,
        "completed_millis": -1,
        "description": "\x1b[2J",
        "plan": "p" * 99_999,
    }
    stages = [{**STAGE, "stage_id": number, "name": "\u202e" * 500, "run_millis": 1 << 50} for number in range(3000)]
    work, queries = read_work(answer(stages=stages, queries=[query] * 100), 16)
    assert len(work.stages) == 16
    assert "\u202e" not in work.stages[0].name
    assert len(queries) == QUERIES_MAX
    assert len(queries[0].plan) == PLAN_LENGTH_MAX
    assert "\x1b" not in queries[0].description
    assert codec.encode(work)
    assert TaskExecutionReport.__dataclass_fields__["spark_work"].default is None


_STAGES = st.lists(
    st.builds(
        SparkStage, stage_id=st.integers(0, 50), run_millis=st.integers(0, 100), submitted_millis=st.integers(-1, 9)
    ),
    max_size=30,
    unique_by=lambda one: one.stage_id,
)


@given(_STAGES, st.integers(0, 10))
def test_the_longest_stages_stay_in_the_order_of_their_begin(stages: list[SparkStage], most: int) -> None:
    work = work_of(1, 0, stages, most)
    assert len(work.stages) == min(most, len(stages))
    assert work.total == sum_of(stages)
    left = [one.run_millis for one in stages if one not in work.stages]
    assert all(one.run_millis >= max(left, default=0) for one in work.stages)
    begins = [one.submitted_millis for one in work.stages if one.submitted_millis >= 0]
    assert begins == sorted(begins)


POSITION = {"query_id": "q", "batch_id": 3, "state_rows": 1, "state_bytes": 2}


def test_a_look_at_a_query() -> None:
    told = json.dumps({"phase": "held", "position": POSITION, "sink": "FileSink[file:/t]"})
    assert read_look(told) == StreamLook(QueryPhase.HELD, StreamPosition("q", 3, 1, 2), "FileSink[file:/t]")
    assert read_look('{"phase": "none", "position": null}') == StreamLook(QueryPhase.NONE)
    reads = {"sources": ["Own[jdbc:x://me:pw@db/t?password=s]", "x" * 9000]}
    found = read_look(json.dumps({"phase": "held", "position": POSITION, **reads})).sources
    assert found[0] == "Own[jdbc:x://******@db/t?password=******]"
    assert len(found[1]) == 500


@pytest.mark.parametrize(
    "wrong",
    [
        "",
        "[]",
        '{"phase": "asleep", "position": null}',
        json.dumps({"phase": "held", "position": {**POSITION, "batch_id": -2}}),
        json.dumps({"phase": "held", "position": {**POSITION, "query_id": "q" * 100}}),
        json.dumps({"phase": "held", "position": POSITION, "sink": "x" * 5000}),
    ],
)
def test_any_other_look_is_refused(wrong: str) -> None:
    with pytest.raises(ValueError, match=r"(?s).+"):
        read_look(wrong)


def test_a_look_at_the_queries_of_a_script() -> None:
    one = {"name": "orders", "position": POSITION, "sink": "FileSink[file:/t]"}
    found = read_script_look(json.dumps({"phase": "held", "queries": [one]}))
    position = StreamPosition("q", 3, 1, 2, "orders")
    assert found == ScriptLook(QueryPhase.HELD, (ScriptQuery("orders", position, "FileSink[file:/t]"),))


@pytest.mark.parametrize(
    "queries",
    [
        [{"name": "../orders", "position": POSITION}],
        [{"name": "orders", "position": POSITION}] * 2,
        [{"name": "orders", "position": {**POSITION, "batch_id": -2}}],
        [{"name": "orders", "position": POSITION, "sink": "x" * 5000}],
        [{"name": f"q{number}", "position": POSITION} for number in range(1001)],
    ],
)
def test_any_other_look_at_a_script_is_refused(queries: list[Any]) -> None:
    with pytest.raises(ValueError, match=r"(?s).+"):
        read_script_look(json.dumps({"phase": "held", "queries": queries}))
