"""The job in the task's log: lines, groups, limits, progress, and the time of the next look."""

from __future__ import annotations

import base64
import json
import logging
from typing import Any

import pytest

from airflow_flinklike.client.progress import INTERVAL_SECONDS, ProgressLines, progress_line
from airflow_flinklike.task_instance.task_log import ATTEMPTS_MAX, LINE_COST, LogLine, TaskLog
from runtime.common.ids import JobId

JOB = JobId("a" * 32)
URL = f"http://cluster:8081/ui/jobs/{JOB}"
REST = f"{URL}, or flinklike logs {JOB}"
NO_PROGRESS: dict[str, Any] = {"text": "", "fraction": 0.0, "spark-tasks-completed": 0, "spark-tasks-total": 0}


def vertex(name: str = "read", parallelism: int = 1, *, progress: Any = None, **tasks: int) -> dict[str, Any]:
    return {
        "id": name,
        "name": name,
        "parallelism": parallelism,
        "tasks": tasks or {"RUNNING": parallelism},
        "progress": {**NO_PROGRESS, **(progress or {})},
    }


def attempt(text: str, *, name: str = "read", subtask: int = 0, stream: str = "stdout", **more: Any) -> dict[str, Any]:
    data = text.encode()
    piece = {
        "data": base64.b64encode(data).decode(),
        "next-offset": more.pop("offset", 0) + len(data),
        "size": len(data),
        "truncated": more.get("dropped", 0) > 0,
        "dropped": more.pop("dropped", 0),
    }
    return {
        "vertex": name,
        "subtask": subtask,
        "attempt": 0,
        "ended": False,
        "missing": "",
        "logs": {stream: piece},
        **more,
    }


def answer(*attempts: dict[str, Any], vertices: Any = None, more: bool = False) -> dict[str, Any]:
    return {"vertices": vertices or [vertex(CREATED=1)], "attempts": list(attempts), "more": more}


def task_log(**more: Any) -> TaskLog:
    return TaskLog(JOB, URL, now=0.0, **more)


def texts(lines: list[LogLine]) -> list[str]:
    return [line.text for line in lines]


def test_lines_of_the_only_attempt_are_not_folded_and_have_one_head_a_stream() -> None:
    log = task_log()
    assert texts(log.take(answer(attempt("a\nb\n")), 1)) == ["==> read stdout", "a", "b"]
    assert texts(log.take(answer(attempt("c\n", offset=4)), 2)) == ["c"]
    assert texts(log.take(answer(attempt("d\n", stream="stderr")), 3)) == ["==> read stderr", "d"]


def test_lines_of_several_subtasks_are_a_group_for_each_vertex() -> None:
    log = task_log()
    wide = [vertex("read", 3, CREATED=3), vertex("write", CREATED=1)]
    found = log.take(
        answer(attempt("a\n"), attempt("b\nc\n", subtask=2), attempt("d\n", name="write"), vertices=wide), 1
    )
    assert texts(found) == [
        "::group::read: 3 lines of 2 of 3",
        "==> read (0) stdout",
        "a",
        "==> read (2) stdout",
        "b",
        "c",
        "::endgroup::",
        "::group::write: 1 line of 1 of 1",
        "==> write stdout",
        "d",
        "::endgroup::",
    ]


def test_levels_are_those_of_the_lines() -> None:
    text = (
        "2026-11-22 00:00:00,123 INFO  my.job - begins\n"
        "2026-11-22 00:00:01,123 ERROR my.job - fails\n"
        "Traceback (most recent call last):\n"
        "26/11/22 00:00:02 WARN TaskSetManager: lost\n"
        "2026-11-22 00:00:03,123 DEBUG my.job - ends\n"
    )
    levels = [logging.INFO, logging.INFO, logging.ERROR, logging.ERROR, logging.WARNING, logging.INFO]
    assert [line.level for line in task_log().take(answer(attempt(text, stream="log")), 1)] == levels
    assert {line.level for line in task_log().take(answer(attempt(text)), 1)} == {logging.INFO}


def test_the_limit_ends_the_lines_with_a_pointer_to_the_rest_and_progress_goes_on() -> None:
    log = task_log(limit=3 * LINE_COST)
    said = texts(log.take(answer(attempt("a\nb\nc\nd\n"), more=True), 1))
    assert said == ["==> read stdout", "a", "b", f"The output goes on (log_limit={3 * LINE_COST} is used up): {REST}"]
    assert not log.has_more
    request = next(log.look())
    assert json.loads(request.body)["streams"] == []  # type: ignore[arg-type,union-attr]  # bytes of a request
    assert texts(log.take(answer(vertices=[vertex("read", 2)]), 9)) == ["Progress: read 0/2"]
    again = task_log(limit=3 * LINE_COST, kept=json.loads(json.dumps(log.kept())))
    assert json.loads(next(again.look()).body)["streams"] == []  # type: ignore[arg-type,union-attr]  # likewise
    assert again.take(answer(attempt("e\n")), 10) == []


def test_what_is_gone_is_a_warning_that_says_where_the_limit_is() -> None:
    log = task_log()
    found = log.take(answer(attempt("b\n", dropped=3 << 20, offset=3 << 20)), 1)
    assert [line.text.split(" ")[0] for line in found] == ["==>", "3.0", "b"]
    assert found[1].level == logging.WARNING
    assert found[1].text.startswith("3.0 mb of the stdout of read were dropped: ")
    assert "taskmanager.log.attempt.max-size" in found[1].text


def test_a_group_that_meets_the_limit_is_closed() -> None:
    wide = [vertex("read", 2, CREATED=2), vertex("write", CREATED=1)]
    found = task_log(limit=1).take(answer(attempt("a\n"), attempt("b\n", name="write"), vertices=wide), 1)
    assert [line.text.split(" ")[0] for line in found] == ["::group::read:", "==>", "::endgroup::", "The"]


def test_without_a_limit_above_zero_no_line_is_read_or_said() -> None:
    log = task_log(limit=0)
    assert json.loads(next(log.look()).body)["streams"] == []  # type: ignore[arg-type,union-attr]  # bytes of a request
    assert log.take(answer(), 1) == []


def test_more_attempts_at_once_than_a_position_should_hold_end_the_lines() -> None:
    log = task_log()
    many = [attempt("x\n", subtask=number) for number in range(ATTEMPTS_MAX + 1)]
    found = log.take(answer(*many, vertices=[vertex("read", len(many), CREATED=len(many))]), 1)
    assert texts(found)[-1].endswith(REST)
    assert set(log.kept()) == {"used"}


def test_what_is_handed_over_holds_numbers_and_no_text() -> None:
    log = task_log()
    log.take(answer(attempt("secret\n"), attempt("b\n", subtask=1, ended=True)), 1)
    kept = json.dumps(log.kept())
    assert "secret" not in kept
    again = task_log(kept=json.loads(kept))
    assert json.loads(next(again.look()).body)["position"]["live"][0][3] == 7  # type: ignore[arg-type,union-attr]


def test_a_log_that_is_gone_is_a_warning() -> None:
    gone = {**attempt(""), "ended": True, "missing": "TaskManager tm-1 is not registered", "logs": {}}
    [line] = task_log().take(answer(gone), 1, is_last=True)
    assert line == LogLine("The log of read cannot be read: TaskManager tm-1 is not registered", logging.WARNING)


# --- when to look -------------------------------------------------------------------------------------------


def test_looks_become_rarer_while_nothing_comes() -> None:
    log, now, pauses = task_log(quiet_seconds=30), 0.0, []
    for _ in range(9):
        pause = log.seconds_to_look(now)
        pauses.append(round(pause, 1))
        now += pause
        assert log.seconds_to_look(now) == 0
        assert log.take(answer(), now) == []
    assert pauses == [0.5, 2, 2, 2.2, 3.4, 5.1, 7.6, 11.4, 17.1]
    for _ in range(3):
        now += log.seconds_to_look(now)
        log.take(answer(), now)
    assert log.seconds_to_look(now) == 30
    log.take(answer(attempt("a\n")), now)
    assert log.seconds_to_look(now) == 2
    log.take(answer(attempt("b\n", offset=2), more=True), now)
    assert (log.has_more, log.seconds_to_look(now)) == (True, 0)
    log.postpone(now)
    assert log.seconds_to_look(now) == 30


# --- progress -----------------------------------------------------------------------------------------------

SPARK = {"spark-stages-active": 2, "spark-tasks-completed": 30, "spark-tasks-total": 40}


@pytest.mark.parametrize(
    ("vertices", "line"),
    [
        pytest.param([], "", id="none"),
        pytest.param([vertex(CREATED=1)], "", id="not begun"),
        pytest.param([vertex("read", 3, CREATED=2, SCHEDULED=1)], "", id="scheduled"),
        pytest.param([vertex("read", 10, FINISHED=2, RUNNING=3, CREATED=5)], "read 2/10", id="one"),
        pytest.param([vertex("read", 2, FINISHED=2)], "", id="over"),
        pytest.param([vertex("read")], "", id="nothing to tell of one task"),
        pytest.param([vertex(progress=SPARK)], "read 0/1, Spark 2 stages, 30/40 tasks", id="but what Spark does"),
        pytest.param(
            [vertex("a", FINISHED=1), vertex("b", 4, RUNNING=1, CREATED=3, progress=SPARK), vertex("c", CREATED=1)],
            "1 of 3 vertices finished; b 0/4, Spark 2 stages, 30/40 tasks",
            id="several",
        ),
        pytest.param(
            [vertex(progress={"fraction": 0.256, "text": "days"})], "read 0/1, 26 % days", id="report_progress"
        ),
        pytest.param([vertex("read", 4, FAILED=1, CREATED=3)], "read 0/4, 1 failed", id="failed"),
        pytest.param(
            [vertex(f"v{n}") for n in range(7)],
            "0 of 7 vertices finished; " + "; ".join(f"v{n} 0/1" for n in range(5)) + "; 2 more vertices",
            id="many",
        ),
    ],
)
def test_progress_in_a_line(vertices: list[dict[str, Any]], line: str) -> None:
    assert progress_line(vertices) == line


def test_progress_is_said_once_and_not_too_often() -> None:
    lines = ProgressLines()
    assert lines.take([vertex("read", 3)], 0.0) == "read 0/3"
    assert lines.take([vertex("read", 3, FINISHED=1, RUNNING=2)], INTERVAL_SECONDS - 1) == ""
    assert lines.take([vertex("read", 3, FINISHED=2, RUNNING=1)], INTERVAL_SECONDS) == "read 2/3"
    assert lines.take([vertex("read", 3, FINISHED=2, RUNNING=1)], 3 * INTERVAL_SECONDS) == ""
    assert lines.take([vertex("read", 3, FINISHED=3)], 9 * INTERVAL_SECONDS) == ""
