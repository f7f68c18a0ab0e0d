"""One mover's work on the outputs of one job: from the order of its owner to the marker that says that all is done.

Below each base `.commit-<job id>/` holds what the next mover needs: `order` (which order, and whose directories),
`plan` (what becomes visible, what goes), `moved` (every new file is in place and proved), `done`. Invariants: nothing
is planned before it is the job's turn in all its bases (`output_turns`); the plans of all bases are stored before
anything becomes visible; sources and old files go only behind `moved`; between any two steps this mover may be replaced
by another one, which goes on where it stopped (R28); a withdrawn permit ends it before its next file (R27).
"""

from __future__ import annotations

import asyncio
import logging
import shlex
from collections.abc import Callable, Mapping
from concurrent.futures import Executor
from dataclasses import dataclass, field
from functools import partial

from runtime.aio.clock import BootClock
from runtime.common.clock import Clock
from runtime.common.errors import FlinklikeError, InvalidInputError
from runtime.gateways.job_master import CommitOutputs
from runtime.gateways.task import APPEND
from runtime.taskexecutor.outputs.commit_records import Claimed, aside_name, claim, claim_in, claimed_in, commit_names
from runtime.taskexecutor.outputs.move_failures import CommitState, HalfVisibleError, OvertakenError, explained, missing
from runtime.taskexecutor.outputs.move_permit import ENDED, HeldPermit, MoveSupersededError, Permit
from runtime.taskexecutor.outputs.output_turns import CommitTurns, StoredJobs
from runtime.taskexecutor.outputs.overtaken_commits import half_visible, replaced_marks
from runtime.taskexecutor.outputs.storage_steps import MoveProgress, Report, StorageSteps
from runtime.taskexecutor.storage.core.output_plan import OutputPlan, PlannedFile, Written, make_plan
from runtime.taskexecutor.storage.output_files import OutputFiles, output_files, within
from runtime.taskexecutor.storage.output_names import HIDDEN_ATTEMPT, HIDDEN_COMMIT, SUCCESS, is_hidden_work

logger = logging.getLogger(__name__)


@dataclass(slots=True)
class _Base:
    """One base, and how far its commit is. `directories` are relative to it."""

    files: OutputFiles
    mode: str
    directories: list[str]
    names: list[str]
    plan: OutputPlan = field(default_factory=lambda: OutputPlan(APPEND, ()))
    top: list[str] | None = None
    is_claimed: bool = False
    is_moved: bool = False
    is_done: bool = False


class OutputMove:
    """`run` once. `patience`: seconds without any success after which the job fails with what is left.

    Looks at the turn are counted on `boot_clock`, without one on the host's: they grow old while it is suspended (R27).
    """

    def __init__(
        self,
        message: CommitOutputs,
        permit: Permit,
        executor: Executor | None,
        report: Report,
        clock: Clock,
        *,
        patience: float,
        jobs: StoredJobs | None = None,
        is_by_hand: bool = False,
        boot_clock: Clock | None = None,
    ) -> None:
        self._message = message
        self._is_by_hand = is_by_hand
        self._turns = CommitTurns(
            message, jobs, clock, boot_clock or BootClock(), patience=patience, is_by_hand=is_by_hand
        )
        self._permit = HeldPermit(permit, self._turns.looks)
        self._executor = executor
        self._progress = MoveProgress(report)
        self._steps = StorageSteps(
            message.job_id, self._permit, self._progress, executor, clock, patience=patience, name=self._name
        )
        self._bases: list[_Base] = []

    async def run(self) -> None:
        """Returns when everything is visible and tidy. Raises MoveStoppedError, and what cannot be mended."""
        try:
            await self._run_explained()
        except Exception:
            self._release()
            raise
        self._release()  # not when this is cancelled: what a thread of it works with goes with the thread

    def _release(self) -> None:
        for base in self._bases:
            base.files.release()

    async def _run_explained(self) -> None:
        try:
            await self._run()
        except ENDED:
            raise
        except (FlinklikeError, OSError) as error:
            await self._give_turns_back()
            raise explained(error, self._message, self._state(), await self._led_elsewhere()) from error
        for base, where in (await self._led_elsewhere()).items():
            text = "the outputs of job %s are in %s: %s leads to another directory since its commit began"
            logger.warning(text, self._message.job_id, where, base)

    def _name(self, error: OSError) -> None:
        for base in self._bases:
            base.files.name(error)

    def _state(self) -> CommitState:
        claimed = [base.files.base for base in self._bases if base.is_claimed]
        is_any_done = any(base.is_done for base in self._bases)
        return CommitState(self._progress.moved, self._progress.total, is_any_done, claimed)

    async def _led_elsewhere(self) -> Mapping[str, str]:
        """The bases whose paths lead to other directories by now, and where those are that the job has written to."""

        def look() -> Mapping[str, str]:
            found = {base.files.base: base.files.elsewhere for base in self._bases}
            return {base: where for base, where in found.items() if where}

        return await asyncio.get_running_loop().run_in_executor(self._executor, look)

    async def _run(self) -> None:
        self._bases = await self._steps.run(self._open)
        for base in self._bases:
            await self._steps.run(partial(self._claim, base))
        await self._take_turns()
        for base in self._bases:
            if not base.is_done:
                self._turns.looks.at(base.files)
                await self._steps.run(partial(self._plan, base))
        self._progress.total = sum(len(base.plan.files) for base in self._bases)
        self._progress.moved = sum(len(base.plan.files) for base in self._bases if base.is_moved)
        for base in self._bases:
            if not base.is_done and not base.is_moved:
                self._turns.looks.at(base.files)
                await self._show(base)
        for base in self._bases:
            if not base.is_done:
                self._turns.looks.at(base.files)
                await self._settle(base)
        self._turns.looks.at(None)  # what is left to do is about hidden files of this job only
        for base in self._bases:
            await self._tidy_done(base, self._tidy)
        for base in reversed(self._bases):  # behind all of that: a repeat finds by them what there is to tidy
            await self._tidy_done(base, self._remove_order)

    # --- steps ----------------------------------------------------------------------------------------------

    def _open(self) -> list[_Base]:
        """One for each place. The owner compares names; what links make of them is seen here only."""
        found: dict[str, _Base] = {}
        try:
            self._open_in(found)
        except BaseException:
            for base in found.values():
                base.files.release()
            raise
        return list(found.values())

    def _open_in(self, found: dict[str, _Base]) -> None:
        for output in self._message.outputs:
            files, directory = output_files(output.base), within(output.base, output.directory)
            try:
                files.hold()
            except FileNotFoundError as error:
                raise missing(output.directory) from error
            base = found.setdefault(files.place, _Base(files, output.mode, [], []))
            if base.files is not files:
                files.release()
            if base.mode != output.mode:
                message = (
                    f"{base.files.base} and {output.base} are one directory, and the job writes there with"
                    f" mode={base.mode!r} and with mode={output.mode!r}: use one mode"
                )
                raise InvalidInputError(message)
            base.directories.append(directory)
            if files.base not in base.names:
                base.names.append(files.base)
        for base in found.values() if len(found) > 1 else ():
            for outer in (found[one] for one in base.files.outer_places if one in found):
                if {base.mode, outer.mode} != {APPEND}:
                    message = (
                        f"{base.files.base} lies within {outer.files.base}, and the job writes both: with"
                        f" mode={outer.mode!r} and mode={base.mode!r} one would delete what the other wrote. Use"
                        " directories that do not lie within each other, or mode='append' for both"
                    )
                    raise InvalidInputError(message)

    def _claim(self, base: _Base) -> None:
        """Claim the directories for this job, before anything else: no other job deletes them from now on (R28)."""
        names = commit_names(self._message.job_id)
        if base.files.read(names.done) is not None:
            base.is_done = base.is_claimed = True
            return
        mine = (self._message.epoch, self._message.order)
        stored = base.files.read(names.order)
        found, claimed = claim_in(stored), claimed_in(stored)
        if claimed.names and not set(claimed.names) & set(base.names):
            message = (
                f"{claimed.names[0]} and {base.files.base} are one directory under two names, and the job writes to"
                " both: use one of them"
            )
            raise InvalidInputError(message)
        if found is not None and (found[0], found[1]) > mine:
            reason = f"order {found[0]}.{found[1]} is under way in {base.files.base}, this is {mine[0]}.{mine[1]}"
            raise MoveSupersededError(reason)  # R27
        cluster = claimed.cluster if self._is_by_hand else self._turns.cluster
        base.files.write(names.order, claim(self._message, Claimed(tuple(base.names), cluster)))
        base.is_claimed = True

    async def _take_turns(self) -> None:
        """R27: returns when no other job commits to these bases, nor begins to before this one has ended."""
        bases = [(base.files, base.mode) for base in self._bases if not base.is_done]
        await self._turns.take(bases, self._steps.run, self._progress.tell)

    async def _give_turns_back(self) -> None:
        """This mover has failed: others need not wait for the job, unless a next one would go on."""
        bases = [base.files for base in self._bases]
        try:
            # R27: without a permit another mover of this job may have its turn, under the same file.
            if await self._steps.try_once(partial(self._turns.outlasts_failure, bases)):
                return
        except ENDED:
            raise
        except (OSError, FlinklikeError) as error:
            logger.warning(
                "job %s keeps its turns: whether it has a plan cannot be read: %s", self._message.job_id, error
            )
            return
        self._turns.looks.at(None)  # each is looked at when it is given back, and deleted then
        for files in bases:
            try:
                await self._steps.try_once(partial(self._turns.give_back, files))
            except ENDED:
                raise
            except (OSError, FlinklikeError) as error:
                logger.warning("job %s keeps its turn in %s: %s", self._message.job_id, files.base, error)

    def _plan(self, base: _Base) -> None:
        names = commit_names(self._message.job_id)
        stored = base.files.read(names.plan)
        plan = OutputPlan.decode(stored) if stored is not None else None
        if plan is None:
            if base.files.read(names.done) is not None:  # its mover has tidied the plan away: what is there is new
                base.is_done = True
                return
            if self._is_by_hand:
                self._check_not_overtaken(base, names.preceded)
            else:
                base.files.remove(names.preceded)  # the job that left it was done before this job had its turn
            written = {directory: self._written(base, directory) for directory in base.directories}
            plan = make_plan(base.files.base, base.mode, written, base.files.present())
            self._check_no_other_half_visible(base, plan)
            self._permit.check()
            base.files.write(names.plan, plan.encode())
        else:
            self._check_not_overtaken(base, names.overtaken)
            self._check_no_other_half_visible(base, plan)
        base.plan = plan
        base.is_moved = base.files.read(names.moved) is not None

    def _check_not_overtaken(self, base: _Base, mark: str) -> None:
        if (other := base.files.read(mark)) is not None:
            message = (
                f"job {other.decode().strip()} has committed to {base.files.base} since: this commit would delete,"
                " replace or bring back what is not its own any more"
            )
            raise OvertakenError(message)

    def _check_no_other_half_visible(self, base: _Base, plan: OutputPlan) -> None:
        """R27: `_SUCCESS` would come over the half of another one, and over its rows again when that is run again."""
        top = self._turns.top(base.files)
        other = half_visible(base.files, top, self._message.job_id, plan)
        if other is not None:
            there = base.files.base
            command = shlex.join(["bin/commit-outputs.sh", f"{there}/{commit_names(other).directory}"])
            message = (
                f"the commit of job {other} has failed half way in {there}, and what it wrote may be visible there in"
                f" part: repeat that commit with {command} (nothing else is to be done if this job is a retry of that"
                f" one), or replace all with mode='overwrite'"
            )
            raise HalfVisibleError(message)

    def _written(self, base: _Base, directory: str) -> Mapping[str, Written]:
        try:
            written = base.files.written(directory)
        except FileNotFoundError as error:
            raise missing(f"{base.files.base}/{directory}") from error
        if own := [name for name in written if any(map(is_hidden_work, name.split("/")))]:
            message = (
                f"{base.files.base}/{directory}/{min(own)}: names that begin with {HIDDEN_ATTEMPT} or {HIDDEN_COMMIT}"
                " are those of commits: write under another name"
            )
            raise InvalidInputError(message)
        return written

    async def _show(self, base: _Base) -> None:
        """R26: the new files become visible, one by one; a reader that looks for _SUCCESS sees that it is not over."""
        names = commit_names(self._message.job_id)
        await self._turns.overtake(base.files, base.mode, self._steps.run)
        await self._steps.run(partial(base.files.remove, SUCCESS))
        await self._steps.each(base.plan.markers, base.files.remove)
        new = {file.name for file in base.plan.files} if base.plan.asides else set()
        for name in base.plan.asides:
            aside = aside_name(self._message.job_id, name)
            await self._steps.run(partial(base.files.set_aside, name, aside, is_directory=name in new))
        rooms = dict.fromkeys(file.name.rpartition("/")[0] for file in base.plan.files)
        await self._steps.each(list(rooms), base.files.make_room)
        await self._steps.each(base.plan.files, partial(self._put, base), is_counted=True)
        await self._steps.run(partial(base.files.write, names.moved, b""))

    def _put(self, base: _Base, file: PlannedFile) -> None:
        plan, target = base.plan, f"{base.files.base}/{file.name}"
        put = partial(
            base.files.put,
            f"{file.directory}/{file.name}",
            file.name,
            file.size,
            may_replace=plan.may_replace,
            is_fresh=file.name not in plan.overwritten,
            identity=file.identity,
        )
        try:
            try:
                put()
            except FileNotFoundError:
                base.files.make_room(file.name.rpartition("/")[0])  # another job has tidied it away
                put()
        except FileExistsError as error:
            message = f"{target} exists already: somebody wrote a file of that name since the commit began"
            raise InvalidInputError(message) from error
        except FileNotFoundError as error:
            message = f"{base.files.base}/{file.directory}/{file.name}, which was accepted, is gone"
            raise InvalidInputError(message) from error

    async def _settle(self, base: _Base) -> None:
        """Behind `moved`: the old files go, and readers are told that it is over."""
        names = commit_names(self._message.job_id)
        await self._steps.each(base.plan.replaced, base.files.remove)
        asides = [aside_name(self._message.job_id, name) for name in base.plan.asides]
        await self._steps.each(asides, base.files.remove_tree)
        base.top = await self._steps.run(base.files.names)
        await self._turns.overtake(base.files, base.mode, self._steps.run, top=base.top)
        for mark in await self._steps.run(partial(replaced_marks, base.files, base.top, self._message.job_id)):
            await self._steps.run(partial(base.files.write, mark, f"{self._message.job_id}\n".encode()))
        await self._steps.run(partial(base.files.write, SUCCESS, b""))
        await self._steps.run(partial(base.files.write, names.done, b""))

    async def _tidy_done(self, base: _Base, tidy: Callable[[_Base], None]) -> None:
        """The job is done: what cannot be deleted now does not fail it."""
        try:
            await self._steps.run(partial(tidy, base))
        except ENDED:
            raise
        except (OSError, FlinklikeError) as error:
            logger.warning("hidden files of job %s stay in %s: %s", self._message.job_id, base.files.base, error)

    def _tidy(self, base: _Base) -> None:
        """What attempts of this job have left, and all of our own but `done`, which tells a repeat that it is one."""
        names = commit_names(self._message.job_id)
        base.files.remove(names.turn)  # it means nothing behind `done`
        top = base.files.names() if base.top is None else base.top
        mine = [name for name in top if name.startswith(f"{HIDDEN_ATTEMPT}{self._message.job_id}_")]
        for directory in dict.fromkeys([*base.directories, *mine]):
            self._permit.check()
            base.files.remove_tree(directory)
        for name in (names.plan, names.moved):
            base.files.remove(name)

    def _remove_order(self, base: _Base) -> None:
        base.files.remove(commit_names(self._message.job_id).order)
