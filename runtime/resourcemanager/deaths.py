"""Finds dead TaskManagers during one leader term: dials their guards, and removes the dead from the store (R13).

Invariants: a TaskManager that is heard of is never removed; one that was used is removed only when its guard, which a
leader has reached before, proves its death; a TaskManager gets work only after it is durable whether its guard was
reached; a dead TaskManager is removed from the store before any component here acts on its death.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Callable, Sequence
from typing import Protocol, assert_never

from runtime.aio.retry import RetryPolicy
from runtime.aio.scope import Scope
from runtime.common.entropy import Entropy
from runtime.common.errors import RetryableError
from runtime.common.ids import Incarnation
from runtime.resourcemanager.core.liveness import GuardedProcess, Liveness, Question, StoredProcess, described

logger = logging.getLogger(__name__)

DIAL_POLICY = RetryPolicy(delay_initial=0.05, delay_max=5.0)
"""A guard needs a moment to reap what its TaskManager has left behind; one that lives is asked again now and then."""

DIAL_PATIENCE = 1.0
"""Seconds that a TaskManager in the store has for its registration with a new leader, before its guard is dialled."""

DIALS_MAX = 200
"""Dials under way at the same time."""


class Guards(Protocol):
    """The dialler of guards: `runtime.heartbeat.proof_of_death.GuardDialler`."""

    async def is_guard_of(self, address: str, incarnation: Incarnation, boot_id: str, /) -> bool:
        """True if the guard of that TaskManager answers at the address."""

    async def prove_death(self, address: str, incarnation: Incarnation, boot_id: str, /) -> bool:
        """True if it is proved that every process of that TaskManager is reaped."""


class StoredTaskManagers(Protocol):
    """The TaskManagers' keys. The leader's term is a condition of all writes: StaleTokenError when the term is over."""

    def follow(self) -> AsyncIterator[Sequence[StoredProcess]]:
        """All stored TaskManagers, now and after each change."""

    async def note_guard(self, incarnation: Incarnation, /, *, is_reached: bool) -> None:
        """Store that a leader uses the TaskManager, and whether it has reached the guard."""

    async def remove_unused(self, incarnation: Incarnation, /) -> None:
        """Remove a TaskManager that no leader has used. Idempotent; one that a leader uses stays."""

    async def remove_dead(self, incarnation: Incarnation, /) -> None:
        """Remove a TaskManager whose death is proved (transaction `TM gone`). Idempotent."""


class TaskManagerDeaths:
    """`is_heard` tells whether a TaskManager shows signs of life. `usable` is called for each TaskManager that may get
    work, `died` for each that has ended, with how. A TaskManager that was never used, and is not heard of for `timeout`
    seconds, loses its key.
    """

    def __init__(
        self,
        guards: Guards,
        stored: StoredTaskManagers,
        *,
        is_heard: Callable[[Incarnation], bool],
        usable: Callable[[Incarnation], None],
        died: Callable[[Incarnation, str], None],
        timeout: float,
        entropy: Entropy,
    ) -> None:
        self._guards = guards
        self._stored = stored
        self._is_heard = is_heard
        self._usable = usable
        self._died = died
        self._timeout = timeout
        self._entropy = entropy
        self._liveness = Liveness()
        self._attended: set[Incarnation] = set()
        self._dials = asyncio.Semaphore(DIALS_MAX)
        self._scope: Scope | None = None

    async def run(self) -> None:
        """Serve until cancelled. Raises StaleTokenError in an ExceptionGroup when the term turns out to be over."""
        try:
            async with Scope("task-manager-deaths") as self._scope:
                for incarnation in self._liveness.incarnations:
                    self._attend(incarnation)
                async for processes in self._stored.follow():
                    self._take_over(processes, self._scope)
        finally:
            self._scope = None

    def _take_over(self, processes: Sequence[StoredProcess], scope: Scope) -> None:
        new, ended = self._liveness.stored(processes)
        for process in ended:
            self._died(process.incarnation, f"{described(process)}: it has ended")
        for incarnation in filter(self._liveness.is_used, self._liveness.incarnations):
            self._usable(incarnation)
        for incarnation in new:
            scope.spawn(f"{incarnation}/patience", self._attend_later(incarnation))

    def registered(self, process: GuardedProcess) -> None:
        """A TaskManager has opened a stream to this leader (again): dial its guard."""
        self._liveness.registered(process)
        self._attend(process.incarnation)

    def is_usable(self, incarnation: Incarnation) -> bool:
        """True if the TaskManager may get work."""
        return self._liveness.is_used(incarnation)

    def look_at(self, incarnation: Incarnation) -> None:
        """The stream of the TaskManager has ended, its heartbeat may be late, or it may speak again."""
        self._attend(incarnation)

    def given_up(self, incarnation: Incarnation) -> None:
        """The TaskManager counts as lost: if no work was ever given to it, its key may go without a proof."""
        self._liveness.given_up(incarnation)
        if self._scope is not None and self._liveness.is_superfluous(incarnation, is_heard=False):
            self._scope.spawn(f"{incarnation}/unused", self._await_use(incarnation))

    def _question(self, incarnation: Incarnation) -> Question | None:
        return self._liveness.question(incarnation, is_heard=self._is_heard(incarnation))

    async def _attend_later(self, incarnation: Incarnation) -> None:
        """Give a TaskManager of the store time to register, then look at it."""
        await asyncio.sleep(DIAL_PATIENCE)
        self._attend(incarnation)
        await asyncio.sleep(self._timeout)
        await self._await_use(incarnation)

    async def _await_use(self, incarnation: Incarnation) -> None:
        """Try to remove the TaskManager until it is used, heard of, or removed."""
        while self._liveness.is_superfluous(incarnation, is_heard=self._is_heard(incarnation)):
            await self._remove_unused(self._liveness.process(incarnation))
            await asyncio.sleep(self._timeout)

    async def _remove_unused(self, process: GuardedProcess) -> None:
        """Remove a TaskManager, unless its guard says that it lives: then it is about to register, or logs why it
        cannot.
        """
        address, incarnation, boot_id = process.guard_address, process.incarnation, process.boot_id
        try:
            async with self._dials:
                if await self._guards.is_guard_of(address, incarnation, boot_id):
                    return
            if not self._liveness.is_superfluous(incarnation, is_heard=self._is_heard(incarnation)):
                return
            await self._stored.remove_unused(incarnation)
        except RetryableError as error:
            logger.warning("%s, which no leader has used, is not removed yet: %s", described(process), error)
        else:
            logger.info(
                "%s does not answer, and no leader has used it: its registration is removed", described(process)
            )

    def _attend(self, incarnation: Incarnation) -> None:
        if self._scope is not None and incarnation not in self._attended and self._question(incarnation) is not None:
            self._attended.add(incarnation)
            self._scope.spawn(incarnation, self._ask(incarnation))

    async def _ask(self, incarnation: Incarnation) -> None:
        """Ask the guard of the TaskManager, until there is nothing to ask any more."""
        attempt = 0
        while (question := self._question(incarnation)) is not None:
            process = self._liveness.process(incarnation)
            try:
                async with self._dials:
                    is_answered = await self._answer(question, process)
            except RetryableError as error:
                logger.warning("the store does not take what is found out about %s: %s", described(process), error)
                is_answered = False
            if not is_answered:
                await asyncio.sleep(DIAL_POLICY.delay(attempt, self._entropy))
                attempt += 1
        self._attended.discard(incarnation)

    async def _answer(self, question: Question, process: GuardedProcess) -> bool:
        """True if the guard has answered the question with yes, and that is durable."""
        address, incarnation, boot_id = process.guard_address, process.incarnation, process.boot_id
        match question:
            case Question.IS_IT_THERE:
                is_reached = await self._guards.is_guard_of(address, incarnation, boot_id)
                # A TaskManager that has ended meanwhile is not going to be used.
                if self._question(incarnation) is question:
                    await self._note(process, is_reached=is_reached)
                return is_reached
            case Question.IS_IT_DEAD:
                is_dead = await self._guards.prove_death(address, incarnation, boot_id)
                if not is_dead or self._question(incarnation) is not question:
                    return False
                await self._stored.remove_dead(incarnation)
                self._liveness.died(incarnation)
                logger.warning("%s is dead: so says its guard at %s", described(process), address)
                self._died(incarnation, f"{described(process)}: its process died")
                return True
            case _:
                assert_never(question)

    async def _note(self, process: GuardedProcess, *, is_reached: bool) -> None:
        incarnation = process.incarnation
        was_used = self._liveness.is_used(incarnation)
        if was_used and not is_reached:
            return
        await self._stored.note_guard(incarnation, is_reached=is_reached)
        self._liveness.looked_for(incarnation, is_reached=is_reached)
        if not is_reached:
            logger.warning(
                "the guard of %s is not reached at %s (yet): until it is, its end is found by timeouts only",
                described(process),
                process.guard_address,
            )
        if not was_used:
            self._usable(incarnation)
