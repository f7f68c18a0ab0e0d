"""Observers over the real REST application: each line once, also after a deferral; errors do not fail the task."""

from __future__ import annotations

import asyncio
import json
import math
from collections.abc import Iterator
from typing import Any

import pytest

from airflow_flinklike.client import AsyncFlinklikeClient, FlinklikeClient, JobState
from airflow_flinklike.task_instance.observation import AsyncJobObserver, JobObserver, LogSettings
from runtime.common.states import JobStatus
from tests.kit.host.heard import Heard
from tests.kit.rest.clients import ClientBox, Fault
from tests.kit.rest.fakes import JOB, FakeTaskExecutor

LOOK = f"POST /jobs/{JOB}/logs"
PAGES = "http://cluster:8081/ui/jobs/"


@pytest.fixture
def runner() -> Iterator[asyncio.Runner]:
    with asyncio.Runner() as made:
        yield made


@pytest.fixture
def box(runner: asyncio.Runner, monkeypatch: pytest.MonkeyPatch) -> ClientBox:
    made = ClientBox("sync", runner)
    made.fakes.dispatcher.put(JOB, JobStatus.RUNNING)
    monkeypatch.setattr(FakeTaskExecutor, "text", b"first\nsecond\n")
    return made


def state(status: JobStatus = JobStatus.RUNNING, reason: str = "") -> JobState:
    return JobState(JOB, status, 1000, reason)


def client_of(box: ClientBox) -> FlinklikeClient:
    client = box.connect()
    assert isinstance(client, FlinklikeClient)
    return client


def observer(heard: Heard, bookmark: Any = None, *, limit: int = 10_000) -> JobObserver:
    return JobObserver(heard.log, bookmark, settings=LogSettings(limit, PAGES), clock=heard.clock)


def test_lines_appear_while_the_job_runs(box: ClientBox, monkeypatch: pytest.MonkeyPatch) -> None:
    heard = Heard()
    watching = observer(heard)
    assert watching.interval == math.inf
    watching.observe(client_of(box), state(JobStatus.CREATED, "waiting for slots"))
    assert watching.interval == math.inf
    watching.observe(client_of(box), state())
    assert heard.lines == [f"Job {JOB}: CREATED waiting for slots", f"Job {JOB}: RUNNING"]
    assert (watching.interval, box.wire.seen) == (0.5, [])
    heard.now += 1
    watching.observe(client_of(box), state())
    assert heard.lines[2:6] == ["::group::read: 2 lines of 1 of 1", "==> read stdout", "first", "second"]
    monkeypatch.setattr(FakeTaskExecutor, "text", b"first\nsecond\nthird\n")
    heard.now += 2
    del heard.lines[:]
    watching.observe(client_of(box), state())
    assert [line for line in heard.lines if "==" not in line and "::" not in line] == ["third", "third"]


def test_a_job_that_is_over_at_the_first_look_costs_one_request(box: ClientBox) -> None:
    box.fakes.dispatcher.put(JOB, JobStatus.FINISHED)
    heard = Heard()
    observer(heard).observe(client_of(box), state(JobStatus.FINISHED))
    assert box.wire.paths() == [LOOK]
    assert heard.lines.count("second") == 2
    observer(heard, limit=0).observe(client_of(box), state(JobStatus.FINISHED))
    assert box.wire.paths() == [LOOK]


def test_a_task_without_settings_reads_no_logs(box: ClientBox) -> None:
    heard = Heard()
    watching = JobObserver(heard.log, clock=heard.clock)
    watching.observe(client_of(box), state())
    watching.observe(client_of(box), state(JobStatus.FINISHED))
    assert (box.wire.seen, watching.bookmark()) == ([], {"state": "FINISHED"})
    assert heard.lines == [f"Job {JOB}: RUNNING", f"Job {JOB}: FINISHED"]


def test_worker_trigger_worker_says_each_line_once(
    box: ClientBox, runner: asyncio.Runner, monkeypatch: pytest.MonkeyPatch
) -> None:
    heard = Heard()
    watching = observer(heard)
    watching.observe(client_of(box), state())
    heard.now += 1
    watching.observe(client_of(box), state())
    kept = json.dumps(watching.bookmark())
    assert "first" not in kept

    monkeypatch.setattr(FakeTaskExecutor, "text", b"first\nsecond\nthird\nfou")
    trigger_box = ClientBox("async", runner)
    trigger_box.fakes.dispatcher.put(JOB, JobStatus.RUNNING)
    client = trigger_box.connect()
    assert isinstance(client, AsyncFlinklikeClient)
    deferred = AsyncJobObserver(heard.log, json.loads(kept), clock=heard.clock)
    runner.run(deferred.observe(client, state()))
    assert deferred.interval == 0.5
    heard.now += 1
    runner.run(deferred.observe(client, state()))
    kept = json.dumps(deferred.bookmark())
    runner.run(deferred.observe(client, state(JobStatus.FINISHED)))
    assert trigger_box.wire.paths() == [LOOK]

    monkeypatch.setattr(FakeTaskExecutor, "text", b"first\nsecond\nthird\nfourth")
    last_box = ClientBox("sync", runner)
    last_box.fakes.dispatcher.put(JOB, JobStatus.FINISHED)
    observer(heard, json.loads(kept)).observe(client_of(last_box), state(JobStatus.FINISHED))
    said = [line for line in heard.lines if line in {"first", "second", "third", "fourth"}]
    assert sorted(said) == sorted(["first", "second", "third", "fourth"] * 2)
    assert heard.lines.count(f"Job {JOB}: RUNNING") == 1


def test_a_bookmark_before_anything_ran_keeps_the_settings(box: ClientBox) -> None:
    heard = Heard()
    watching = observer(heard, limit=77)
    watching.observe(client_of(box), state(JobStatus.CREATED))
    assert watching.bookmark() == {"state": "CREATED", "log": {"limit": 77, "pages": PAGES}}
    deferred = AsyncJobObserver(heard.log, watching.bookmark(), clock=heard.clock)
    assert deferred.bookmark() == watching.bookmark()


@pytest.mark.parametrize("kind", ["sync", "async"])
def test_a_look_that_fails_is_told_once_and_does_no_harm(kind: str, runner: asyncio.Runner) -> None:
    box = ClientBox(kind, runner)
    heard = Heard()
    client: Any = box.connect()
    box.wire.faults = [Fault.REFUSED] * 1000
    bookmark = observer(heard).bookmark()
    watching: Any = (
        JobObserver(heard.log, bookmark, clock=heard.clock)
        if kind == "sync"
        else AsyncJobObserver(heard.log, bookmark, clock=heard.clock)
    )

    def observe() -> None:
        done = watching.observe(client, state())
        if done is not None:
            runner.run(done)

    observe()
    for _ in range(3):
        heard.now += 1000
        observe()
    assert len(heard.warnings) == 1
    assert heard.warnings[0].startswith(f"The output of job {JOB} cannot be read now: ")
    assert watching.interval > 0
    box.wire.faults = []
    box.fakes.dispatcher.put(JOB, JobStatus.RUNNING)
    heard.now += 1000
    observe()
    assert "hello from the task" in heard.lines
    if kind == "sync":
        assert client.retry_for == 60.0


def test_a_last_look_that_fails_is_not_repeated(box: ClientBox) -> None:
    box.wire.faults = [Fault.REFUSED] * 1000
    heard = Heard()
    observer(heard).observe(client_of(box), state(JobStatus.FINISHED))
    assert len(heard.warnings) == 1
    assert sum(box.pauses) < 20
