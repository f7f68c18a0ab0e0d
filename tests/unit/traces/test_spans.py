"""Contexts of traces, spans of jobs, and the queue in front of a collector (D-114)."""

from __future__ import annotations

import asyncio
import json
import logging
import re
import threading
from collections.abc import Sequence
from dataclasses import replace

import pytest

from runtime.common.states import ExecutionState, JobStatus
from runtime.executiongraph.archived import ArchivedExecutionGraph
from runtime.executiongraph.core.job_spans import SPANS_MAX, job_spans, submit_span
from runtime.gateways.overview import Takeover
from runtime.gateways.spark_work import STAGES_KEPT_MAX, SparkStage, SparkWork
from runtime.traces import reporter
from runtime.traces.reporter import QUEUED_MAX, QueuedSpans
from runtime.traces.span import NO_SPAN, Span, TraceContext, span_id
from tests.kit.rest.fakes import JOB, JOB_MASTER, archived

TRACE, PARENT = "c" * 32, "d" * 16
SAMPLED = TraceContext(TRACE, PARENT, is_sampled=True)


@pytest.mark.parametrize(
    ("text", "found"),
    [
        (f"00-{TRACE}-{PARENT}-01", SAMPLED),
        (f"00-{TRACE}-{PARENT}-00", TraceContext(TRACE, PARENT, is_sampled=False)),
        (f"00-{TRACE}-{PARENT}-03", SAMPLED),
        (f"cc-{TRACE}-{PARENT}-01-what-comes", SAMPLED),
        (f"00-{TRACE}-{PARENT}-01-more", None),
        (f"ff-{TRACE}-{PARENT}-01", None),
        (f"00-{'0' * 32}-{PARENT}-01", None),
        (f"00-{TRACE.upper()}-{PARENT}-01", None),
        (f"00-{TRACE}-{PARENT}", None),
        (f"cc-{TRACE}-{PARENT}-01-{'x' * 200}", None),
        (f"00-{TRACE}-{NO_SPAN}-01", None),
        ("", None),
        ("\u20ac", None),
    ],
)
def test_what_a_client_names_as_its_span(text: str, found: TraceContext | None) -> None:
    assert TraceContext.from_client(text) == found


def test_a_context_is_stored_as_text() -> None:
    for context in (SAMPLED, replace(SAMPLED, is_sampled=False), TraceContext.of_job(JOB, 1.0)):
        assert TraceContext.parse(context.text) == context


def test_a_share_of_the_jobs_without_a_caller_is_sampled() -> None:
    jobs = [f"{number * 0x9E3779B97F4A7C15 % (1 << 64):032x}" for number in range(1, 1001)]
    counts = [sum(TraceContext.of_job(job, ratio).is_sampled for job in jobs) for ratio in (0.0, 0.25, 1.0)]
    assert counts[0] == 0
    assert 200 < counts[1] < 300
    assert counts[2] == 1000


def ended(status: JobStatus = JobStatus.FAILED) -> ArchivedExecutionGraph:
    graph = archived(JOB, status)
    times = {JobStatus.INITIALIZING: 900, JobStatus.CREATED: 905, JobStatus.RUNNING: 910, status: 2000}
    return replace(graph, timestamps=times, status=status)


def named(spans: Sequence[Span]) -> dict[str, Span]:
    return {one.name: one for one in spans}


def test_the_spans_of_a_job() -> None:
    graph = ended()
    spans = job_spans(graph, SAMPLED, "team-a")
    job = spans[0]
    assert (job.name, job.parent_id, job.id) == (f"job {graph.name}", PARENT, span_id(JOB))
    assert (job.start_millis, job.end_millis) == (900, 2000)
    assert job.attributes["flinklike.namespace"] == "team-a"
    assert job.error == graph.exceptions[0].failure.message
    assert {one.trace_id for one in spans} == {TRACE}
    assert len({one.id for one in spans}) == len(spans)
    ids = {one.id for one in spans} | {PARENT}
    assert all(one.parent_id in ids for one in spans), "no span is without its parent"
    assert all(one.start_millis <= one.end_millis for one in spans)
    assert (named(spans)["assignment"].start_millis, named(spans)["assignment"].end_millis) == (900, 905)
    assert {"run", "deployment"} <= named(spans).keys()


def test_the_longest_stages_of_spark_are_below_their_attempt() -> None:
    graph = ended(JobStatus.FINISHED)
    first, second = graph.vertices
    attempt = first.subtasks[0].current
    begin = min(attempt.timestamps.values())
    stages = [
        SparkStage(
            number, 0, "collect", "COMPLETE", 4, submitted_millis=begin + number, completed_millis=begin + 2 * number
        )
        for number in range(1, 40)
    ]
    stages += [SparkStage(50, 0, "never", "SKIPPED"), SparkStage(51, 1, "ends", "FAILED", submitted_millis=begin)]
    work = SparkWork(3, 1, len(stages), SparkStage(), tuple(stages[-2:] + stages[:-2]))
    current = replace(attempt, spark_work=work)
    vertex = replace(first, subtasks=(replace(first.subtasks[0], current=current), *first.subtasks[1:]))
    spans = job_spans(replace(graph, vertices=(vertex, second)), SAMPLED)
    found = [one for one in spans if one.name.startswith("stage ")]
    assert {one.parent_id for one in found} == {span_id(JOB, attempt.attempt_id)}
    assert len(found) == STAGES_KEPT_MAX - 1, "one of them has never begun"
    failed, completed = found[:2]
    assert (failed.name, failed.error != "", failed.end_millis) == ("stage 51 ends", True, attempt.end_millis)
    assert (completed.start_millis, completed.end_millis) == (begin + 1, begin + 2)
    assert completed.attributes["flinklike.spark.tasks"] == 4
    assert len({one.id for one in spans}) == len(spans)


def test_the_next_owner_would_tell_the_same_ids() -> None:
    first, second = (job_spans(replace(ended(), epoch=epoch), SAMPLED) for epoch in (7, 12))
    assert [one.id for one in first] == [one.id for one in second]


def test_takeovers_are_events_of_the_job() -> None:
    takeover = Takeover(1500, JOB_MASTER, "a:1", JOB_MASTER, "b:2", "it was lost")
    (job, *_) = job_spans(replace(ended(), takeovers=(takeover,)), SAMPLED)
    assert [(one.name, one.millis, one.attributes["reason"]) for one in job.events] == [
        ("takeover", 1500, "it was lost")
    ]


def test_nothing_is_told_of_a_job_that_is_not_sampled_or_runs() -> None:
    assert job_spans(ended(), replace(SAMPLED, is_sampled=False)) == ()
    assert job_spans(archived(JOB, JobStatus.RUNNING), SAMPLED) == ()
    assert submit_span(JOB, replace(SAMPLED, is_sampled=False), 1, 2) == ()
    (submit,) = submit_span(JOB, SAMPLED, 1, 2)
    assert (submit.parent_id, submit.trace_id) == (span_id(JOB), TRACE)


def test_a_huge_job_has_a_bounded_number_of_spans() -> None:
    graph = ended()
    vertex = graph.vertices[0]
    subtask = vertex.subtasks[0]
    attempt = replace(subtask.current, timestamps={ExecutionState.RUNNING: 1000, ExecutionState.FAILED: 1100})
    attempts = tuple(
        replace(subtask, index=index, current=replace(attempt, attempt_id=str(index))) for index in range(10_000)
    )
    assert len(job_spans(replace(graph, vertices=(replace(vertex, subtasks=attempts),)), SAMPLED)) <= SPANS_MAX


class Collector:
    """Takes spans, or refuses them."""

    def __init__(self) -> None:
        self.names: list[str] = []
        self.calls = 0
        self.takes = True

    def export(self, spans: Sequence[Span]) -> bool:
        self.calls += 1
        if self.takes:
            self.names += [one.name for one in spans]
        return self.takes


def of(name: str) -> Sequence[Span]:
    return (Span(name, TRACE, PARENT, NO_SPAN, 1, 2),)


async def told(queue: QueuedSpans, *names: str, seconds: float) -> None:
    """They are told, and the reporter runs for a while; then the process ends."""
    for name in names:
        queue.tell(lambda name=name: of(name))  # type: ignore[misc]
    running = asyncio.ensure_future(queue.run())
    await asyncio.sleep(seconds)
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running


@pytest.mark.asyncio
async def test_spans_are_sent_together(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reporter, "GATHER_SECONDS", 0.01)
    collector = Collector()
    await told(QueuedSpans(collector.export), *map(str, range(20)), seconds=0.5)
    assert (collector.names, collector.calls) == ([str(number) for number in range(20)], 1)


@pytest.mark.asyncio
async def test_what_is_left_at_the_end_of_the_process_is_sent() -> None:
    collector = Collector()
    await told(QueuedSpans(collector.export), "a", seconds=0.01)
    assert collector.names == ["a"]


@pytest.mark.asyncio
async def test_what_is_lost_is_said(caplog: pytest.LogCaptureFixture) -> None:
    collector = Collector()
    collector.takes = False
    queue = QueuedSpans(collector.export)
    with caplog.at_level(logging.WARNING):
        await told(queue, *map(str, range(QUEUED_MAX + 7)), seconds=0.01)
    said = [int(one) for one in re.findall(r"the spans of (\d+) jobs or submits could not be reported", caplog.text)]
    assert sum(said) == QUEUED_MAX + 7


@pytest.mark.asyncio
async def test_a_mistake_in_a_span_ends_nothing(caplog: pytest.LogCaptureFixture) -> None:
    collector = Collector()
    queue = QueuedSpans(collector.export)
    queue.tell(lambda: of(json.loads("")))
    await told(queue, seconds=0.01)
    assert "spans could not be reported" in caplog.text


class SlowCollector(Collector):
    """Answers when the test says so."""

    def __init__(self) -> None:
        super().__init__()
        self.asked, self.answers = threading.Event(), threading.Event()

    def export(self, spans: Sequence[Span]) -> bool:
        self.asked.set()
        assert self.answers.wait(60)
        return super().export(spans)


class Lost:
    """The counter of what is lost."""

    def __init__(self) -> None:
        self.number = 0

    def count(self, number: int) -> None:
        self.number += number


async def stopped_while_it_sends(collector: SlowCollector, lost: Lost) -> asyncio.Future[None]:
    """The process is to stop when a batch is on its way, and another telling waits."""
    queue = QueuedSpans(collector.export, lost.count)
    queue.tell(lambda: of("sent"))
    running = asyncio.ensure_future(queue.run())
    async with asyncio.timeout(60):
        while not collector.asked.is_set():
            await asyncio.sleep(0.01)
    queue.tell(lambda: of("waits"))
    running.cancel()
    await asyncio.sleep(0.05)
    return running


@pytest.mark.asyncio
async def test_a_batch_on_its_way_at_the_end_of_the_process_is_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reporter, "GATHER_SECONDS", 0.01)
    collector, lost = SlowCollector(), Lost()
    running = await stopped_while_it_sends(collector, lost)
    collector.answers.set()
    with pytest.raises(asyncio.CancelledError):
        await running
    assert (collector.names, collector.calls, lost.number) == (["sent", "waits"], 2, 0)


@pytest.mark.asyncio
async def test_a_batch_that_is_not_answered_in_time_counts_as_lost(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(reporter, "GATHER_SECONDS", 0.01)
    monkeypatch.setattr(reporter, "_FLUSH_SECONDS", 0.1)
    collector, lost = SlowCollector(), Lost()
    running = await stopped_while_it_sends(collector, lost)
    with pytest.raises(asyncio.CancelledError):
        await running
    collector.answers.set()
    assert lost.number == 2
    assert "the spans of 2 jobs or submits could not be reported" in caplog.text
