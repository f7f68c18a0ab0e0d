"""Looks at attempts from outside: memory, log sizes, Spark progress. Sleeps while no attempt runs and no process is
kept.

A kept process is looked at as well, since the end of its attempt is its own statement (R43).
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from runtime.aio.blocking import BlockingIo
from runtime.common.clock import Clock
from runtime.common.errors import FlinklikeError
from runtime.system.linux import kill_child_of, name_of, session_of
from runtime.taskexecutor.attempt_logs.log_files import are_logs_above, attempt_directory, bound_logs
from runtime.taskexecutor.containment.memory import MemorySample, measure_tree, sample_tree
from runtime.taskexecutor.containment.segments import Segment, SlotSegments
from runtime.taskexecutor.containment.shared_memory import HeldFiles, memory_devices
from runtime.taskexecutor.slots import seen_failures
from runtime.taskexecutor.slots.running_attempt import RunningAttempt
from runtime.taskexecutor.slots.template_handle import TemplateProcess
from runtime.taskexecutor.slots.work import SlotSettings
from runtime.taskexecutor.spark.environment import SparkEnvironment
from runtime.taskexecutor.spark_protocol.sessions import SparkProgress

logger = logging.getLogger(__name__)

_NO_PROGRESS = SparkProgress()
_ATTEMPTS_PER_TURN = 16


class AttemptMonitor:
    """One sampling pass every `sample_interval` over what runs then."""

    def __init__(
        self,
        settings: SlotSettings,
        clock: Clock,
        running: Callable[[], Sequence[RunningAttempt]],
        kept: Callable[[], Sequence[RunningAttempt]],
        template: Callable[[], TemplateProcess],
    ) -> None:
        self._settings = settings
        self._clock = clock
        self._running = running
        self._kept = kept
        self._template = template
        self._memory_devices = memory_devices()
        self._segments = SlotSegments()
        self._measured: set[RunningAttempt] = set()
        self._bounded: set[RunningAttempt] = set()
        # Of each slot one that runs and one that is kept may keep two of them each.
        self._io = BlockingIo("look at attempts", threads=4 * settings.slots)
        self._strangers: set[int] = set()
        self._has_work = asyncio.Event()

    def wake(self) -> None:
        """An attempt has begun."""
        self._has_work.set()

    async def watch_resources(self) -> None:
        """Eternal: memory limits and log bounds."""
        try:
            async with asyncio.TaskGroup() as group:
                while True:
                    await self._has_work.wait()
                    await asyncio.sleep(self._settings.sample_interval)
                    running = self._running()
                    attempts = [*running, *self._kept()]
                    if not attempts and not self._segments.are_left:
                        self._has_work.clear()
                    strays = self._strays(running)
                    self._segments.look(await self._read_segments())
                    for number, attempt in enumerate(attempts, start=1):
                        self._look_at(attempt, strays, group)
                        if number % _ATTEMPTS_PER_TURN == 0:
                            await asyncio.sleep(0)
                    self._segments.end_of_others({one.process.pid for one in attempts if one.process is not None})
        finally:
            self._io.abandon()
            self._segments.look(self._segments.read())
            self._segments.end_of_others(())

    async def watch_spark(self) -> None:
        """Eternal: Spark's progress, with one call to each environment for all slots."""
        while True:
            await self._has_work.wait()
            await asyncio.sleep(self._settings.progress_interval)
            users = [a for a in self._running() if a.process is not None and a.process.uses_spark]
            for environment in {a.process.environment for a in users if a.process is not None}:
                if environment is not None and environment.is_ready:
                    await self._tell_spark_progress(environment, users)

    async def _tell_spark_progress(self, environment: SparkEnvironment, users: Sequence[RunningAttempt]) -> None:
        try:
            by_session = await environment.progress()
        except FlinklikeError as error:
            logger.debug("no Spark progress this time: %s", error)
            return
        for attempt in users:
            process = attempt.process
            if process is not None and process.environment is environment and process.session is not None:
                attempt.tell_spark_progress(by_session.get(process.session.session_id, _NO_PROGRESS))

    async def _read_segments(self) -> list[Segment]:
        if self._segments.are_many:
            try:
                return await asyncio.to_thread(self._segments.read)
            except RuntimeError as error:  # no thread can be started: tasks of this user may have too many
                logger.debug("segments are read on the loop: %s", error)
        return self._segments.read()

    def _strays(self, attempts: Sequence[RunningAttempt]) -> dict[int, list[int]]:
        """R43: processes that have left a slot process (`clone` with CLONE_PARENT), by the slot process whose session
        it is in.

        A process that has left the session too belongs to no slot, and ends: no program does both, but one that does
        not want to be counted.
        """
        found: dict[int, list[int]] = {attempt.process.pid: [] for attempt in attempts if attempt.process is not None}
        strangers = set()
        for pid in self._template().stray_pids():
            if (session := session_of(pid)) in found:
                found[session].append(pid)
            else:
                strangers.add(pid)
        # Twice: a process that ends is seen here once, on the way to its end.
        for pid in strangers & self._strangers:
            name = name_of(pid)
            if kill_child_of(self._template().pid, pid):
                logger.warning("process %s (%s) has left its slot, and its session, and is killed", pid, name)
        self._strangers = strangers
        return found

    def _look_at(self, attempt: RunningAttempt, strays: Mapping[int, Sequence[int]], group: asyncio.TaskGroup) -> None:
        process = attempt.process
        if process is None or process.exit.value is not None:
            return
        if attempt not in self._measured:
            limit = self._limit_of(attempt)
            held = attempt.held_files = attempt.held_files or HeldFiles(self._memory_devices)
            sample = sample_tree(process.pid, held, self._segments, limit=limit, strays=strays.get(process.pid, ()))
            if limit and sample.bytes_used > limit:
                self._measured.add(attempt)
                _ = group.create_task(self._measure(attempt, sample.tree, held))
            else:
                attempt.note_memory(sample.bytes_used)
        directory = attempt_directory(attempt.work.log_directory, attempt.attempt_id)
        if attempt not in self._bounded and self._are_logs_above(directory):
            self._bounded.add(attempt)
            _ = group.create_task(self._bound(attempt, directory))

    def _limit_of(self, attempt: RunningAttempt) -> int:
        """The memory of its slots, and that of the JVM of a Java application; 0 is no limit."""
        limit = self._settings.memory_bytes_max * attempt.work.shares
        return limit and limit + _jvm_bytes(attempt)

    def _are_logs_above(self, directory: Path) -> bool:
        try:
            return are_logs_above(directory, bytes_max=self._settings.log_bytes_max)
        except OSError as error:
            # Five times a second: the disk's trouble shows elsewhere, and the other attempts are looked at.
            logger.debug("logs in %s cannot be looked at: %s", directory, error)
            return False

    async def _bound(self, attempt: RunningAttempt, directory: Path) -> None:
        """In a thread: a task that writes to a file can keep others from changing it for as long as it likes (R43)."""
        try:
            await self._io.run(bound_logs, directory, bytes_max=self._settings.log_bytes_max)
        except (OSError, RuntimeError) as error:  # as above, or no thread can be started
            logger.debug("logs of attempt %s cannot be bounded: %s", attempt.attempt_id, error)
        finally:
            self._bounded.discard(attempt)

    async def _measure(self, attempt: RunningAttempt, tree: tuple[int, ...], held: HeldFiles) -> None:
        """Exactly, in a thread: nothing that user code can make large keeps the loop from the other slots (R43)."""
        limit = self._limit_of(attempt)
        try:
            sample = await self._io.run(measure_tree, tree, held, limit=limit)
        except RuntimeError as error:  # no thread can be started
            logger.warning("the memory of attempt %s cannot be measured yet: %s", attempt.attempt_id, error)
            return
        finally:
            self._measured.discard(attempt)
        if attempt not in (*self._running(), *self._kept()):  # its process may run another one by now
            return
        attempt.note_memory(sample.bytes_used)
        if sample.is_exact and sample.bytes_used > limit:
            self._kill_for_memory(attempt, sample)

    def _kill_for_memory(self, attempt: RunningAttempt, sample: MemorySample) -> None:
        failure = seen_failures.of_memory_limit(
            sample.bytes_used,
            self._limit_of(attempt),
            sample.processes,
            slots=attempt.work.shares,
            jvm_bytes=_jvm_bytes(attempt),
            timestamp_millis=self._clock.epoch_millis(),
        )
        logger.warning("attempt %s: %s", attempt.attempt_id, failure.message)
        attempt.kill(failure)


def _jvm_bytes(attempt: RunningAttempt) -> int:
    return 0 if attempt.process is None else attempt.process.room.jvm_bytes
