"""How a mover of outputs works on storage: on threads, behind its permit, and again while the storage fails."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import Executor
from functools import partial
from itertools import islice
from typing import TypeVar

from runtime.common.clock import Clock
from runtime.common.errors import RetryableError
from runtime.common.ids import JobId
from runtime.taskexecutor.outputs.move_permit import HeldPermit
from runtime.taskexecutor.outputs.storage_failures import in_words, is_final

logger = logging.getLogger(__name__)

T = TypeVar("T")

PARALLEL_MAX = 8
"""So many files are moved at once: object stores answer many requests in the time of one."""

CHUNK_MAX = 256
_DELAY_MAX = 5.0

Report = Callable[[int, int, str], None]
"""Files moved, files in all, and why it does not get on ("" if it does)."""


class MoveProgress:
    """How many files of a commit are visible, told to its owner."""

    def __init__(self, report: Report) -> None:
        self._report = report
        self.moved = 0
        self.total = 0

    def tell(self, problem: str) -> None:
        """The mover waits, for this reason."""
        self._report(self.moved, self.total, problem)

    def note_moved(self, files: int) -> None:
        """So many more are visible."""
        self.moved += files
        self.tell("")


class StorageSteps:
    """Steps of one mover. `patience`: seconds without any success after which a failure of the storage is final.

    `name` puts the addresses that people know into an error. Raises MoveStoppedError, and what a step raises.
    """

    def __init__(
        self,
        job_id: JobId,
        permit: HeldPermit,
        progress: MoveProgress,
        executor: Executor | None,
        clock: Clock,
        *,
        patience: float,
        name: Callable[[OSError], None],
    ) -> None:
        self._job_id = job_id
        self._permit = permit
        self._progress = progress
        self._executor = executor
        self._clock = clock
        self._patience = patience
        self._name = name
        self._succeeded_at = clock.monotonic()

    async def run(self, work: Callable[[], T]) -> T:
        """Do a step on a thread; again while the storage fails and may come back (R20)."""
        delay = 0.1
        while True:
            try:
                result = await self.try_once(work)
            except (OSError, RetryableError) as error:
                if is_final(error):
                    raise
                if self._clock.monotonic() - self._succeeded_at > self._patience:
                    raise
                logger.warning("the commit of job %s waits for its storage: %s", self._job_id, error)
                self._progress.tell(f"the storage fails, it is tried again: {in_words(error)}")
            else:
                self._succeeded_at = self._clock.monotonic()
                return result
            await asyncio.sleep(delay)
            delay = min(2 * delay, _DELAY_MAX)

    async def try_once(self, work: Callable[[], T]) -> T:
        """Do a step on a thread, once. Before it, look whether this mover still may move (R27)."""

        def looked() -> T:
            try:
                self._permit.check()
                return work()
            except OSError as error:
                self._name(error)
                raise

        self._permit.check_itself()
        return await asyncio.get_running_loop().run_in_executor(self._executor, looked)

    async def each(self, items: Sequence[T], work: Callable[[T], None], *, is_counted: bool = False) -> None:
        """Do a step for every item, a bounded number at once."""
        size = max(1, min(CHUNK_MAX, len(items) // (4 * PARALLEL_MAX)))
        chunks = _chunks(items, size)
        failures: list[Exception] = []

        def do(chunk: list[T]) -> None:
            """Do the step for the items of a chunk that are left; called again while the storage fails."""
            while chunk:
                self._permit.check()
                work(chunk[0])
                del chunk[0]

        async def worker() -> None:
            for chunk in chunks:
                if failures:
                    return
                given = len(chunk)
                try:
                    await self.run(partial(do, chunk))
                except Exception as error:  # noqa: BLE001 - raised below, when nothing is under way any more
                    failures.append(error)
                if is_counted:
                    self._progress.note_moved(given - len(chunk))

        async with asyncio.TaskGroup() as group:
            for _ in range(min(PARALLEL_MAX, -(-len(items) // size))):
                group.create_task(worker())
        if failures:
            raise failures[0]


def _chunks(items: Sequence[T], size: int) -> Iterable[list[T]]:
    iterator = iter(items)
    while chunk := list(islice(iterator, size)):
        yield chunk
