"""SparkEnvironments: the default environment of a TaskManager, and those that it starts for static conf of jobs.

Each is a host and a JVM of its own, so that the end of one is the end of its users only. One that is lost is not
restarted: the next task that needs it starts another one.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Callable, Iterable
from dataclasses import dataclass, field
from typing import Protocol

from runtime.aio.scope import ServiceScope
from runtime.aio.watch import Watch
from runtime.common.clock import Clock
from runtime.common.errors import FlinklikeError, NotFoundError, UnavailableError
from runtime.common.spark_environments import HEAP, OVERHEAD, EnvironmentSpec, SparkOffer, SparkWish, jars_of_jobs
from runtime.gateways.process import SparkJvmFigures
from runtime.gateways.resource_manager import SparkEnvironmentStatus
from runtime.taskexecutor.spark.environment import JvmChange, SparkEnvironment, SparkLoss
from runtime.taskexecutor.spark.environment_room import EnvironmentRoom, Lease, Step
from runtime.taskexecutor.spark.java_threads import threads_of

logger = logging.getLogger(__name__)

_UNUSED = "no task uses this Spark environment, and its time is over or its memory is needed"
_JOB_OVER = "the job whose Spark environment it was has ended"
_LOOKED_AT_MAX = 20
_MEMORY_LOOK_SECONDS = 1.0
_STRETCH = 2
"""So many times its overhead the default JVM may take while tasks run in it."""
_IDLE_LOOKS_PER_TIMEOUT = 10
_IDLE_LOOK_SECONDS_MAX = 10.0

MakeEnvironment = Callable[[EnvironmentSpec], SparkEnvironment]
"""Makes an environment that is not started yet. Raises InvalidInputError for conf that cannot be used."""

OnLoss = Callable[[SparkEnvironment, SparkLoss], None]


class DefaultEnvironment(SparkEnvironment, Protocol):
    """The environment that is kept warm, with what reports say of it."""

    @property
    def problem(self) -> str:
        """Why it could not be started again, "" as long as it can."""


@dataclass(slots=True)
class _Started:
    """`ready`: done when it can be used, or with the reason why not. `given_up`: why it is not to start any more.

    `ends_unused`: it is for no later task, so that it ends when it has no user.
    """

    spec: EnvironmentSpec
    environment: SparkEnvironment
    given_up: str = ""
    ends_unused: bool = False
    ready: asyncio.Future[None] = field(default_factory=lambda: asyncio.get_running_loop().create_future())

    def check(self) -> None:
        """Raises UnavailableError when it is given up."""
        if self.given_up:
            raise UnavailableError(self.given_up)


class SparkEnvironments:
    """All environments of one TaskManager. Every method belongs to one event loop.

    `offer` says what jobs find in the default one, and how much memory others may take. `idle_timeout` in seconds: one
    that has had no user for so long ends. `forget` hears of each that was made when its processes are dead.
    """

    def __init__(
        self,
        default: DefaultEnvironment,
        make: MakeEnvironment,
        offer: SparkOffer,
        clock: Clock,
        *,
        idle_timeout: float,
        forget: Callable[[SparkEnvironment], None] = lambda _: None,
    ) -> None:
        self.default = default
        self._make, self._forget_made = make, forget
        self._offer = offer
        self._clock = clock
        self._idle_timeout = idle_timeout
        self._room = EnvironmentRoom(offer.environment_bytes, offer.accounts)
        self._started: dict[str, _Started] = {}
        self._waiting: set[int] = set()
        self._next_turn = 0
        self._scope = ServiceScope("spark environments")
        self.on_loss: OnLoss = lambda _environment, _loss: None
        """Hears of each environment that is lost, or has ended, when its processes are dead."""
        self.is_default_idle: Callable[[], bool] = lambda: True
        """Asked whether no task runs that has the default one, or may have it."""
        self.on_change: Callable[[JvmChange | None], None] = lambda _change: None
        """Hears what was put back in the JVM of an environment while others work in it (R45)."""
        self.changes: Watch[None] = Watch(None)
        """Changes with `statuses`."""

    # --- SparkState -----------------------------------------------------------------------------------------

    @property
    def is_warm(self) -> bool:
        """True once the default one has been warmed up."""
        return self.default.is_warm

    @property
    def problem(self) -> str:
        """Why the default one could not be started again, "" as long as it can."""
        return self.default.problem

    def statuses(self) -> tuple[SparkEnvironmentStatus, ...]:
        """The environments beside the default one, as the ResourceManager is told."""
        return tuple(self._room.statuses())

    def jars_in_use(self) -> set[str]:
        """The sha256 of each jar of a job with which an environment was started."""
        return {jar for started in self._started.values() for jar in jars_of_jobs(started.spec.conf)}

    async def end_job(self, job_id: str) -> None:
        """The job left this TaskManager: what only it has ends. Idempotent; raises FlinklikeError when one cannot be
        reached.
        """
        problem: FlinklikeError | None = None
        for started in [started for started in self._started.values() if started.spec.job_id == job_id]:
            started.ends_unused = True
            if self._room.end_unused(started.spec.key):
                await self._end(started, _JOB_OVER)
        for environment in (self.default, *(started.environment for started in [*self._started.values()])):
            try:
                await environment.end_job(job_id)
            except FlinklikeError as error:
                problem = error
        if problem is not None:
            raise problem

    async def stacks(self) -> AsyncIterator[tuple[str, str]]:
        """(name, stack) of each thread of the JVMs, which are asked side by side and go on meanwhile."""
        known = [("Spark", self.default), *((f"Spark {one.spec.key[:8]}", one.environment) for one in self._ready())]
        async with asyncio.TaskGroup() as group:
            asked = [(name, group.create_task(environment.thread_dump())) for name, environment in known]
        for name, task in asked:
            for thread, text in threads_of(task.result()):
                yield f"{name} {thread}".strip(), text

    async def jvm_figures(self) -> tuple[SparkJvmFigures, ...]:
        """Of each JVM, the default one first; they are asked side by side."""
        known = [("", self.default), *((one.spec.key, one.environment) for one in self._ready()[:_LOOKED_AT_MAX])]
        async with asyncio.TaskGroup() as group:
            asked = [group.create_task(environment.jvm_figures(key)) for key, environment in known]
        return tuple(told for task in asked if (told := task.result()) is not None)

    def key_of(self, environment: SparkEnvironment) -> str | None:
        """Its key, "" for the default one; None for one that has ended."""
        if environment is self.default:
            return ""
        return next((key for key, one in self._started.items() if one.environment is environment), None)

    async def page(self, key: str, target: str, prefix: str) -> tuple[bytes, bytes]:
        """(head, packed body) of one of Spark's own pages (R58). `key`: "" for the default environment.

        Raises NotFoundError without that environment, UnavailableError when its JVM does not make the page.
        """
        started = next((one for one in self._ready() if one.spec.key == key), None)
        if key and started is None:
            message = (
                f"Spark environment {key[:80]!r} is not here, or not yet: one that no task uses ends after a while"
            )
            raise NotFoundError(message)
        return await (self.default if started is None else started.environment).page(target, prefix)

    def _ready(self) -> list[_Started]:
        return [one for one in self._started.values() if one.ready.done() and one.ready.exception() is None]

    # --- life -----------------------------------------------------------------------------------------------

    async def open(self) -> None:
        """Make `acquire` possible. The default one is started by its supervisor."""
        await self._scope.open()
        self._scope.spawn_eternal("idle", self._watch_idle())
        self._scope.spawn_eternal("memory", self._watch_memory())

    async def wait_failed(self) -> None:
        """Wait for the end of what runs here. Raises the ExceptionGroup when a part has failed."""
        await self._scope.wait_failed()

    async def stop(self) -> None:
        """End all of them; returns when they are reaped. Idempotent."""
        await self.stop_started()
        await self.default.stop()

    async def stop_started(self) -> None:
        """End those that were started on demand, and start no more; returns when they are reaped. Idempotent."""
        await self._give_up_started("the TaskManager stops")
        if self._scope.is_open:
            await self._scope.close()

    async def give_up(self, reason: str) -> None:
        """End all of them as a planned loss; the supervisor starts the default one again (R50)."""
        await self._give_up_started(reason)
        await self.default.give_up(reason)

    async def _give_up_started(self, reason: str) -> None:
        async with asyncio.TaskGroup() as group:
            for started in self._started.values():
                started.given_up = reason
                _ = group.create_task(started.environment.give_up(reason))

    # --- users ----------------------------------------------------------------------------------------------

    def spec_of(self, wish: SparkWish) -> EnvironmentSpec:
        """The environment that tasks of a job have here."""
        return self._offer.environment(wish)

    async def acquire(self, spec: EnvironmentSpec, note: Callable[[str], None]) -> tuple[SparkEnvironment, Lease]:
        """Become a user of an environment; returns when it can be used. `note` hears, in words, what is waited for.

        Raises FlinklikeError when it does not start.
        """
        try:
            lease = self._try(spec, may_start=not self._waiting) or await self._wait_for_room(spec, note)
            try:
                started = self._started[spec.key]
                if not (started.ready.done() or spec.is_application):
                    purpose = "job alone" if spec.job_id else "job's static conf"
                    note(f"starts a Spark environment for the {purpose}")
                await asyncio.shield(started.ready)
            except BaseException:
                self.release(lease)
                raise
        finally:
            note("")
        return started.environment, lease

    async def _wait_for_room(self, spec: EnvironmentSpec, note: Callable[[str], None]) -> Lease:
        """Environments are started in the order in which they were asked for; what is there already is had at once."""
        note(f"waits for room for its Spark environment ({self._offer.room_options})")
        self._next_turn += 1
        turn = self._next_turn
        self._waiting.add(turn)
        try:
            while True:
                generation = self.changes.generation
                if lease := self._try(spec, may_start=turn == min(self._waiting)):
                    return lease
                await self.changes.wait_changed(generation)
        finally:
            self._waiting.discard(turn)
            self._note_changed()

    def _try(self, spec: EnvironmentSpec, *, may_start: bool) -> Lease | None:
        """Claim it once. Without `may_start` only an environment that is there is claimed."""
        claim = self._room.claim(spec, self._clock.monotonic(), may_start=may_start)
        self._end_all(claim.ending)
        if claim.step is Step.START:
            self._begin(spec)
        if claim.lease is not None:
            self._note_changed()
        return claim.lease

    def is_living(self, lease: Lease) -> bool:
        """False when the environment of that lease is lost, or is to end."""
        return self._room.is_living(lease)

    def renew(self, lease: Lease) -> bool:
        """Become a user once more, for a process that is attached already. False if the environment has ended, or is
        about to.
        """
        has_it = self._room.renew(lease)
        if has_it:
            self._note_changed()
        return has_it

    def release(self, lease: Lease) -> None:
        """One user less."""
        self._room.release(lease, self._clock.monotonic())
        started = self._started.get(lease.key)
        if started is not None and started.ends_unused:
            self._end_all(self._room.end_unused(lease.key))
        self._note_changed()

    def _note_changed(self) -> None:
        self.changes.set(None)

    # --- each one -------------------------------------------------------------------------------------------

    def _begin(self, spec: EnvironmentSpec) -> None:
        try:
            environment = self._make(spec)
        except FlinklikeError:
            self._room.remove(spec.key)
            raise
        # The room of an application is that of one attempt.
        started = self._started[spec.key] = _Started(spec, environment, ends_unused=spec.is_application)
        logger.info("Spark environment %s starts, %d MiB: %s", spec.key, spec.memory_bytes >> 20, sorted(spec.conf))
        self._scope.spawn(f"spark environment {spec.key}", self._run(started))
        self._note_changed()

    async def _run(self, started: _Started) -> None:
        """The life of one: its start, and its loss."""
        environment, key = started.environment, started.spec.key
        try:
            started.check()
            await environment.start()
            started.check()  # what is given up before its host is made starts nevertheless
        except (FlinklikeError, OSError) as error:
            level = logging.INFO if started.given_up else logging.ERROR
            logger.log(level, "Spark environment %s does not start: %s", key, error)
            await environment.stop()
            self._forget(started)
            told = error if isinstance(error, FlinklikeError) else UnavailableError(f"starting Spark: {error}")
            started.ready.set_exception(told)
            started.ready.exception()  # who waits is told; without such a user it is no mistake of ours
            return
        logger.info("Spark environment %s is ready", key)
        started.ready.set_result(None)
        changes = self._scope.start(f"changes of {key}", self._watch_changes(environment))
        loss = await environment.wait_lost()
        changes.cancel()
        self._room.end(key)  # no task finds it any more
        logger.log(logging.INFO if loss.is_planned else logging.ERROR, "Spark environment %s has ended: %s", key, loss)
        self.on_loss(environment, loss)
        await environment.stop()
        self._forget(started)

    async def _watch_changes(self, environment: SparkEnvironment) -> None:
        while True:
            await environment.put_back.wait_changed(environment.put_back.generation)
            self.on_change(environment.put_back.value)

    def _forget(self, started: _Started) -> None:
        """Its processes are dead: its memory is free."""
        key = started.spec.key
        if self._started.get(key) is started:
            del self._started[key]
            self._forget_made(started.environment)
            self._room.remove(key)
        self._note_changed()

    def _end_all(self, keys: Iterable[str]) -> None:
        for key in keys:
            if (started := self._started.get(key)) is not None:
                self._scope.spawn(f"end spark environment {key}", self._end(started))

    async def _end(self, started: _Started, reason: str = _UNUSED) -> None:
        """`_run` sees the loss and forgets it."""
        started.given_up = reason
        await started.environment.give_up(reason)

    async def _watch_memory(self) -> None:
        """R53: the memory beside the heap, which Java does not bound, is bounded too."""
        while True:
            await asyncio.sleep(_MEMORY_LOOK_SECONDS)
            self._bound_default()
            for started in [*self._started.values()]:
                used, granted = started.environment.memory_bytes, started.spec.memory_bytes
                if used > granted:
                    reason = (
                        f"its JVM has {used >> 20} MiB of memory, and its Spark environment {granted >> 20} MiB: jobs "
                        f"that need more ask for it ({HEAP}, {OVERHEAD})"
                    )
                    self._scope.spawn(f"end {started.spec.key}", started.environment.end(SparkLoss(reason)))

    def _bound_default(self) -> None:
        """R53: a JVM that all jobs share is replaced between tasks, and under them only when it takes far too much."""
        used, (heap, overhead) = self.default.memory_bytes, self._offer.default_memory
        if used <= heap + overhead or not self.default.is_ready:
            return
        reason = (
            f"the JVM of all jobs has {used >> 20} MiB of memory, and {heap + overhead >> 20} MiB for heap and "
            f"overhead (taskmanager.memory.spark.size, {OVERHEAD})"
        )
        if used > heap + _STRETCH * overhead:
            self._scope.spawn("end the JVM of all jobs", self.default.end(SparkLoss(reason)))
        elif self.is_default_idle():
            self._scope.spawn("replace the JVM of all jobs", self.default.give_up(reason))

    async def _watch_idle(self) -> None:
        pause = min(self._idle_timeout / _IDLE_LOOKS_PER_TIMEOUT, _IDLE_LOOK_SECONDS_MAX)
        while True:
            await asyncio.sleep(pause)
            due = self._room.expire(self._clock.monotonic(), self._idle_timeout)
            if due:
                self._end_all(due)
                self._note_changed()
