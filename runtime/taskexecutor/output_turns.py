"""Of several jobs whose commits to one base would disturb each other, one after the other (R27).

A job that wants its turn writes `.commit-<job>.turn` at the top of the base, a file that nobody else writes, and looks
for those of others behind that: of two jobs one at least sees the other. Invariants: a job goes on when it has seen
nobody while its own file was there; of those that see each other the lowest id keeps its file, the others take theirs
back, until they see nobody; who has a plan stored beside his file is under way, waits for nobody and is waited for,
also when his mover has failed: others go on when his job is over. Jobs that append do not disturb each other.
"""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Protocol, TypeVar

from runtime.common.clock import Clock
from runtime.common.errors import InvalidInputError, RetryableError
from runtime.common.ids import JobId
from runtime.gateways.job_master import CommitOutputs
from runtime.gateways.task import APPEND
from runtime.taskexecutor.commit_records import TURN, CommitNames, commit_names
from runtime.taskexecutor.output_files import OutputFiles
from runtime.taskexecutor.output_names import HIDDEN_COMMIT

logger = logging.getLogger(__name__)

T = TypeVar("T")

INTERVAL = 0.5
"""Seconds between the first two looks for jobs that are waited for; each looks through the top of every base."""

_INTERVAL_MAX = 3.0


class StoredJobs(Protocol):
    """What is durably known of the jobs of this cluster."""

    @property
    def cluster(self) -> str:
        """The cluster's uuid."""

    async def is_over(self, job_id: JobId, /) -> bool:
        """True when it has a result, and so no mover (R16). Raises RetryableError."""


@dataclass(frozen=True, slots=True)
class Turn:
    """Another job's file. `cluster`: "" where nobody can be asked whether that job is over."""

    job_id: JobId
    base: str
    cluster: str = ""
    mode: str = ""

    def __str__(self) -> str:
        return f"{self.base}/{commit_names(self.job_id).turn}"


class Step(Protocol):
    """Does blocking work on a thread, and again while the storage fails; raises when this mover has to stop."""

    async def __call__(self, work: Callable[[], T], /) -> T: ...


Bases = Sequence[tuple[OutputFiles, str]]
"""With the mode in which the job writes there."""


class Turns:
    """Those of one mover's job. Without `jobs` nobody can be asked whether another job is over.

    `is_by_hand`: the job is over, so what is there of its turn means nothing to others, and it is got anew.
    """

    def __init__(
        self, message: CommitOutputs, jobs: StoredJobs | None, clock: Clock, *, patience: float, is_by_hand: bool
    ) -> None:
        self._is_by_hand = is_by_hand
        self._message = message
        self._jobs = jobs
        self._clock = clock
        self._patience = patience
        self._names = commit_names(message.job_id)
        self._tops: dict[str, list[str]] = {}

    async def take(self, bases: Bases, step: Step, waiting: Callable[[str], None]) -> None:
        """Returns when it is this job's turn in all of them. Raises InvalidInputError."""
        for files, _ in bases:
            if await step(partial(self._is_under_way, files)):
                return
        while True:
            for files, mode in bases:
                await step(partial(self._want, files, mode))
            others = await self._others(bases, step)
            if not others:
                break
            await self._wait(others, bases, step, waiting)
        for files, mode in bases:
            if mode != APPEND:
                await step(partial(self._overtake, files))

    async def _wait(self, others: list[Turn], bases: Bases, step: Step, waiting: Callable[[str], None]) -> None:
        began, is_kept, interval = self._clock.monotonic(), True, INTERVAL
        while others:
            # At each look: a lower one that came later waits for this one.
            if is_kept and min(turn.job_id for turn in others) < self._message.job_id:
                is_kept = False
                for files, _ in bases:
                    await step(partial(self.give_back, files))
            self._check(others[0], self._clock.monotonic() - began)
            waiting(f"job {others[0].job_id} commits to {others[0].base}: waiting for it")
            await asyncio.sleep(interval)
            interval = min(1.5 * interval, _INTERVAL_MAX)
            others = await self._others(bases, step)

    def _check(self, turn: Turn, waited: float) -> None:
        """A job of which it is known that it goes on is waited for as long as it takes, another one only so long."""
        if not self._is_known(turn) and waited >= self._patience:
            message = (
                f"job {turn.job_id} commits to {turn.base} too, or has ended without taking {turn} back: when it has,"
                " delete that file"
            )
            raise InvalidInputError(message)

    async def _others(self, bases: Bases, step: Step) -> list[Turn]:
        found: list[Turn] = []
        for files, mode in bases:
            found += await step(partial(self.others, files, mode))
        return [turn for turn in found if not (self._is_known(turn) and await self._is_over(turn.job_id))]

    def _is_known(self, turn: Turn) -> bool:
        return self._jobs is not None and turn.cluster == self._jobs.cluster

    async def _is_over(self, job_id: JobId) -> bool:
        """For sure."""
        try:
            return self._jobs is not None and await self._jobs.is_over(job_id)
        except RetryableError as error:
            logger.info("whether job %s is over cannot be read: %s", job_id, error)
            return False

    def _overtake(self, files: OutputFiles) -> None:
        """Nobody is under way where this job has its turn, whoever could be asked: what others have left of a commit
        would delete, or bring back, what is not theirs any more (R28).
        """
        for job_id in self._begun_by_others(files):
            files.write(commit_names(job_id).overtaken, f"{self._message.job_id}\n".encode())

    def _is_under_way(self, files: OutputFiles) -> bool:
        """An earlier mover has got the turn, and has begun."""
        names = self._names
        return not self._is_by_hand and files.read(names.turn) is not None and files.read(names.plan) is not None

    def _want(self, files: OutputFiles, mode: str) -> None:
        cluster, message = self._jobs.cluster if self._jobs is not None else "", self._message
        fields = {"cluster": cluster, "epoch": message.epoch, "order": message.order, "mode": mode}
        files.write(self._names.turn, json.dumps(fields, separators=(",", ":")).encode() + b"\n")

    def give_back(self, files: OutputFiles) -> None:
        """It is over, or another job's turn. Blocking."""
        files.remove(self._names.turn)

    def outlasts_failure(self, bases: Sequence[OutputFiles]) -> bool:
        """True when a next mover would go on with what is planned, and others wait until this job is over. Blocking.

        Where nobody can tell them that, and by hand, a next one gets its turn anew, and sees who has overtaken it.
        """
        if self._is_by_hand or self._jobs is None:
            return False
        return any(files.read(self._names.plan) is not None for files in bases)

    def others(self, files: OutputFiles, mode: str) -> list[Turn]:
        """Those of other jobs that this one would disturb. Blocking."""
        found = []
        top = self._tops[files.base] = files.names()
        for name in top:
            job_id = JobId(name.removeprefix(HIDDEN_COMMIT).removesuffix(TURN))
            if name != commit_names(job_id).turn or job_id == self._message.job_id:
                continue
            data = files.read(name)
            if data is None or files.read(commit_names(job_id).done) is not None:
                continue  # it is over since
            turn = _decode(job_id, files.base, data)
            if {turn.mode, mode} != {APPEND}:
                found.append(turn)
        return found

    def _begun_by_others(self, files: OutputFiles) -> list[JobId]:
        """Jobs that have stored a plan here, have not done all of it, and were not told yet that it is void.

        The look that saw nobody has found them all: who comes behind it sees this job, and plans later.
        """
        top = self._tops[files.base]
        names = [name.removeprefix(HIDDEN_COMMIT) for name in top if name.startswith(HIDDEN_COMMIT)]
        jobs = [JobId(name) for name in names if name.isalnum() and name != self._message.job_id]
        return [job_id for job_id in jobs if _is_begun(files, commit_names(job_id))]


def _is_begun(files: OutputFiles, names: CommitNames) -> bool:
    is_void = files.read(names.done) is not None or files.read(names.overtaken) is not None
    return not is_void and files.read(names.plan) is not None


def _decode(job_id: JobId, base: str, data: bytes) -> Turn:
    """One that cannot be read disturbs everybody, and nobody knows whose it is (R31)."""
    try:
        fields = json.loads(data)
        return Turn(job_id, base, str(fields["cluster"]), str(fields["mode"]))
    except (ValueError, KeyError, TypeError):
        return Turn(job_id, base)
