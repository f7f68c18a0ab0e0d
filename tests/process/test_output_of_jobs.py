"""What tasks of a real cluster write reaches a waiting client while they run: each line once, over changing readers."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from airflow_flinklike import Pipeline
from airflow_flinklike.api.local import _OPTIONS, _cluster, _token
from airflow_flinklike.client import FlinklikeClient, new_job_id
from airflow_flinklike.task_instance.observation import JobObserver, LogSettings
from runtime.common.ids import JobId
from runtime.common.states import JobStatus
from tests.kit.host.heard import Heard

pytestmark = [pytest.mark.process, pytest.mark.slow]

SUBTASKS = 6
LINES = 5
OPTIONS = {
    **_OPTIONS,
    "taskmanager.spark.enabled": "false",
    "taskmanager.numberOfTaskSlots": "3",
    "restart-strategy.type": "fixed-delay",
    "restart-strategy.fixed-delay.attempts": "1",
    "restart-strategy.fixed-delay.delay": "0 ms",
    "restart-strategy.user-failures": "restart",
}


@pytest.fixture
def client(tmp_path: Path) -> Iterator[FlinklikeClient]:
    directory = tmp_path / "cluster"
    directory.mkdir()
    with _cluster(directory, OPTIONS) as address, FlinklikeClient([address], _token(directory)) as connected:
        yield connected


def talking() -> Pipeline:
    """Each subtask prints lines in two halves, with a pause between them; the first attempt of one fails then."""

    def talk(ctx: Any) -> int:
        for number in range(LINES):
            print(f"{ctx.subtask_index}/{ctx.attempt_number}: grün ", end="", flush=True)
            time.sleep(0.15)
            print(number, flush=True)
        ctx.logger.warning("subtask %d is done", ctx.subtask_index)
        if (ctx.subtask_index, ctx.attempt_number) == (1, 0):
            message = "once"
            raise ValueError(message)
        return LINES

    return Pipeline("talking", parallelism=SUBTASKS).source("talk", talk, splits=range(SUBTASKS)).pipeline


def read_for_a_while(client: FlinklikeClient, job_id: JobId, heard: Heard, bookmark: Any) -> tuple[JobStatus, Any]:
    """A reader that knows only the bookmark of the one before, until it has looked once or the job has ended."""
    settings = LogSettings(1_000_000, "http://cluster/ui/jobs/")
    observer = JobObserver(heard.log, bookmark, settings=settings, clock=time.monotonic)
    state = client.status(job_id)
    observer.observe(client, state)
    while observer.interval < 1 and not state.status.is_globally_terminal:
        state = client.status(job_id, wait=observer.interval, since=state.last_modification)
        observer.observe(client, state)
    return state.status, json.loads(json.dumps(observer.bookmark()))


def test_every_line_once_over_changing_readers(client: FlinklikeClient) -> None:
    program = talking().build()
    job_id = new_job_id()
    client.submit(program.graph, job_id=job_id, contents=program.uploads)
    heard = Heard()
    bookmark: Any = None
    status, heard_early, readers = JobStatus.CREATED, 0, 0
    while not status.is_globally_terminal:
        heard_early = sum("grün" in line for line in heard.lines)
        status, bookmark = read_for_a_while(client, job_id, heard, bookmark)
        assert len(json.dumps(bookmark)) < 2_000
        readers += 1
    assert status is JobStatus.FINISHED
    assert readers > 2
    assert heard_early > 0
    attempts = [(subtask, 0) for subtask in range(SUBTASKS)] + [(1, 1)]
    expected = [f"{subtask}/{attempt}: grün {number}" for subtask, attempt in attempts for number in range(LINES)]
    assert sorted(line for line in heard.lines if "grün" in line) == sorted(expected)
    assert sum("is done" in line for line in heard.warnings) == len(attempts)
    assert any("ValueError: once" in line for line in heard.lines)
