"""`bin/demo-failover.sh`: a long Spark job whose owner is killed, and then the JobManager; the same attempt goes on."""

from __future__ import annotations

import argparse
import asyncio
import signal
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from airflow_flinklike import Pipeline
from airflow_flinklike.client import AsyncFlinklikeClient, new_job_id
from runtime.common.ids import JobId
from tests.chaos.__main__ import WITH_SPARK
from tests.chaos.members import ChaosCluster, Member
from tests.chaos.watch import Watch

_EVERY = 0.5
_SIZE = 2_000_000
_ENDED = frozenset({"FINISHED", "FAILED", "CANCELED"})


@dataclass
class Demo:
    """The cluster, the job, and what was seen of it. `attempts` are all ids of its only task, in order."""

    cluster: ChaosCluster
    watch: Watch
    job_id: JobId
    begun: float = field(default_factory=time.monotonic)
    attempts: list[str] = field(default_factory=list)
    owners: list[str] = field(default_factory=list)

    async def run(self, blocks: int) -> bool:
        """The whole show; True when one attempt has lived through it."""
        async with AsyncFlinklikeClient(self.cluster.urls, self.cluster.token) as client:
            await client.submit(_job(blocks).job_graph(), job_id=self.job_id)
            self._say(f"job {self.job_id} is accepted: one Spark task, {blocks} blocks")
            await self._follow(0.3)
            self._kill(self._owner(), "the JobMaster process that owns the job")
            await self._follow(0.6)
            self._kill(await self._leader(), "the leading JobManager")
            await self._follow(1.0)
            ended = await client.wait_for_result(self.job_id)
        self._say(f"the job is {ended.status.value}, its result is {ended.value}")
        is_right = ended.value == (blocks * _SIZE + 6) // 7
        self._say(f"owners: {', then '.join(self.owners)}")
        self._say(f"attempts of its task: {len(self.attempts)} ({', then '.join(map(_short, self.attempts))})")
        return is_right and len(self.attempts) == 1 and len(self.owners) == 2

    async def _follow(self, fraction: float) -> None:
        """Show the job until it has come so far."""
        while True:
            shown = await self._look()
            if shown is not None and (shown["fraction"] >= fraction or shown["state"] in _ENDED):
                return
            await asyncio.sleep(_EVERY)

    async def _look(self) -> dict[str, Any] | None:
        job = await self.watch.ask(f"/jobs/{self.job_id}")
        if job is None or not job["vertices"]:  # as a new leader shows a job whose owner has not come to it yet
            await self._look_from_afar()
            return None
        vertex = job["vertices"][0]
        details = await self.watch.ask(f"/jobs/{self.job_id}/vertices/{vertex['id']}")
        attempt = details["subtasks"][0]["attempt-id"] if details is not None and vertex["tasks"]["RUNNING"] else ""
        progress, owner = vertex["progress"], job["jobmaster"]
        if attempt and attempt not in self.attempts:
            self.attempts.append(attempt)
        if owner and owner not in self.owners:
            self.owners.append(owner)
        words = progress["text"] or job["pending-reason"] or f"task {vertex['status']}"
        shown = f"attempt {_short(attempt)}" if attempt else "attempt not known"
        self._say(f"{job['state']:<12} owner {owner or 'none':<15}  {shown:<25} {words}")
        return {"state": job["state"], "fraction": progress["fraction"]}

    async def _look_from_afar(self) -> None:
        """What the leader knows while the owner cannot be asked."""
        state = await self.watch.ask(f"/jobs/{self.job_id}/status")
        if state is None:
            self._say("no JobManager answers; the task goes on")
        else:
            self._say(f"{state['status']:<12} its owner cannot be asked; the task goes on. {state['pending-reason']}")

    def _owner(self) -> Member:
        return next(one for one in self.cluster.members("jobmaster") if one.address == self.owners[-1])

    async def _leader(self) -> Member:
        for member in self.cluster.members("jobmanager"):
            if await self.watch.leads(f"http://{member.address}"):
                return member
        message = "no JobManager leads"
        raise RuntimeError(message)

    def _kill(self, member: Member, what: str) -> None:
        self._say(f"kill -9 {member.process.pid}: {what} ({member.address})")
        member.send(signal.SIGKILL)

    def _say(self, text: str) -> None:
        sys.stdout.write(f"{time.monotonic() - self.begun:5.1f} s  {text}\n")
        sys.stdout.flush()


def _short(attempt: str) -> str:
    """The end of an attempt's id: subtask, epoch of the owner that made it, counter."""
    return f"...{attempt[-14:]}"


def _job(blocks: int) -> Pipeline:
    pipeline = Pipeline("long-count", params={"blocks": blocks, "size": _SIZE, "seconds": 0.5})
    pipeline.source("count", "tests.chaos.programs:count_blocks")
    return pipeline


async def _run(cluster: ChaosCluster, blocks: int) -> bool:
    watch = Watch(cluster.urls, cluster.token)
    try:
        return await Demo(cluster, watch, new_job_id()).run(blocks)
    finally:
        await watch.close()


def show(blocks: int, *, class_archive: Path | None = None) -> bool:
    """Start a cluster, show the failover, end everything."""
    sys.stdout.write("Starting etcd, two JobManagers, two JobMaster processes and a TaskManager with Spark ...\n")
    sys.stdout.flush()
    options = {**WITH_SPARK, "taskmanager.numberOfTaskSlots": "2"}
    with ChaosCluster(options, job_masters=2, workers=1, class_archive=class_archive) as cluster:
        is_good = asyncio.run(_run(cluster, blocks))
    sys.stdout.write("The same attempt lived through both.\n" if is_good else "THE TASK WAS DISTURBED.\n")
    return is_good


def parse(arguments: Sequence[str]) -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(prog="demo-failover.sh", description=__doc__, allow_abbrev=False)
    parser.add_argument("--blocks", type=int, default=80, help="length of the job, half a second each (80)")
    return parser.parse_args(arguments)


def main(arguments: Sequence[str]) -> int:
    """0 when no task was restarted."""
    return 0 if show(parse(arguments).blocks) else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
