"""Calls that wait until the core answers them, by the number that their events carry."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any, TypeVar

from runtime.common.errors import FlinklikeError

AnswerT = TypeVar("AnswerT")


class WaitingCalls:
    """The calls of one term. The answer of a call that does not wait any more goes nowhere."""

    def __init__(self) -> None:
        self._waiting: dict[int, asyncio.Future[Any]] = {}
        self._last = 0

    async def ask(self, post: Callable[[int], None], answer_type: type[AnswerT]) -> AnswerT:
        """Post the event of a call under a new number, and return its answer. Raises what `refuse` or `fail` say."""
        self._last += 1
        number = self._last
        future: asyncio.Future[AnswerT] = asyncio.get_running_loop().create_future()
        self._waiting[number] = future
        try:
            post(number)
            answer = await future
        finally:
            del self._waiting[number]
        assert isinstance(answer, answer_type), answer
        return answer

    def answer(self, number: int, answer: object) -> None:
        """Answer one call."""
        future = self._waiting.get(number)
        if future is not None and not future.done():
            future.set_result(answer)

    def refuse(self, number: int, error: FlinklikeError) -> None:
        """Answer one call with an error."""
        future = self._waiting.get(number)
        if future is not None and not future.done():
            future.set_exception(error)

    def fail(self, error: FlinklikeError) -> None:
        """Answer all calls with an error."""
        for number in self._waiting:
            self.refuse(number, error)
