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
import functools
import heapq
from collections import deque
from collections.abc import Callable, Coroutine
from enum import Enum
from typing import Any

from tests.kit.control_plane.virtual_time import SimulationStalledError, VirtualTimeLoop

_TASKS_KEPT = 2048
_TURNS = 1000
"""Of the loop, before asyncio's own part of it is asked whether it is to stop."""


EPOCH_MILLIS = 1_750_000_000_000
"""When virtual time begins, by clocks on walls."""


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
        self.is_stuck = False
        self._loop = loop
        self._held: list[Handle] = []
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

    def enter(self, callback: Callable[..., object], *arguments: Any) -> None:
        """`post` for the world outside, at once if this process can run: what the kernel does by an interrupt."""
        if self.life is Life.RUNNING and CURRENT.get() is None:
            self.context.copy().run(callback, *arguments)
        else:
            self.post(callback, *arguments)

    def post_later(self, delay: float, callback: Callable[..., object], *arguments: Any) -> None:
        """The same after a while."""
        self._loop.call_later(delay, callback, *arguments, context=self.context.copy())

    def hold(self, handle: Handle) -> None:
        """A callback that may not run now, or never."""
        self._held.append(handle)

    def freeze(self, *, is_stuck: bool = False) -> None:
        """SIGSTOP; or, if `is_stuck`, its loop stands still in a callback, which the system does not see."""
        assert self.life is Life.RUNNING, self
        self.life = Life.FROZEN
        self.is_stuck = is_stuck

    def thaw(self) -> None:
        """SIGCONT: what was held runs now."""
        assert self.life is Life.FROZEN, self
        self.life = Life.RUNNING
        self.is_stuck = False
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


class Handle:
    """A callback that will run, as `asyncio.TimerHandle`: a third of its cost, which is most of the loop's."""

    __slots__ = ("_when", "arguments", "callback", "context", "is_cancelled")

    def __init__(
        self, callback: Callable[..., object], arguments: tuple[Any, ...], context: contextvars.Context, when: float
    ) -> None:
        self.callback = callback
        self.arguments = arguments
        self.context = context
        self.is_cancelled = False
        self._when = when

    def cancel(self) -> None:
        """It will not run."""
        self.is_cancelled = True

    def cancelled(self) -> bool:
        """Was it cancelled?"""
        return self.is_cancelled

    def when(self) -> float:
        """When it is due."""
        return self._when


class SimulatedLoop(VirtualTimeLoop):
    """Virtual time, with processes, and with file work instead of threads: `storage_delay` says how long it takes."""

    _stopping: bool  # asyncio's own

    def __init__(self) -> None:
        self._task_count = 0
        self.callbacks = 0
        self.storage_delay: Callable[[SimulatedProcess | None], float] = lambda _: 0.0005
        self.outputs_delay: Callable[[], float] = lambda: 0.0005
        """The same for work that has threads of its own: that is the commit of outputs, on storage of users."""
        self.after_work: Callable[[], None] = lambda: None
        """Called when a piece of file work is done."""
        self.outside = contextvars.Context()
        self.processes: list[SimulatedProcess] = []
        self._due: deque[Handle] = deque()
        self._timers: list[tuple[float, int, Handle]] = []
        super().__init__()
        # asyncio asks for these two with each future; functions of the interpreter cost a tenth of methods.
        self.create_future = functools.partial(asyncio.Future, loop=self)  # type: ignore[method-assign]
        self.get_debug = bool  # type: ignore[method-assign]

    def _run_once(self) -> None:
        """Many turns: in each what is due now, in its order; when nothing is, time passes to the next timer."""
        due, running = self._due, Life.RUNNING
        for _ in range(_TURNS):
            for _ in range(self._count_due()):
                handle = due.popleft()
                if handle.is_cancelled:
                    continue
                process = handle.context.get(CURRENT)
                if process is not None and process.life is not running:
                    process.hold(handle)
                    continue
                try:
                    handle.context.run(handle.callback, *handle.arguments)
                except (SystemExit, KeyboardInterrupt):
                    raise
                except BaseException as error:  # noqa: BLE001 - as asyncio's loop does
                    self.call_exception_handler({"message": f"{handle.callback!r} has failed", "exception": error})
            if self._stopping:
                return

    def _count_due(self) -> int:
        """How many callbacks are due, after time has passed to the first one."""
        due, timers, pop = self._due, self._timers, heapq.heappop
        while timers and timers[0][2].is_cancelled:
            pop(timers)
        if not due:
            if not timers:
                raise SimulationStalledError
            self._virtual_now = max(self._virtual_now, timers[0][0])
        now = self._virtual_now
        while timers and timers[0][0] <= now:
            due.append(pop(timers)[2])
        return len(due)

    def call_soon(self, callback: Callable[..., object], *args: Any, context: Any = None) -> Any:  # type: ignore[override]
        """At the end of what is due now."""
        handle = Handle(callback, args, contextvars.copy_context() if context is None else context, self._virtual_now)
        self._due.append(handle)
        return handle

    def call_soon_threadsafe(self, callback: Callable[..., object], *args: Any, context: Any = None) -> Any:  # type: ignore[override]
        """There are no other threads."""
        return self.call_soon(callback, *args, context=context)

    def call_later(self, delay: float, callback: Callable[..., object], *args: Any, context: Any = None) -> Any:  # type: ignore[override]
        """After `delay` virtual seconds."""
        return self._set_timer(
            self._virtual_now + delay, callback, args, contextvars.copy_context() if context is None else context
        )

    def call_at(self, when: float, callback: Callable[..., object], *args: Any, context: Any = None) -> Any:  # type: ignore[override]
        """Timers of one moment run in the order in which they were set."""
        return self._set_timer(when, callback, args, contextvars.copy_context() if context is None else context)

    def _set_timer(
        self, when: float, callback: Callable[..., object], arguments: tuple[Any, ...], context: contextvars.Context
    ) -> Handle:
        handle = Handle(callback, arguments, context, when)
        self.callbacks += 1
        heapq.heappush(self._timers, (when, self.callbacks, handle))
        return handle

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
        delay = self.storage_delay(CURRENT.get()) if executor is None else self.outputs_delay()
        self.call_later(delay, self._work, done, func, args)
        return done

    def _work(self, done: asyncio.Future[Any], func: Callable[..., Any], arguments: tuple[Any, ...]) -> None:
        _work(done, func, arguments)
        self.after_work()

    def resume(self, handles: list[Handle]) -> None:
        """Run what was held, in its order."""
        self._due.extend(handles)

    def outside_at(self, when: float, callback: Callable[..., object], *arguments: Any) -> Handle:
        """Something that happens in the world outside of the processes: networks, disks, fate."""
        return self._set_timer(when, callback, arguments, self.outside)

    def outside_later(self, delay: float, callback: Callable[..., object], *arguments: Any) -> Handle:
        """The same, counted from now."""
        return self._set_timer(self._virtual_now + delay, callback, arguments, self.outside)


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
