"""Turns of jobs that commit to one base, one after the other (R27): also those that append, since a job that is done
says that the base is whole.

A job that wants its turn writes `.commit-<job>.turn` at the top of the base, a file that no other job writes, and looks
for those of others behind that: of two jobs one at least sees the other. Invariants: a job goes on when it has seen
no other file while its own was there; of jobs that see each other the lowest id keeps its file, the others take theirs
back, until they see none; a job with a plan beside its file is under way, waits for no other and is waited for,
also when its mover has failed: others go on when it is over.
"""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Protocol, TypeVar

from runtime.common.clock import Clock
from runtime.common.errors import InvalidInputError, RetryableError
from runtime.common.ids import JobId
from runtime.common.json_text import parse_json
from runtime.gateways.job_master import CommitOutputs
from runtime.taskexecutor.outputs.commit_records import TURN, commit_names
from runtime.taskexecutor.outputs.overtaken_commits import mark_for, others_in
from runtime.taskexecutor.outputs.turn_looks import SETTLE, TurnLooks, repeat_identity, taken_by
from runtime.taskexecutor.storage.output_files import OutputFiles
from runtime.taskexecutor.storage.output_names import HIDDEN_COMMIT

logger = logging.getLogger(__name__)

T = TypeVar("T")

INTERVAL = 0.5
"""Seconds between two looks for jobs that are waited for, at most."""

INTERVAL_MIN = 0.02
"""At least: most commits are over soon."""

WAITED_PART = 0.25
"""Between these, so much of what was waited: no job waits much longer than there is cause."""


class StoredJobs(Protocol):
    """The jobs of this cluster, as the store knows them."""

    @property
    def cluster(self) -> str:
        """The cluster's uuid."""

    async def is_over(self, job_id: JobId, /) -> bool:
        """True when it has a result, and so no mover (R16). Raises RetryableError."""


@dataclass(frozen=True, slots=True)
class Turn:
    """Another job's file. `cluster`: "" where no store can say whether that job is over."""

    job_id: JobId
    base: str
    cluster: str = ""

    def __str__(self) -> str:
        return f"{self.base}/{commit_names(self.job_id).turn}"


class Step(Protocol):
    """Does blocking work on a thread, and again while the storage fails; raises when this mover has to stop."""

    async def __call__(self, work: Callable[[], T], /) -> T: ...


Bases = Sequence[tuple[OutputFiles, str]]
"""With the mode in which the job writes there."""


class CommitTurns:
    """The turns of one mover's job. Without `jobs` no store can say whether another job is over.

    `is_by_hand`: the job is over, so what is there of its turn means nothing to others, and it is got anew, by this
    repeat alone: the next one takes it away again. `looks` tells its mover.
    """

    def __init__(
        self,
        message: CommitOutputs,
        jobs: StoredJobs | None,
        clock: Clock,
        boot_clock: Clock,
        *,
        patience: float,
        is_by_hand: bool,
    ) -> None:
        self._is_by_hand = is_by_hand
        self._message = message
        self._jobs = jobs
        self._clock = clock
        self._patience = patience
        self._names = commit_names(message.job_id)
        self._by = repeat_identity() if is_by_hand else ""
        self.looks = TurnLooks(self._names.turn, self._by, boot_clock)
        self._has_wanted: set[str] = set()
        self._replaces_a_repeat = False
        self._tops: dict[str, list[str]] = {}
        self._overtaken: dict[str, set[JobId]] = {}

    @property
    def cluster(self) -> str:
        """The cluster of the job; "" for none."""
        return self._jobs.cluster if self._jobs is not None else ""

    async def take(self, bases: Bases, step: Step, waiting: Callable[[str], None]) -> None:
        """Returns when it is this job's turn in all of them. Raises InvalidInputError."""
        if not self._is_by_hand and await self._is_under_way(bases, step):
            return
        while True:
            for files, mode in bases:
                await step(partial(self._want, files, mode))
            others = await self._others(bases, step)
            if not others:
                break
            await self._wait(others, bases, step, waiting)
        if bases and (self._by or self._replaces_a_repeat):
            await asyncio.sleep(SETTLE)  # R27: the mover that had the turn looks, and stops

    async def _wait(self, others: list[Turn], bases: Bases, step: Step, waiting: Callable[[str], None]) -> None:
        """Wait until those files are deleted, each asked for by its name: the look behind that sees later ones."""
        began = self._clock.monotonic()
        if min(turn.job_id for turn in others) < self._message.job_id:
            for files, _ in bases:
                await step(partial(self.give_back, files))
        while others:
            waited = self._clock.monotonic() - began
            self._check(others[0], waited)
            waiting(f"job {others[0].job_id} commits to {others[0].base}: waiting for it")
            await asyncio.sleep(min(max(INTERVAL_MIN, WAITED_PART * waited), INTERVAL))
            found: list[Turn] = []
            for files, _ in bases:
                jobs = [turn.job_id for turn in others if turn.base == files.base]
                found += await step(partial(self._turns_of, jobs, files))
            others = await self._not_over(found)

    def _check(self, turn: Turn, waited: float) -> None:
        """A job of which it is known that it goes on is waited for as long as it takes, another one only so long."""
        if not self._is_known(turn) and waited >= self._patience:
            message = (
                f"job {turn.job_id} commits to {turn.base} too, or has ended without taking {turn} back: when it has,"
                " delete that file"
            )
            raise InvalidInputError(message)

    async def _others(self, bases: Bases, step: Step) -> list[Turn]:
        """The jobs that this job waits for."""
        found: list[Turn] = []
        for files, _ in bases:
            found += await step(partial(self._listed, files))
        return await self._not_over(found)

    async def _not_over(self, turns: list[Turn]) -> list[Turn]:
        return [turn for turn in turns if not (self._is_known(turn) and await self._is_over(turn.job_id))]

    def _is_known(self, turn: Turn) -> bool:
        return self._jobs is not None and turn.cluster == self._jobs.cluster

    async def _is_over(self, job_id: JobId) -> bool:
        """True when the store shows the end of the job; False also when the store cannot be read."""
        try:
            return self._jobs is not None and await self._jobs.is_over(job_id)
        except RetryableError as error:
            logger.info("whether job %s is over cannot be read: %s", job_id, error)
            return False

    async def _is_under_way(self, bases: Bases, step: Step) -> bool:
        """True when an earlier mover has got the turn, in all bases, and has begun: its first plan says so."""
        has_turn = [await step(partial(self._has_turn, files)) for files, _ in bases]
        return all(has_turn) and any([await step(partial(self._has_planned, files)) for files, _ in bases])

    def _has_turn(self, files: OutputFiles) -> bool:
        turn = files.read(self._names.turn)
        if turn is None:
            return False
        is_a_repeat_s = bool(taken_by(turn))
        self._replaces_a_repeat |= is_a_repeat_s
        return not is_a_repeat_s

    def _has_planned(self, files: OutputFiles) -> bool:
        return files.read(self._names.plan) is not None

    def _want(self, files: OutputFiles, mode: str) -> None:
        message = self._message
        fields = {"cluster": self.cluster, "epoch": message.epoch, "order": message.order, "mode": mode}
        if self._by:
            if files.base in self._has_wanted:  # a later repeat may have come while this one waited
                self.looks.look(files, is_there=False)
            fields["by"] = self._by
        files.write(self._names.turn, json.dumps(fields, separators=(",", ":")).encode() + b"\n")
        self._has_wanted.add(files.base)

    def give_back(self, files: OutputFiles) -> None:
        """Delete this job's turn file: the commit is over, or it is another job's turn. Blocking."""
        turn = files.read(self._names.turn)
        if turn is not None and taken_by(turn) == self._by:
            files.remove(self._names.turn)

    def outlasts_failure(self, bases: Sequence[OutputFiles]) -> bool:
        """True when a next mover would go on with the stored plan, and others wait until this job is over. Blocking.

        Where no store can tell others the end of the job, and for a repeat by hand, a next mover gets its turn anew,
        and sees the job that overtook it.
        """
        if self._is_by_hand or self._jobs is None:
            return False
        return any(self._has_planned(files) for files in bases)

    async def overtake(self, files: OutputFiles, mode: str, step: Step, *, top: Sequence[str] | None = None) -> None:
        """Mark the uncommitted work of other jobs as void: committed later, it would delete, replace or bring back
        files that are no longer theirs. No job is asked, since none is under way where this job has its turn
        (`overtaken_commits`).

        Called behind the plan: until then this job may find that it was overtaken itself, or is refused. `top`: the
        names at the top of the base now; without it those of the look that saw no other job, since a job that came
        later sees this one, and plans later.
        """
        if top is None:
            top = await step(partial(self.top, files))
        marked = self._overtaken.setdefault(files.base, set())
        for other in others_in(top, self._message.job_id):
            if other.job_id not in marked:
                mark = await step(partial(mark_for, files, mode, other))
                if mark is not None:
                    await step(partial(files.write, mark, f"{self._message.job_id}\n".encode()))
                marked.add(other.job_id)

    def top(self, files: OutputFiles) -> list[str]:
        """The names at the top of a base, from the look that saw no other job; from a new look where there was none.

        Blocking.
        """
        found = self._tops.get(files.base)
        return files.names() if found is None else found

    def _listed(self, files: OutputFiles) -> list[Turn]:
        """The turn files of other jobs in a base."""
        top = self._tops[files.base] = files.names()
        turns = [name for name in top if name.startswith(HIDDEN_COMMIT) and name.endswith(TURN)]
        jobs = [JobId(name.removeprefix(HIDDEN_COMMIT).removesuffix(TURN)) for name in turns]
        return self._turns_of(jobs, files)

    def _turns_of(self, jobs: Iterable[JobId], files: OutputFiles) -> list[Turn]:
        """The files that still exist, of these."""
        found = []
        for job_id in jobs:
            names = commit_names(job_id)
            data = files.read(names.turn) if job_id != self._message.job_id else None
            if data is not None and files.read(names.done) is None:  # else it is over since
                found.append(_decode(job_id, files.base, data))
        return found


def _decode(job_id: JobId, base: str, data: bytes) -> Turn:
    """A file that cannot be read keeps every job waiting, since its job is not known (R31)."""
    try:
        fields = parse_json(data)
        return Turn(job_id, base, str(fields["cluster"]))
    except (ValueError, KeyError, TypeError):
        return Turn(job_id, base)
