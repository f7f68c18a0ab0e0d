"""What a trigger asks of Airflow, and does when it is cancelled, is not interrupted."""

from __future__ import annotations

import asyncio

import pytest

from airflow_flinklike.hooks.questions import answered, despite_cancellations

pytestmark = [pytest.mark.asyncio]


class Answer:
    """What comes when the test says so."""

    def __init__(self) -> None:
        self.begun, self.gate = asyncio.Event(), asyncio.Event()
        self.ended: list[str] = []

    async def come(self, outcome: str | Exception = "state") -> str:
        self.begun.set()
        try:
            await self.gate.wait()
        except asyncio.CancelledError:
            self.ended.append("cancelled")
            raise
        self.ended.append("whole")
        if isinstance(outcome, Exception):
            raise outcome
        return outcome


async def test_an_answer_and_an_error_are_those_of_the_question() -> None:
    answer = Answer()
    answer.gate.set()
    assert await answered(answer.come()) == "state"
    with pytest.raises(LookupError, match="no such run"):
        await answered(answer.come(LookupError("no such run")), seconds=5)


@pytest.mark.parametrize("outcome", ["state", LookupError("nobody hears of it")])
async def test_a_question_goes_on_when_its_caller_is_cancelled(outcome: str | Exception) -> None:
    answer = Answer()
    caller = asyncio.create_task(answered(answer.come(outcome)))
    await answer.begun.wait()
    caller.cancel()
    with pytest.raises(asyncio.CancelledError):
        await caller
    answer.gate.set()
    while not answer.ended:
        await asyncio.sleep(0)
    assert answer.ended == ["whole"]


async def test_a_question_goes_on_when_nobody_waits_for_longer() -> None:
    answer = Answer()
    with pytest.raises(TimeoutError, match=r"no answer within 0\.01 s"):
        await answered(answer.come(), seconds=0.01)
    answer.gate.set()
    while not answer.ended:
        await asyncio.sleep(0)
    assert answer.ended == ["whole"]


async def test_work_is_done_however_often_its_caller_is_cancelled() -> None:
    answer = Answer()

    async def work() -> None:
        await answer.come()

    caller = asyncio.create_task(despite_cancellations(work()))
    await answer.begun.wait()
    for _ in range(3):
        caller.cancel()
        await asyncio.sleep(0)
    assert not caller.done()
    answer.gate.set()
    await caller
    assert answer.ended == ["whole"]


async def test_an_error_of_the_work_is_the_callers() -> None:
    async def work() -> None:
        message = "as asked"
        raise LookupError(message)

    with pytest.raises(LookupError, match="as asked"):
        await despite_cancellations(work())
