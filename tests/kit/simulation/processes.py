"""Processes on one loop: each task, callback and timer belongs to the process that has made it.

Who belongs to whom follows the context: a process is started in a context that names it, and asyncio hands the context
on to everything that comes of it. Before a callback runs, the loop looks at its process:

- a frozen one (SIGSTOP): the callback is held, and runs in its old order when the process wakes. Time goes on.
- a dead one (SIGKILL): the callback never runs. No `finally`, no cancellation, nothing: what the process had in memory
  stays where it was and has no more effect. It is kept alive on purpose: a coroutine that is collected would run its
  `finally` blocks.

Work in threads (files) runs in one piece on the loop, after a time that the storage takes.
"""

from __future__ import annotations

import asyncio
import contextvars
import heapq
from collections.abc import Callable, Coroutine
from enum import Enum
from typing import Any

from tests.kit.virtual_time import VirtualTimeLoop

_TASKS_KEPT = 2048


class Life(Enum):
    """What a process can do."""

    RUNNING = "RUNNING"
    FROZEN = "FROZEN"
    DEAD = "DEAD"


class SimulatedProcess:
    """One life of one OS process. `name` is stable over restarts and is its host, `incarnation_number` counts lives."""

    def __init__(self, loop: SimulatedLoop, name: str, number: int = 1) -> None:
        self.name = name
        self.number = number
        self.life = Life.RUNNING
        self._loop = loop
        self._held: list[asyncio.Handle] = []
        self._tasks: list[SimulatedTask] = []
        self.context = contextvars.Context()
        self.context.run(CURRENT.set, self)
        loop.processes.append(self)

    def __repr__(self) -> str:
        return f"<{self.name} #{self.number} {self.life.value}>"

    def start(self, what: str, coroutine: Coroutine[Any, Any, Any]) -> asyncio.Task[Any]:
        """Run a coroutine as a part of this process."""
        return self._loop.create_task(coroutine, name=what, context=self.context)

    def post(self, callback: Callable[..., object], *arguments: Any) -> None:
        """Have something happen in this process: how everything from outside comes in."""
        self._loop.call_soon(callback, *arguments, context=self.context.copy())

    def post_later(self, delay: float, callback: Callable[..., object], *arguments: Any) -> None:
        """The same after a while."""
        self._loop.call_later(delay, callback, *arguments, context=self.context.copy())

    def hold(self, handle: asyncio.Handle) -> None:
        """A callback that may not run now, or never."""
        self._held.append(handle)

    def freeze(self) -> None:
        """SIGSTOP."""
        assert self.life is Life.RUNNING, self
        self.life = Life.FROZEN

    def thaw(self) -> None:
        """SIGCONT: what was held runs now."""
        assert self.life is Life.FROZEN, self
        self.life = Life.RUNNING
        held, self._held = self._held, []
        self._loop.resume(held)

    def kill(self) -> None:
        """SIGKILL."""
        assert self.life is not Life.DEAD, self
        self.life = Life.DEAD

    def keep(self, task: SimulatedTask) -> None:
        """Hold on to a task of ours, so that it is never collected while it is pending."""
        if len(self._tasks) >= _TASKS_KEPT:
            self._tasks = [one for one in self._tasks if not one.done()]
        self._tasks.append(task)

    @property
    def pending_tasks(self) -> list[SimulatedTask]:
        """Tasks that have not ended, oldest first."""
        return [task for task in self._tasks if not task.done()]


CURRENT: contextvars.ContextVar[SimulatedProcess | None] = contextvars.ContextVar("process", default=None)
"""The process that the running callback belongs to; None for the world outside."""


def current_process() -> SimulatedProcess:
    """The process that runs now."""
    process = CURRENT.get()
    assert process is not None, "this runs outside of every process"
    return process


class SimulatedTask(asyncio.Task[Any]):
    """Hashed by number: asyncio keeps tasks in sets, whose order must be the same in every run of a seed."""

    def __init__(self, number: int, coroutine: Coroutine[Any, Any, Any], **options: Any) -> None:
        self._number = number
        super().__init__(coroutine, **options)

    def __hash__(self) -> int:
        return self._number

    def __eq__(self, other: object) -> bool:
        return self is other


class _OwnedHandle(asyncio.Handle):
    def _run(self) -> None:
        _run_owned(self, super()._run)


class _OwnedTimer(asyncio.TimerHandle):
    def _run(self) -> None:
        _run_owned(self, super()._run)


def _run_owned(handle: asyncio.Handle, run: Callable[[], object]) -> None:
    process = handle._context.get(CURRENT)  # type: ignore[attr-defined]
    if process is None or process.life is Life.RUNNING:
        run()
    else:
        process.hold(handle)


class SimulatedLoop(VirtualTimeLoop):
    """Virtual time, with processes, and with files instead of threads.

    `storage_delay` says how long a piece of file work of a process takes, or raises the OSError that it ends with.
    """

    def __init__(self) -> None:
        self._task_count = 0
        self.callbacks = 0
        self.storage_delay: Callable[[SimulatedProcess | None], float] = lambda _: 0.0005
        self.outside = contextvars.Context()
        self.processes: list[SimulatedProcess] = []
        super().__init__()

    def call_soon(self, callback: Callable[..., object], *args: Any, context: Any = None) -> asyncio.Handle:  # type: ignore[override]
        """As asyncio does it, with a handle that knows its process."""
        handle = _OwnedHandle(callback, args, self, context)
        self._ready.append(handle)  # type: ignore[attr-defined]
        self.callbacks += 1
        return handle

    def call_soon_threadsafe(self, callback: Callable[..., object], *args: Any, context: Any = None) -> asyncio.Handle:  # type: ignore[override]
        """There are no other threads."""
        return self.call_soon(callback, *args, context=context)

    def call_at(  # type: ignore[override]
        self, when: float, callback: Callable[..., object], *args: Any, context: Any = None
    ) -> asyncio.TimerHandle:
        """As asyncio does it, with a handle that knows its process."""
        timer = _OwnedTimer(when, callback, args, self, context)
        heapq.heappush(self._scheduled, timer)  # type: ignore[attr-defined]
        timer._scheduled = True  # type: ignore[attr-defined]
        return timer

    def create_task(self, coro: Any, *, name: object = None, context: Any = None) -> asyncio.Task[Any]:
        """A task with a number, kept by its process."""
        self._task_count += 1
        owner = CURRENT.get() if context is None else context.get(CURRENT)
        task_context = None if context is None else context.copy()
        task = SimulatedTask(self._task_count, coro, loop=self, name=name, context=task_context)
        if owner is not None:
            owner.keep(task)
        return task

    def run_in_executor(self, executor: Any, func: Callable[..., Any], *args: Any) -> asyncio.Future[Any]:  # type: ignore[override]
        """Files: all at once, after the time that the storage takes now."""
        done: asyncio.Future[Any] = self.create_future()
        try:
            delay = self.storage_delay(CURRENT.get())
        except OSError as error:
            self.call_later(0.001, _fail, done, error)
        else:
            self.call_later(delay, _work, done, func, args)
        return done

    def resume(self, handles: list[asyncio.Handle]) -> None:
        """Run what was held, in its order."""
        self._ready.extend(handles)  # type: ignore[attr-defined]

    def outside_at(self, when: float, callback: Callable[..., object], *arguments: Any) -> asyncio.TimerHandle:
        """Something that happens in the world outside of the processes: networks, disks, fate."""
        return self.call_at(when, callback, *arguments, context=self.outside)

    def outside_later(self, delay: float, callback: Callable[..., object], *arguments: Any) -> asyncio.TimerHandle:
        """The same, counted from now."""
        return self.outside_at(self.time() + delay, callback, *arguments)


def _work(done: asyncio.Future[Any], func: Callable[..., Any], arguments: tuple[Any, ...]) -> None:
    try:
        result = func(*arguments)
    except Exception as error:  # noqa: BLE001 - it goes to whoever waits, as from a thread
        _fail(done, error)
    else:
        if not done.done():
            done.set_result(result)


def _fail(done: asyncio.Future[Any], error: Exception) -> None:
    if not done.done():
        done.set_exception(error)
