"""Clients that submit jobs, wait for their ends and write both down. They are the product's own client."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from airflow_flinklike.client import AsyncFlinklikeClient, JobExecutionResult, new_job_id
from airflow_flinklike.exceptions import FlinklikeClientError, JobConflictError, JobNotFoundError
from runtime.common.ids import JobId
from runtime.common.states import JobStatus
from tests.chaos.jobs import ChaosJob, as_text, jobs
from tests.chaos.ledger import InputLine, JobLine, Ledger, StreamLine, now

_TOLD_POLL = 0.1


@dataclass
class Load:
    """All jobs of one run: `unfinished` ones were acknowledged; `errors` are what clients were told.

    `refusal` is what a failure says that may end jobs with exclusive tasks.
    """

    addresses: list[str]
    token: str
    ledger: Ledger
    ledger_path: Path
    directory: Path
    kinds: list[str]
    refusal: str = ""
    acknowledged: int = 0
    unfinished: dict[JobId, ChaosJob] = field(default_factory=dict)
    ended: dict[JobId, ChaosJob] = field(default_factory=dict)
    errors: list[str] = field(default_factory=list)
    say: Callable[[str], None] = print

    def client(self) -> AsyncFlinklikeClient:
        """A client of the cluster; close it."""
        return AsyncFlinklikeClient(self.addresses, self.token)

    async def run_client(self, seed: int, number: int, is_over: asyncio.Event) -> None:
        """Submit one job after the other, and wait for each, until it is over."""
        async with self.client() as client:
            for job, pause in jobs(seed, number, self.directory, self.kinds):
                if await _reached(is_over, pause):
                    return
                async with asyncio.TaskGroup() as group:
                    await self._run(client, [job, *job.after], group, is_over)

    async def _run(
        self, client: AsyncFlinklikeClient, chain: Sequence[ChaosJob], group: asyncio.TaskGroup, is_over: asyncio.Event
    ) -> None:
        """Each behind the one before: when that has FINISHED, or told that it is far enough."""
        for job in chain:
            job_id = new_job_id()
            if (is_over.is_set() and job is not chain[0]) or not await self._submit(client, job_id, job):
                return
            through = group.create_task(self._see_through(client, job_id, job))
            while not (through.done() or (job.told is not None and job.told.exists())):
                await asyncio.wait([through], timeout=None if job.told is None else _TOLD_POLL)
            if through.done() and through.result() is not JobStatus.FINISHED:
                return

    async def _submit(self, client: AsyncFlinklikeClient, job_id: JobId, job: ChaosJob) -> bool:
        built = await asyncio.to_thread(job.build, self.ledger_path)
        if job.output is not None:
            self.ledger.add(await asyncio.to_thread(job.output.prepare, job_id))
        if job.stream is not None:
            await asyncio.to_thread(job.stream.prepare)
        if job.endless is not None:
            await asyncio.to_thread(job.endless.feed.prepare)
        self._note_replacement("replacing", job_id, job)
        try:
            await client.submit(built.graph, job_id=job_id, contents=built.uploads)
        except FlinklikeClientError as error:
            self._note_error(f"submit of {job.kind} job {job_id}", error)
            return False
        self.unfinished[job_id] = job
        self.acknowledged += 1
        state, value = job.expected.state, job.promise
        refusal = self.refusal if job.is_exclusive else ""
        self.ledger.add(JobLine(now(), "acknowledged", job_id, job.kind, state, value, job.tasks, refusal=refusal))
        return True

    async def _see_through(self, client: AsyncFlinklikeClient, job_id: JobId, job: ChaosJob) -> JobStatus | None:
        """The state in which it ended; None when the client does not know."""
        try:
            if job.cancel_after >= 0:
                await asyncio.sleep(job.cancel_after)
                await self._cancel(client, job_id, job)
            if job.endless is not None:
                await job.endless.drive(client, job_id, self.ledger)
            found = await client.wait_for_result(job_id)
        except FlinklikeClientError as error:
            self._note_error(f"{job.kind} job {job_id}", error)
            return None
        await self._note_end(job_id, found)
        return found.status

    async def _cancel(self, client: AsyncFlinklikeClient, job_id: JobId, job: ChaosJob) -> None:
        """Too late is an answer where the job may also finish."""
        try:
            await client.cancel(job_id)
        except JobConflictError:
            if "FINISHED" not in job.expected.state:
                raise
            return
        self.ledger.add(JobLine(now(), "cancelled", job_id, job.kind, "", "", {}))

    def _note_replacement(self, step: str, job_id: JobId, job: ChaosJob) -> None:
        if job.replaces is not None:
            path, rows = job.replaces
            self.ledger.add(InputLine(now(), step, str(path), job_id, rows))

    def _note_error(self, what: str, error: Exception) -> None:
        text = f"{what}: {type(error).__name__}: {error}"
        self.errors.append(text)
        self.say(f"a client was told: {text}")

    async def _note_end(self, job_id: JobId, found: JobExecutionResult) -> None:
        job = self.unfinished.pop(job_id)
        self.ended[job_id] = job
        self.ledger.add(_line("ended", job_id, job, found))
        if found.status is JobStatus.FINISHED:
            self._note_replacement("replaced", job_id, job)
            for line in await asyncio.to_thread(_rows_of, job_id, job):
                self.ledger.add(line)
        await self._note_output("ended", job_id, job, found)

    async def _note_output(self, step: str, job_id: JobId, job: ChaosJob, found: JobExecutionResult) -> None:
        if job.output is not None:
            self.ledger.add(await asyncio.to_thread(job.output.look, step, job_id, found.status.value))

    async def await_ends(self, timeout: float) -> None:
        """After everything has healed: every acknowledged job ends. What a client gave up is asked for again."""
        async with self.client() as client, asyncio.TaskGroup() as group:
            for job_id, job in list(self.unfinished.items()):
                group.create_task(self._await_end(client, job_id, job, timeout))

    async def _await_end(self, client: AsyncFlinklikeClient, job_id: JobId, job: ChaosJob, timeout: float) -> None:
        try:
            async with asyncio.timeout(timeout):
                await self._see_through(client, job_id, job)
        except TimeoutError:
            self.say(f"{job.kind} job {job_id} does not end")

    async def check(self) -> None:
        """Ask once more for the end of every job: it is what it was."""
        async with self.client() as client:
            for job_id, job in [*self.ended.items(), *self.unfinished.items()]:
                self.ledger.add(await self._checked(client, job_id, job))

    async def _checked(self, client: AsyncFlinklikeClient, job_id: JobId, job: ChaosJob) -> JobLine:
        try:
            found = await client.result_within(job_id, wait=0.0)
        except JobNotFoundError:
            return JobLine(now(), "checked", job_id, job.kind, "not found", "", {})
        if found is None:
            state = await client.status(job_id)
            reason = state.pending_reason or await _tasks_of(client, job_id)
            return JobLine(now(), "checked", job_id, job.kind, state.status.value, "", {}, note=reason)
        await self._note_output("checked", job_id, job, found)
        return _line("checked", job_id, job, found)


def _line(step: str, job_id: JobId, job: ChaosJob, found: JobExecutionResult) -> JobLine:
    is_finished = found.status is JobStatus.FINISHED
    value = as_text(found.value) if is_finished else ""
    note = str(found.failure.get("message", ""))[:500] if found.failure else ""
    return JobLine(now(), step, job_id, job.kind, found.status.value, value, {}, note)


def _rows_of(job_id: JobId, job: ChaosJob) -> list[StreamLine]:
    if job.endless is not None:
        return list(job.endless.feed.look(job_id, is_drained=not job.endless.is_first))
    return [] if job.stream is None else list(job.stream.look(job_id))


async def _tasks_of(client: AsyncFlinklikeClient, job_id: JobId) -> str:
    vertices = (await client.get(f"/jobs/{job_id}"))["vertices"]
    return ", ".join(f"{one['name']} { ({key: n for key, n in one['tasks'].items() if n}) }" for one in vertices)


async def _reached(event: asyncio.Event, within: float) -> bool:
    try:
        async with asyncio.timeout(within):
            await event.wait()
    except TimeoutError:
        return False
    return True
