"""One question to many: so many are asked at once, one deadline holds for all, and who is silent is told."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass
from typing import Generic, TypeVar

from runtime.common.errors import FlinklikeError, UnavailableError

K = TypeVar("K")
A = TypeVar("A")


@dataclass(frozen=True, slots=True)
class Answers(Generic[K, A]):
    """Both in the order in which they were asked. `failures`: why there is no answer."""

    found: dict[K, A]
    failures: dict[K, FlinklikeError]


async def ask_all(
    whom: Iterable[K], ask: Callable[[K], Awaitable[A]], *, turns: asyncio.Semaphore, seconds: float
) -> Answers[K, A]:
    """Ask everybody, as many at once as `turns` allows, and return after `seconds` at the latest.

    A FlinklikeError of `ask` is a failure of that one; who has not answered by then, or had no turn, has an
    UnavailableError. Any other error ends the questions and passes, in an ExceptionGroup. Callers that share `turns`
    ask so many at once together.
    """
    keys = list(dict.fromkeys(whom))
    found: dict[K, A] = {}
    failures: dict[K, FlinklikeError] = {}
    due = asyncio.get_running_loop().time() + seconds

    async def put(key: K) -> None:
        deadline = asyncio.timeout_at(due)
        try:
            async with deadline, turns:
                found[key] = await ask(key)
        except FlinklikeError as error:
            failures[key] = error
        except TimeoutError as error:
            if not deadline.expired():
                raise
            failures[key] = UnavailableError(f"no answer in {seconds:g} s")
            failures[key].__cause__ = error

    async with asyncio.TaskGroup() as group:
        for key in keys:
            group.create_task(put(key), name=f"ask {key}")
    return Answers(
        {key: found[key] for key in keys if key in found}, {key: failures[key] for key in keys if key in failures}
    )
