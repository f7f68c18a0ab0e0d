"""One question to many: a bound, one deadline, and what is known of those that do not answer."""

from __future__ import annotations

import asyncio

import pytest

from runtime.aio.asking import ask_all
from runtime.common.errors import NotFoundError, UnavailableError

pytestmark = pytest.mark.asyncio


async def test_answers_and_failures_keep_the_order_of_the_question() -> None:
    async def ask(key: int) -> int:
        await asyncio.sleep(0.01 / key)
        if key % 2:
            raise NotFoundError(f"no {key}")
        return key * 10

    told = await ask_all([4, 3, 2, 1, 4], ask, turns=asyncio.Semaphore(9), seconds=60)
    assert list(told.found.items()) == [(4, 40), (2, 20)]
    assert [(key, str(error)) for key, error in told.failures.items()] == [(3, "no 3"), (1, "no 1")]


async def test_one_deadline_holds_for_those_that_have_no_turn_too() -> None:
    begun: list[int] = []

    async def ask(key: int) -> None:
        begun.append(key)
        await asyncio.Event().wait()

    told = await ask_all(range(5), ask, turns=asyncio.Semaphore(2), seconds=0.05)
    assert begun == [0, 1]
    assert list(told.failures) == [0, 1, 2, 3, 4]
    assert {type(error) for error in told.failures.values()} == {UnavailableError}
    assert str(told.failures[4]) == "no answer in 0.05 s"


@pytest.mark.parametrize("error", [ValueError("a mistake"), TimeoutError("of its own")])
async def test_a_mistake_is_no_answer_and_passes(error: Exception) -> None:
    async def ask(key: int) -> None:
        if key == 1:
            raise error
        await asyncio.Event().wait()

    with pytest.raises(ExceptionGroup) as caught:
        await ask_all([0, 1], ask, turns=asyncio.Semaphore(2), seconds=60)
    assert caught.group_contains(type(error))
