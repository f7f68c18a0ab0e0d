"""Nothing in the JVM or on its host grows with the number of jobs (R25): thousands of jobs, and what is left of them.

Every kind leaves behind what it can: views, caches, broadcasts, running streams, a killed slot process, a job that is
cancelled in the middle. Each job has code of its own. Now and then the cluster comes to rest, and a look at the JVM
(after a collection) and at the operating system shows what has stayed.
"""

from __future__ import annotations

import asyncio
import os
import statistics
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil

from airflow_flinklike import function_job, script_job
from airflow_flinklike.api.program import Program
from airflow_flinklike.client import AsyncFlinklikeClient
from runtime.common.ids import JobId
from runtime.common.states import JobStatus
from tests.benchmarks import soak_programs
from tests.benchmarks.cluster import ScriptCluster, job_graph, job_ids
from tests.benchmarks.measure import Report, job_prefix, tree
from tests.kit.spark.spark_box import QUICK_JVM

JOBS = 3_000
SLOTS = 4
SAMPLES = 30
WARM_UP_SHARE = 1 / 3
"""Before that the JVM loads classes, fills pools and compiles; growth is counted from there on."""
ALLOWED: Mapping[str, float] = {
    "listeners": SLOTS,
    "file systems": 0,
    "storage MB": 1,
    "sessions": 2 * SLOTS,
    "job catalogs": SLOTS,
    "threads": 30,
    "worker pools": SLOTS,
    "worker monitors": SLOTS,
    "JVM open files": 40,
    "JVM children": 2 * SLOTS,
    "TaskManager processes": 2 * SLOTS,
    "TaskManager open files": 10 * SLOTS,
    "temporary files": 40,
}
"""By how much a figure may differ at rest: slots may hold a fresh or a used session, pools breathe, and a Python worker
is a keeper with a fork."""
ALLOWED_SHARES: Mapping[str, float] = {"heap MB": 0.15, "classes": 0.1}
"""The same for what settles late; judged over thousands of jobs only."""
TITLE = "soak: what stays of jobs"
_FIGURES = job_graph("figures", "tests.benchmarks.soak_programs:figures")


@dataclass(frozen=True, slots=True)
class Kind:
    """One kind of job: how it is made, and how it has to end."""

    make: Callable[[int], Program]
    end: JobStatus = JobStatus.FINISHED
    is_cancelled: bool = False


def _function(function: Callable[..., Any], *files: Path) -> Callable[[int], Program]:
    return lambda number: function_job(function, args=(number,), files=files, restart_strategy="none")


def kinds(script: Path, brought: Path) -> Mapping[str, Kind]:
    """All kinds, in the order in which they take turns."""
    return {
        "script": Kind(lambda number: script_job(script, args=(f"soak-{number}",), restart_strategy="none")),
        "SQL": Kind(_function(soak_programs.sql)),
        "cache": Kind(_function(soak_programs.cache)),
        "UDF": Kind(_function(soak_programs.udf)),
        "planned": Kind(_function(soak_programs.planned)),
        "with files": Kind(_function(soak_programs.with_files, brought)),
        "stream": Kind(_function(soak_programs.stream)),
        "killed": Kind(_function(soak_programs.killed), JobStatus.FAILED),
        "cancelled": Kind(_function(soak_programs.endless), JobStatus.CANCELED, is_cancelled=True),
    }


@dataclass(frozen=True, slots=True)
class Sample:
    """What is there when `jobs` have ended and nothing runs."""

    jobs: int
    figures: Mapping[str, float]


class Soak:
    """Runs the jobs, and looks in between."""

    def __init__(self, cluster: ScriptCluster, jobs: int, samples: int) -> None:
        self._cluster = cluster
        self._ids = [JobId(one) for one in job_ids(job_prefix(), jobs + samples + 1)]
        script = cluster.run / "soak_application.py"
        script.write_text(soak_programs.SCRIPT)
        brought = cluster.run / "brought.txt"
        brought.write_text("brought")
        self._kinds = kinds(script, brought)
        self._jobs = jobs
        self._every = max(1, jobs // samples)
        self.samples: list[Sample] = []

    async def run(self) -> None:
        """All jobs; AssertionError when one ends as its kind does not."""
        async with AsyncFlinklikeClient(self._cluster.urls, self._cluster.token) as client:
            for start in range(0, self._jobs, self._every):
                numbers = range(start, min(start + self._every, self._jobs))
                async with asyncio.TaskGroup() as group:
                    for share in range(SLOTS):
                        group.create_task(self._share(client, numbers[share::SLOTS]))
                self.samples.append(Sample(numbers.stop, await self._look(client)))
                self._say()

    def _say(self) -> None:
        last = self.samples[-1]
        shown = ", ".join(f"{value:.0f} {name}" for name, value in last.figures.items())
        sys.stderr.write(f"{last.jobs} of {self._jobs} jobs: {shown}\n")

    async def _share(self, client: AsyncFlinklikeClient, numbers: Sequence[int]) -> None:
        for number in numbers:
            name = list(self._kinds)[number % len(self._kinds)]
            await self._job(client, self._ids[number], number, self._kinds[name])

    async def _job(self, client: AsyncFlinklikeClient, job_id: JobId, number: int, kind: Kind) -> None:
        built = kind.make(number).build()
        await client.submit(built.graph, job_id=job_id, contents=built.uploads)
        if kind.is_cancelled:
            await self._until_it_runs(client, job_id)
            await client.cancel(job_id)
        ended = await client.wait_for_result(job_id)
        assert ended.status is kind.end, (number, ended)

    async def _until_it_runs(self, client: AsyncFlinklikeClient, job_id: JobId) -> None:
        seen = await client.status(job_id)
        while seen.status is not JobStatus.RUNNING:
            assert not seen.status.is_globally_terminal, seen
            seen = await client.status(job_id, wait=30.0, since=seen.last_modification)

    async def _look(self, client: AsyncFlinklikeClient) -> dict[str, float]:
        """Figures of the JVM and of its host, at rest."""
        job_id = self._ids[self._jobs + len(self.samples)]
        await client.submit(_FIGURES, job_id=job_id)
        found = dict((await client.wait_for_result(job_id)).value_or_raise())
        jvm = psutil.Process(int(found.pop("pid")))
        (task_manager,) = self._cluster.pids()["taskmanager"]
        processes = tree(task_manager)
        found["JVM open files"] = jvm.num_fds()
        found["TaskManager processes"] = len(processes)
        found["TaskManager open files"] = sum(_open_files(one) for one in processes if one.pid != jvm.pid)
        found["JVM children"] = len(jvm.children(recursive=True))
        found["temporary files"] = _temporary(self._cluster)
        return found


def _open_files(process: psutil.Process) -> int:
    try:
        return int(process.num_fds())
    except psutil.NoSuchProcess:
        return 0


def _temporary(cluster: ScriptCluster) -> int:
    """What lies in the cluster's temporary and its TaskManager's working directory; logs stay by design."""
    roots = [cluster.run / "tmp", cluster.run / "run" / "work"]
    walked = [one for root in roots for one in os.walk(root)]  # passes over what goes meanwhile
    return sum(len(directories) + len(files) for _, directories, files in walked)


def growth(samples: Sequence[Sample], name: str) -> tuple[float, float]:
    """The median of a figure just after the warm-up, and at the end."""
    settled = [one.figures[name] for one in samples if one.jobs >= WARM_UP_SHARE * samples[-1].jobs]
    quarter = max(1, len(settled) // 4)
    return statistics.median(settled[:quarter]), statistics.median(settled[-quarter:])


def grown(samples: Sequence[Sample], *, is_long: bool) -> list[str]:
    """What has grown with the number of jobs, in words; nothing should."""
    allowed = {name: (growth(samples, name), more) for name, more in ALLOWED.items()}
    if is_long:
        for name, share in ALLOWED_SHARES.items():
            found = growth(samples, name)
            allowed[name] = found, share * found[0]
    return [
        f"{name} from {begin:.0f} to {end:.0f}" for name, ((begin, end), more) in allowed.items() if end > begin + more
    ]


def plot(samples: Sequence[Sample], file: Path) -> None:
    """Each figure over the number of jobs, as an SVG."""
    from matplotlib import pyplot as plt

    plt.rcParams["svg.fonttype"] = "none"
    names = list(samples[0].figures)
    rows = (len(names) + 1) // 2
    figure, axes = plt.subplots(rows, 2, figsize=(9, 1.7 * rows), sharex=True, layout="constrained")
    for axis, name in zip(axes.flat, names, strict=False):
        axis.plot([one.jobs for one in samples], [one.figures[name] for one in samples], linewidth=1.4)
        axis.set_title(name, fontsize=9, loc="left")
        axis.set_ylim(0, 1.2 * max(1.0, *(one.figures[name] for one in samples)))
        axis.grid(visible=True, alpha=0.3)
    for axis in axes.flat[len(names) :]:
        axis.remove()
    figure.supxlabel("jobs", fontsize=9)
    figure.savefig(file, metadata={"Date": None})
    plt.close(figure)


def soak(*, small: bool, runs: int | None = None, figure: Path | None = None) -> Report:
    """`runs` jobs (3 000) on one TaskManager with 4 slots; `figure` gets the curves."""
    jobs, samples = (54, 6) if small else (runs or JOBS, SAMPLES)
    report = Report(TITLE)
    options = {
        "taskmanager.numberOfTaskSlots": str(SLOTS),
        "taskmanager.spark.class-archive": "false",
        **(QUICK_JVM if small else {}),
    }
    cluster = ScriptCluster(options, job_masters=1)
    temporary = cluster.run / "tmp"
    temporary.mkdir()
    cluster.environment |= {"TMPDIR": str(temporary), "JAVA_TOOL_OPTIONS": f"-Djava.io.tmpdir={temporary}"}
    with cluster:
        run = Soak(cluster, jobs, samples)
        asyncio.run(run.run())
    add_rows(report, run.samples)
    if figure is not None:
        plot(run.samples, figure)
    for change in grown(run.samples, is_long=jobs >= 10 * SLOTS * SAMPLES):
        report.note(f"GREW: {change}")
    return report


def add_rows(report: Report, samples: Sequence[Sample]) -> None:
    """Each figure after the warm-up and at the end."""
    for name in samples[0].figures:
        begin, end = growth(samples, name)
        unit = "MB" if name.endswith("MB") else ""
        report.add(f"{name}, after the first third of {samples[-1].jobs} jobs", begin, unit)
        report.add(f"{name}, at the end", end, unit)
