"""How long 100 running jobs need to recover from kill -9 of each process, and what that costs while nothing happens.

The cluster has a standby JobManager, two JobMaster processes of which one owns every job, three TaskManagers without
Spark with slots to spare, and etcd. Each round kills one process, waits until everything is as before, and starts it
again. Tasks write down when they begin (`tests.chaos.ledger`): no task may begin again for the control plane's sake.
"""

from __future__ import annotations

import asyncio
import signal
import time
from collections.abc import Awaitable, Callable, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from airflow_flinklike import Pipeline
from airflow_flinklike.client import AsyncFlinklikeClient
from runtime.common.ids import JobId
from tests.benchmarks import control_plane
from tests.benchmarks.cluster import ScriptCluster, job_ids
from tests.benchmarks.measure import Report, Target, job_prefix
from tests.chaos.ledger import TaskLine, now, read
from tests.chaos.members import ChaosCluster, Member
from tests.chaos.watch import Watch

RUNS = 10
EXCLUSIVE = True
"""As a lone vertex is by default: the tasks of a killed TaskManager wait for the proof of its death (R13)."""
TIMEOUT = 90.0
_EVERY = 0.05
_REVISION = "etcd_debugging_mvcc_current_revision"
_PROGRAM = "tests.chaos.programs:step"
GROWTH_MAX = 1.2
BEFORE = {
    "etcd write transactions per no-op job before FINISHED": 2.00,
    "CPU of jobmanager per no-op job": 4.8,
    "CPU of all processes per no-op job": 16.4,
}
"""What was measured before jobs had a way to another owner; on 2 cores, calibration loop 8.0 to 8.8 ms."""


@dataclass(frozen=True, slots=True)
class Sizes:
    """Of one measurement."""

    jobs: int
    slots: int
    runs: int
    quiet_seconds: float


class Recovery:
    """The running jobs, and what is done to the processes under them."""

    def __init__(self, cluster: ChaosCluster, sizes: Sizes, watch: Watch) -> None:
        self._cluster = cluster
        self._sizes = sizes
        self._watch = watch
        self._ledger = cluster.run / "ledger"
        self._ids: list[JobId] = [JobId(one) for one in job_ids(job_prefix(), sizes.jobs)]
        self._tasks = 0

    async def start_jobs(self) -> None:
        """Jobs of 1 to 4 sleeping tasks, all RUNNING."""
        async with AsyncFlinklikeClient(self._cluster.urls, self._cluster.token) as client:
            for number, job_id in enumerate(self._ids):
                parallelism = 1 + number % 4
                self._tasks += parallelism
                built = _nap(self._ledger, parallelism).build()
                await client.submit(built.graph, job_id=job_id, contents=built.uploads)
        await self._until(self._all_run, "every task runs")

    async def end_jobs(self) -> None:
        """Cancel all of them."""
        async with AsyncFlinklikeClient(self._cluster.urls, self._cluster.token) as client:
            for job_id in self._ids:
                await client.cancel(job_id)

    async def kill_owner(self) -> float:
        """kill -9 of the JobMaster process that owns all jobs: seconds until all are RUNNING under another one."""
        owner = await self._owner()
        begun = self._begun()

        async def is_taken_over() -> bool:
            shown = await self._watch.ask("/jobmasters")
            gone = shown is not None and owner.address not in {one["address"] for one in shown["jobmasters"]}
            return gone and await self._are_shown_running()

        seconds = await self._kill(owner, is_taken_over)
        await self._until(self._all_run, "every task runs under the new owner")
        assert self._begun() == begun, "a task was restarted by the death of its owner"
        return seconds

    async def kill_leader(self) -> tuple[float, float]:
        """kill -9 of the leading JobManager: seconds until REST answers, and until it shows all jobs RUNNING."""
        leader = await self._leader()
        begun = self._begun()
        first: list[float] = []
        begin = time.monotonic()

        async def are_shown() -> bool:
            if not first and await self._watch.rest_answers("/jobs/overview"):
                first.append(time.monotonic() - begin)
            return bool(first) and await self._are_shown_running()

        seconds = await self._kill(leader, are_shown)
        await self._until(self._all_run, "the new leader reaches every owner")
        assert self._begun() == begun, "a task was restarted by the death of the leader"
        return first[0], seconds

    async def kill_task_manager(self) -> float:
        """kill -9 of the TaskManager with the most tasks: seconds until the last one of them runs elsewhere."""
        living = self._living()
        members = {one.task_manager: one for one in self._cluster.members("taskmanager")}
        victim = max(members, key=lambda name: sum(line.task_manager == name for line in living))
        lost = {line.place: line.attempt for line in living if line.task_manager == victim}
        at = now()

        async def run_elsewhere() -> bool:
            return all(line.attempt != lost.get(line.place) for line in self._living())

        await self._kill(members[victim], run_elsewhere)
        last = max(line.at for line in self._living() if line.place in lost)
        await self._until(self._all_run, "every task runs")
        return last - at

    async def normal_running(self, report: Report) -> None:
        """What the running jobs cost while nothing happens to them."""
        seconds, jobs = self._sizes.quiet_seconds, self._sizes.jobs
        cpu, writes = self._cluster.cpu(), self._cluster.etcd_metrics()[_REVISION]
        await asyncio.sleep(seconds)
        spent, written = self._cluster.cpu(), self._cluster.etcd_metrics()[_REVISION] - writes
        report.add(f"etcd writes per minute while {jobs} jobs run", 60 * written / seconds, "")
        for role, before in cpu.items():
            report.add(f"CPU of {role} while {jobs} jobs run", 100 * (spent[role] - before) / seconds, "%")

    async def restore(self) -> None:
        """Everything that was killed runs again."""
        for role, count in self._cluster.missing().items():
            for _ in range(count):
                done = await self._cluster.start_one(role)
                assert done.returncode == 0, done.stdout + done.stderr
        wanted = self._cluster.wanted["taskmanager"] * self._sizes.slots

        async def has_all() -> bool:
            shown = await self._watch.ask("/overview")
            return shown is not None and shown["slots-total"] == wanted

        await self._until(has_all, "every slot is there")

    # --- looking ----------------------------------------------------------------------------------------------------

    async def _kill(self, member: Member, look: Callable[[], Awaitable[bool]]) -> float:
        begin = time.monotonic()
        member.send(signal.SIGKILL)
        await self._until(look, f"recovery from the death of {member.name}")
        return time.monotonic() - begin

    async def _until(self, look: Callable[[], Awaitable[bool]], what: str) -> None:
        until = time.monotonic() + TIMEOUT
        while not await look():
            assert time.monotonic() < until, f"not in {TIMEOUT:.0f} s: {what}"
            await asyncio.sleep(_EVERY)

    async def _are_shown_running(self) -> bool:
        shown = await self._watch.ask("/jobs/overview")
        states = {one["jid"]: one["state"] for one in (shown or {"jobs": []})["jobs"]}
        ended = {job: states[job] for job in self._ids if states.get(job) in {"FINISHED", "FAILED", "CANCELED"}}
        assert not ended, f"jobs ended that should run: {ended}"
        return all(states.get(job_id) == "RUNNING" for job_id in self._ids)

    async def _all_run(self) -> bool:
        """Each owner says that all tasks of its jobs run."""
        if not await self._are_shown_running():
            return False
        running = 0
        for job_id in self._ids:
            found = await self._watch.ask(f"/jobs/{job_id}")
            if found is None:
                return False
            running += sum(vertex["tasks"]["RUNNING"] for vertex in found["vertices"])
        return running == self._tasks

    async def _owner(self) -> Member:
        shown: Any = await self._watch.ask("/jobmasters")
        busiest = max(shown["jobmasters"], key=lambda one: one["jobs-running"])
        assert busiest["jobs-running"] == self._sizes.jobs, shown
        return next(one for one in self._cluster.members("jobmaster") if one.address == busiest["address"])

    async def _leader(self) -> Member:
        for member in self._cluster.members("jobmanager"):
            if await self._watch.leads(f"http://{member.address}"):
                return member
        message = "no JobManager leads"
        raise AssertionError(message)

    def _lines(self) -> list[TaskLine]:
        return [line for line in read(self._ledger) if isinstance(line, TaskLine)]

    def _begun(self) -> int:
        """How many attempts have begun so far."""
        return sum(line.step == "begin" for line in self._lines())

    def _living(self) -> list[TaskLine]:
        """The last begin of each subtask."""
        return list({line.place: line for line in self._lines() if line.step == "begin"}.values())


def _nap(ledger: Path, parallelism: int) -> Pipeline:
    steps = {"nap": {"exclusive": EXCLUSIVE, "seconds": 36_000, "quiet": True}}
    pipeline = Pipeline("nap", params={"ledger": str(ledger), "steps": steps})
    pipeline.source("nap", _PROGRAM, parallelism=parallelism, exclusive=EXCLUSIVE)
    return pipeline


async def _rounds(cluster: ChaosCluster, report: Report, sizes: Sizes) -> None:
    async with AsyncExitStack() as stack:
        watch = Watch(cluster.urls, cluster.token)
        stack.push_async_callback(watch.close)
        recovery = Recovery(cluster, sizes, watch)
        await recovery.start_jobs()
        cluster.wanted["jobmaster"] = 2
        await recovery.restore()
        await recovery.normal_running(report)
        figures = await _kill_one_after_the_other(recovery, sizes.runs)
        await recovery.end_jobs()
    _add_figures(report, figures, sizes)


async def _kill_one_after_the_other(recovery: Recovery, runs: int) -> dict[str, list[float]]:
    figures: dict[str, list[float]] = {"owner": [], "rest": [], "leader": [], "task manager": []}
    for _ in range(runs):
        figures["owner"].append(await recovery.kill_owner())
        await recovery.restore()
        rest, shown = await recovery.kill_leader()
        figures["rest"].append(rest)
        figures["leader"].append(shown)
        await recovery.restore()
        figures["task manager"].append(await recovery.kill_task_manager())
        await recovery.restore()
    return figures


def _add_figures(report: Report, figures: dict[str, list[float]], sizes: Sizes) -> None:
    all_run = f"{sizes.jobs} jobs RUNNING"
    for name, key, target in (
        (f"JobMaster process killed: all {all_run} under another one", "owner", Target("3", "1.5")),
        ("leading JobManager killed: REST answers", "rest", Target("2", "1")),
        (f"leading JobManager killed: REST shows all {all_run}", "leader", Target("", "")),
        ("TaskManager killed: all of its tasks run elsewhere", "task manager", Target("3", "2")),
    ):
        _add(report, name, figures[key], target)


def _add(report: Report, name: str, values: Sequence[float], target: Target) -> None:
    report.add_distribution(name, values, "s", p50=target)
    report.add(f"{name} max of {len(values)}", max(values), "s")


def _no_growth(report: Report, *, small: bool) -> None:
    """The no-op benchmark on a plain cluster, beside what it was before."""
    with ScriptCluster(control_plane.WITHOUT_SPARK) as cluster:
        own = Report("normal running")
        control_plane.no_op(cluster, own, small=small)
    values = {row.name: row.value for row in own.rows}
    for name, before in BEFORE.items():
        limit = Target(f"{GROWTH_MAX * before:.1f}")
        report.add(f"{name} (before: {before:g})", values[name], "" if "etcd" in name else "ms", limit)


def recovery(*, small: bool, runs: int | None = None) -> Report:
    """All figures; `runs` rounds of kills instead of 10."""
    sizes = Sizes(4, 6, runs or 1, 2.0) if small else Sizes(100, 130, runs or RUNS, 30.0)
    report = Report("recovery")
    options = {
        "taskmanager.spark.enabled": "false",
        "taskmanager.numberOfTaskSlots": str(sizes.slots),
        "jobmanager.jobmaster.rebalance": "false",  # or the one to be killed does not own all
        "restart-strategy.type": "fixed-delay",
        "restart-strategy.fixed-delay.attempts": "1000",
        "restart-strategy.fixed-delay.delay": "0 s",
    }
    with ChaosCluster(options, job_masters=1, workers=3) as cluster:
        asyncio.run(_rounds(cluster, report, sizes))
    _no_growth(report, small=small)
    return report
