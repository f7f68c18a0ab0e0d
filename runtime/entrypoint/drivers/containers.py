"""The driver `docker`: TaskManagers and JobMaster processes in containers of a docker daemon (R65, D-136).

Labels of a container say whose it is: the cluster, the kind, the worker. So JobManagers on several hosts with the same
daemon see each other's workers, and a new leader has those of the last one. Its name has the worker's label too: the
daemon makes no second one for the same worker. A container that was made and has not begun counts as a worker, since
another JobManager may be about to start it; it is removed when nobody has for a while.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TypeVar

from runtime.aio.clock import SystemClock
from runtime.aio.thread_calls import ThreadCalls
from runtime.common.clock import Clock, Deadline
from runtime.common.errors import UnavailableError
from runtime.common.worker_ids import is_worker_id, profile_of
from runtime.entrypoint.drivers.docker_engine import Container, ContainerSpec, DockerEngine, DockerEngineError
from runtime.resourcemanager.driver import DriverError

T = TypeVar("T")

logger = logging.getLogger(__name__)

CLUSTER_LABEL = "flinklike.cluster-id"
KIND_LABEL = "flinklike.kind"
WORKER_LABEL = "flinklike.worker-id"
_STARTS_MAX = 4
"""Containers that are made and started at once."""
_WORDS_MAX = 20
"""Ended workers whose last words are kept until somebody asks."""
_END_PATIENCE = 10.0
_INSIST_AFTER = 0.3
_CLOCK = SystemClock()


@dataclass(frozen=True, slots=True)
class WorkerContainers:
    """The containers of one kind of one cluster. `spec`: of each, but for its name, label, options and size.

    `option`: the option that tells a worker its label; `options_of`: its others; `sizes`: memory and cpus by profile.
    """

    cluster_id: str
    kind: str
    option: str
    spec: ContainerSpec
    options_of: Callable[[str], Sequence[str]] = lambda _: ()
    sizes: Mapping[str, tuple[int | None, float]] = field(default_factory=dict)

    @property
    def labels(self) -> Mapping[str, str]:
        """By which they are found."""
        return {CLUSTER_LABEL: self.cluster_id, KIND_LABEL: self.kind}

    def of(self, worker_id: str) -> ContainerSpec:
        """The container of one worker."""
        memory, cpus = self.sizes.get(profile_of(worker_id), (self.spec.memory, self.spec.cpus))
        options = (*self.options_of(worker_id), f"{self.option}={worker_id}")
        return replace(
            self.spec,
            name=f"flinklike-{self.cluster_id}-{worker_id}",
            command=(*self.spec.command, *(argument for text in options for argument in ("-D", text))),
            labels={**self.labels, WORKER_LABEL: worker_id},
            memory=memory,
            cpus=cpus,
        )


@dataclass(slots=True)
class _Seen:
    """The answer of one look: the containers of workers, and what ended ones have said."""

    workers: dict[str, Container] = field(default_factory=dict)
    words: dict[str, str] = field(default_factory=dict)


class ContainerDriver:
    """Implements `ResourceManagerDriver`. No call takes much longer than `timeout`, whatever the daemon does."""

    def __init__(self, engine: DockerEngine, containers: WorkerContainers, clock: Clock, timeout: float) -> None:
        self._engine = engine
        self._containers = containers
        self._clock = clock
        self._calls = ThreadCalls("docker-start", 3 * timeout, threads=_STARTS_MAX)
        self._looks = ThreadCalls("docker-look", 2 * timeout, threads=2)
        self._starts = asyncio.Semaphore(_STARTS_MAX)
        self._one_look = asyncio.Lock()
        self._starting: set[str] = set()
        self._patience = 4 * timeout
        self._unborn: dict[str, float] = {}
        """Containers that have not begun, by their ids, since when they are seen here."""
        self._words: dict[str, str] = {}

    async def workers(self) -> Collection[str]:
        """ResourceManagerDriver."""
        return list((await self._look()).workers)

    async def start(self, worker_id: str, /, *, is_wanted: Callable[[], bool]) -> None:
        """ResourceManagerDriver."""
        async with self._starts:
            self._starting.add(worker_id)
            try:
                await self._call(self._calls, partial(self._make, self._containers.of(worker_id), is_wanted))
            finally:
                self._starting.discard(worker_id)

    async def release(self, worker_id: str, /, *, kills: bool) -> None:
        """ResourceManagerDriver."""
        found = (await self._look()).workers.get(worker_id)
        if found is None:
            return
        if not found.is_running:
            await self._call(self._looks, partial(self._engine.remove, found.id))
            return
        await self._call(self._looks, partial(self._engine.signal, found.id, "SIGKILL" if kills else "SIGTERM"))

    async def last_words(self, worker_id: str, /) -> str:
        """ResourceManagerDriver. Of workers of an earlier JobManager too."""
        return self._words.pop(worker_id, "")

    async def end_workers(self) -> None:
        """End all workers and remove their containers, and return when that is done. DriverError."""
        await self._call(self._calls, partial(end_containers, self._engine, self._containers.labels))

    async def _look(self) -> _Seen:
        async with self._one_look:
            seen = await self._call(self._looks, self._seen)
            now = self._clock.monotonic()
            unborn = [one for name, one in seen.workers.items() if not one.is_running and name not in self._starting]
            self._unborn = {one.id: self._unborn.get(one.id, now) for one in unborn}
            for one in unborn:
                if now - self._unborn[one.id] > self._patience:
                    logger.info("container %s was made, and nobody has started it: it is removed", one.id[:12])
                    await self._call(self._looks, partial(self._engine.remove, one.id))
                    del seen.workers[one.labels[WORKER_LABEL]]
        self._words |= seen.words
        for name in list(self._words)[: max(0, len(self._words) - _WORDS_MAX)]:
            del self._words[name]
        return seen

    def _seen(self) -> _Seen:
        """Ask the daemon, and remove what has ended. In a thread."""
        seen = _Seen()
        for one in self._engine.containers(self._containers.labels):
            worker_id = one.labels.get(WORKER_LABEL, "")
            if not is_worker_id(worker_id):
                continue  # not a driver's
            if not one.has_ended:
                seen.workers[worker_id] = one
                continue
            try:
                seen.words[worker_id] = self._engine.last_words(one.id)
                self._engine.remove(one.id)
            except DockerEngineError as error:  # it is no worker any more, so the others are answered
                logger.warning("container %s has ended, and cannot be removed: %s", one.id[:12], error)
        return seen

    def _make(self, spec: ContainerSpec, is_wanted: Callable[[], bool]) -> None:
        made = self._engine.create(spec)
        try:
            if not is_wanted():
                message = "nobody wants it any more"
                raise DockerEngineError(message)
            self._engine.start(made)
        except BaseException:
            self._engine.remove(made)
            raise

    async def _call(self, calls: ThreadCalls, function: Callable[[], T]) -> T:
        try:
            return await calls.call(function)
        except DockerEngineError as error:
            raise DriverError(str(error)) from error
        except UnavailableError as error:
            message = f"the docker daemon is slow: {error}"
            raise DriverError(message) from error


def end_containers(engine: DockerEngine, labels: Mapping[str, str]) -> int:
    """End all containers with these labels without waiting for tasks, remove them, and return how many there were.

    Blocks, for seconds. Raises DockerEngineError.
    """
    found = engine.containers(labels)
    running = [one for one in found if one.is_running]
    for patience in (_INSIST_AFTER, _END_PATIENCE):  # the second SIGTERM ends the drain that the first one begins
        for one in running:
            engine.signal(one.id, "SIGTERM")
        deadline = Deadline.after(_CLOCK, patience)
        for one in running:
            engine.wait_ended(one.id, max(0.1, deadline.remaining(_CLOCK)))
    for one in found:
        engine.remove(one.id)
    return len(found)
