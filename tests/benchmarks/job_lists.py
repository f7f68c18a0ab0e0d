"""Lists of many jobs: how long one request keeps the JobManager's loop, and how many rows it makes."""

from __future__ import annotations

import asyncio
import gc
import json
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from starlette.types import ASGIApp, Message

from runtime.common.ids import Incarnation, JobId
from runtime.common.states import JobStatus
from runtime.dispatcher.core import events as ev
from runtime.dispatcher.core.jobs import JobRegistry
from runtime.dispatcher.core.retention import FinishedJob, Retention
from runtime.dispatcher.core.shown_summary import initial_summary
from runtime.dispatcher.core.submits import JobRegistryLimits
from runtime.gateways.dispatcher import JobSummary
from runtime.rest.app import create_app
from tests.benchmarks.measure import Report, Target
from tests.kit.control_plane.process_events import process_known
from tests.kit.rest.fakes import FakeDispatcher, RestFakes

RUNNING_SHARE = 10
"""One in so many jobs runs; the others have ended."""
PROCESS = Incarnation("1" * 32)
HOLD = Target("50", "10")


class ListedJobs(FakeDispatcher):
    """The lists of a real registry."""

    def __init__(self, registry: JobRegistry) -> None:
        super().__init__()
        self.registry = registry

    def job_summaries(self) -> Sequence[JobSummary]:
        """Every job that is shown."""
        return self.registry.shown.newest_first()

    def job_counts(self) -> Mapping[JobStatus, int]:
        """The same, counted."""
        return self.registry.shown.counts()


def source(number: int) -> ev.JobSource:
    """A job as it was submitted."""
    return ev.JobSource(JobId(f"{number:032x}"), "d", f"daily sales of shop {number}", b"", "k", 1000 + number, "bench")


def summary(number: int, status: JobStatus, sequence: int = 9) -> JobSummary:
    """What its owner says of it."""
    end = 90_000_000 if status.is_globally_terminal else -1
    return replace(initial_summary(source(number)), status=status, epoch=7, sequence=sequence, end_millis=end)


def registry_of(jobs: int) -> JobRegistry:
    """So many jobs, a tenth of them running."""
    made = JobRegistry(JobRegistryLimits(2 * jobs, jobs), Retention(2 * jobs, 1 << 60))
    made.handle(process_known(PROCESS, "1:1", 2 * jobs))
    running = range(0, jobs, RUNNING_SHARE)
    stored = [ev.RecoveredJob(source(n), 7, ev.JobOwner(PROCESS, "1:1", 7), False, None) for n in running]
    ended = [FinishedJob(summary(n, JobStatus.FINISHED), "d") for n in range(jobs) if n % RUNNING_SHARE]
    made.recover(stored, ended)
    made.handle(ev.SummariesReceived(tuple(summary(n, JobStatus.RUNNING, 1) for n in running)))
    return made


async def get(app: ASGIApp, path: str) -> list[bytes]:
    """The body of an answer, without a socket."""
    parts: list[bytes] = []

    async def receive() -> Message:
        return {"type": "http.request", "body": b"", "more_body": False}

    async def send(message: Message) -> None:
        parts.append(message.get("body", b""))

    scope: dict[str, Any] = {
        "type": "http", "asgi": {"version": "3.0"}, "http_version": "1.1", "method": "GET", "path": path,
        "raw_path": path.encode(), "query_string": b"", "root_path": "", "scheme": "http",
        "headers": [(b"host", b"127.0.0.1:2")],
        "client": ("127.0.0.1", 1), "server": ("127.0.0.1", 2), "state": {},
    }  # fmt: skip
    await app(scope, receive, send)
    return parts


class LoopWatch:
    """The longest time, in CPU milliseconds of this thread, between two turns of the loop."""

    def __init__(self) -> None:
        self.longest = 0.0

    async def run(self) -> None:
        """Until cancelled. CPU time: what else runs on the machine holds nothing here."""
        before = time.thread_time()
        while True:
            await asyncio.sleep(0)
            now = time.thread_time()
            self.longest = max(self.longest, 1000 * (now - before))
            before = now


async def longest_hold(app: ASGIApp, path: str, change: Callable[[int], None], rounds: int) -> float:
    """Of one request, the median of `rounds`."""
    longest: list[float] = []
    for number in range(rounds):
        change(number)
        gc.collect()
        watch = LoopWatch()
        watching = asyncio.create_task(watch.run())
        await asyncio.sleep(0)
        await get(app, path)
        await asyncio.sleep(0)
        watching.cancel()
        longest.append(watch.longest)
    return sorted(longest)[len(longest) // 2]


async def _measure(report: Report, jobs: int, rounds: int) -> None:
    registry = registry_of(jobs)
    fakes = RestFakes()
    fakes.dispatcher = ListedJobs(registry)

    def fresh() -> ASGIApp:
        return create_app(fakes.context(), sign_in=None, content_length_max=1 << 20, hosts={"test"})

    def nothing(_number: int) -> None:
        """The jobs stand still."""

    def progress(number: int) -> None:
        """Each running job has news."""
        changed = tuple(summary(n, JobStatus.RUNNING, 2 + number) for n in range(0, jobs, RUNNING_SHARE))
        registry.handle(ev.SummariesReceived(changed))

    of = f"of {jobs} jobs"
    first = sorted([await longest_hold(fresh(), "/jobs/overview", nothing, 1) for _ in range(rounds)])[rounds // 2]
    report.add(f"longest hold of the loop, first /jobs/overview {of}", first, "ms", HOLD)
    app = fresh()
    assert len(json.loads(b"".join(await get(app, "/jobs/overview")))["jobs"]) == jobs
    for path, name, change in (
        ("/jobs/overview", "next /jobs/overview", nothing),
        ("/jobs/overview", f"/jobs/overview after {jobs // RUNNING_SHARE} jobs changed", progress),
        ("/jobs", "/jobs", nothing),
        ("/overview", "/overview", nothing),
    ):
        hold = await longest_hold(app, path, change, rounds)
        report.add(f"longest hold of the loop, {name} {of}", hold, "ms", HOLD)
    begin = time.process_time()
    for _ in range(rounds):
        await get(app, "/jobs/overview")
    report.add(f"CPU of /jobs/overview {of}", 1000 * (time.process_time() - begin) / rounds, "ms")
    begin = time.process_time()
    progress(rounds)
    spent = time.process_time() - begin
    report.add("CPU of a change of a job that is listed", 1e6 * spent / (jobs // RUNNING_SHARE), "us")


def job_lists(*, small: bool) -> Report:
    """The registry and the REST application in this process, without sockets."""
    report = Report("lists of jobs")
    asyncio.run(_measure(report, 500 if small else 10_000, 2 if small else 15))
    return report
