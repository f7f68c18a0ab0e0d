"""The dashboard with many jobs, in a real browser: how long its list of jobs takes, and what open pages cost."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING

from runtime.jobgraph.graph import JobGraph
from tests.benchmarks.cluster import (
    ClusterBenchmark,
    ScriptCluster,
    job_graph,
    job_ids,
    run_to_finish,
    submit,
    until_running,
)
from tests.benchmarks.measure import Report, Target, job_prefix, percentile

if TYPE_CHECKING:  # the other benchmarks need no browser
    from playwright.sync_api import Browser

    from tests.kit.browser.visit import Visit

_CLIENTS = 16
_NAP = job_graph("nap", "tests.benchmarks.programs:nap", params={"seconds": 7200})
_PAGES = 3
_FIRST_PAINT = "performance.getEntriesByName('first-contentful-paint')[0].startTime"
_SINCE_ASKED = "performance.now()"
_NEXT_PAGE = """() => new Promise((resolve) => {
  const first = () => document.querySelector("tbody tr a")?.getAttribute("href");
  const before = first();
  const begin = performance.now();
  const look = () => (first() !== before ? resolve(performance.now() - begin) : requestAnimationFrame(look));
  [...document.querySelectorAll(".pages button")].find((one) => one.textContent === "Next page").click();
  look();
})"""
"""Milliseconds from the click until another job stands in the first row."""


def dashboard(cluster: ScriptCluster, report: Report, *, small: bool) -> None:
    """Fill the list, then look at it, then leave overviews open."""
    finished, running, looks, seconds = (60, 4, 2, 2.0) if small else (10_000, 500, 10, 60.0)
    from tests.kit.browser.visit import chromium

    asyncio.run(_fill(cluster, finished, running))
    with chromium() as browser:
        of = f"of {finished} finished and {running} running jobs"
        _look_at_jobs(browser, cluster, report, looks, of)
        _leave_open(browser, cluster, report, seconds)


async def _fill(cluster: ScriptCluster, finished: int, running: int) -> None:
    ids = iter(job_ids(job_prefix(), finished))
    async with cluster.client() as client:

        async def one_after_another(left: Iterator[str]) -> None:
            for job_id in left:
                await run_to_finish(client, job_id, _named(job_id))

        async with asyncio.TaskGroup() as group:
            for _ in range(_CLIENTS):
                group.create_task(one_after_another(ids))
        naps = job_ids(job_prefix(), running)
        for job_id in naps:
            await submit(client, job_id, _NAP)
        await until_running(client, naps)


def _named(job_id: str) -> JobGraph:
    return job_graph(f"daily sales of shop {job_id[-4:]}", "tests.benchmarks.programs:no_op")


@contextmanager
def _visits(browser: Browser, cluster: ScriptCluster, count: int) -> Iterator[Sequence[Visit]]:
    from tests.kit.browser.visit import Visit

    visits = [Visit(browser, cluster.url) for _ in range(count)]
    try:
        for visit in visits:
            visit.sign_in(cluster.token)
        yield visits
    finally:
        for visit in visits:
            visit.close()


def _look_at_jobs(browser: Browser, cluster: ScriptCluster, report: Report, looks: int, of: str) -> None:
    paints, rows, pages = list[float](), list[float](), list[float]()
    with _visits(browser, cluster, 1) as (visit,):
        for _ in range(looks):
            visit.open("ui/jobs", "tbody tr a")
            rows.append(float(visit.page.evaluate(_SINCE_ASKED)))
            paints.append(float(visit.page.evaluate(_FIRST_PAINT)))
            pages.append(float(visit.page.evaluate(_NEXT_PAGE)))
    report.add_distribution(f"list {of}: first paint", paints, p50=Target("1000", "1000"))
    report.add_distribution(f"list {of}: its first rows are there", rows, p50=Target("1000", "1000"))
    report.add_distribution(f"list {of}: next page", pages, p50=Target("200", "200"))


def _leave_open(browser: Browser, cluster: ScriptCluster, report: Report, seconds: float) -> None:
    shares = dict[int, list[float]]()
    for pages in (0, 1, _PAGES, 0, 1, _PAGES):
        with _visits(browser, cluster, pages):
            shares.setdefault(pages, []).append(_share(cluster, seconds))
    for pages, found in shares.items():
        name = f"CPU of the JobManager with {pages} overviews open"
        report.add(name, percentile(found, 50), "%", Target("3", "3") if pages == _PAGES else Target())


def _share(cluster: ScriptCluster, seconds: float) -> float:
    """Per cent of a core that the JobManager takes, after what the last page has asked for."""
    time.sleep(min(5.0, seconds))
    before = cluster.cpu()["jobmanager"]
    time.sleep(seconds)
    return 100 * (cluster.cpu()["jobmanager"] - before) / seconds


def waiters(cluster: ScriptCluster, report: Report, *, small: bool) -> None:
    """Long polls of open pages while nothing changes, then what all of them take when something does."""
    asyncio.run(_wait(cluster, report, 20 if small else 500, 2.0 if small else 60.0))


async def _wait(cluster: ScriptCluster, report: Report, count: int, seconds: float) -> None:
    async with cluster.client(count + 1) as client, asyncio.TaskGroup() as group:
        known = (await client.get("/changes")).json()["revision"]
        told = asyncio.Event()

        async def page() -> None:
            """As a page polls: again when the time is over, until something has changed."""
            while (await client.get("/changes", params={"since": known, "wait": 30})).json()["revision"] == known:
                pass
            told.set()

        idle = await _share_meanwhile(cluster, seconds)
        polls = [group.create_task(page()) for _ in range(count)]
        await asyncio.sleep(min(10.0, seconds))
        waiting = await _share_meanwhile(cluster, seconds)
        assert not told.is_set(), "something has changed meanwhile"
        before = cluster.cpu()["jobmanager"]
        await submit(client, *_one_job())
        await asyncio.wait(polls)
        changed = 1000 * (cluster.cpu()["jobmanager"] - before)
    report.add("CPU of the JobManager without pages", idle, "%")
    report.add(f"CPU of the JobManager with {count} polls for a change", waiting, "%", Target("5", "5"))
    report.add(f"CPU of the JobManager for one change told to {count}", changed, "ms", Target("1000", "1000"))


def _one_job() -> tuple[str, JobGraph]:
    (job_id,) = job_ids(job_prefix(), 1)
    return job_id, _named(job_id)


async def _share_meanwhile(cluster: ScriptCluster, seconds: float) -> float:
    before = cluster.cpu()["jobmanager"]
    await asyncio.sleep(seconds)
    return 100 * (cluster.cpu()["jobmanager"] - before) / seconds


def _options(slots: int) -> dict[str, str]:
    options = {"taskmanager.spark.enabled": "false", "jobstore.max-capacity": "20000"}
    return {**options, "taskmanager.numberOfTaskSlots": str(slots)}


BENCHMARKS = {
    "dashboard": ClusterBenchmark("dashboard of many jobs", _options(504), _options(6), dashboard),
    "waiters": ClusterBenchmark("polls of many open pages", _options(1), _options(1), waiters, job_masters=1),
}
