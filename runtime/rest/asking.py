"""How routes ask, and order, many processes: at once and with one deadline, so that a frozen one holds up no other."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable
from typing import TypeVar

from runtime.aio.asking import Answers, ask_all
from runtime.rest.context import RestContext

K = TypeVar("K")
A = TypeVar("A")

AT_ONCE = 64


async def ask_processes(context: RestContext, whom: Iterable[K], ask: Callable[[K], Awaitable[A]]) -> Answers[K, A]:
    """The answers that come within `rpc.timeout`, and why others do not. Not for orders that must not get lost:
    coordinators repeat theirs until they are confirmed.
    """
    return await ask_all(whom, ask, turns=asyncio.Semaphore(AT_ONCE), seconds=context.rpc_timeout)
