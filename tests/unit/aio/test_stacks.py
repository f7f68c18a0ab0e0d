"""Stacks name places in the code, of threads and of tasks that wait, and no values."""

from __future__ import annotations

import asyncio
import threading

import pytest

from runtime.aio.stacks import task_stacks, thread_stacks

SECRET = "hunter2"


def waits_deep(event: threading.Event, started: threading.Event, password: str) -> None:
    started.set()
    event.wait()
    assert password


def test_threads_are_shown_with_the_innermost_call_first() -> None:
    event, started = threading.Event(), threading.Event()
    thread = threading.Thread(target=waits_deep, args=(event, started, SECRET), name="a waiter", daemon=True)
    thread.start()
    try:
        assert started.wait(60)
        found = dict(thread_stacks())
    finally:
        event.set()
        thread.join()
    text = found["a waiter"]
    assert text.startswith(f'"a waiter" Id={thread.ident} nid={thread.native_id} daemon\n\tat ')
    places = [line.removeprefix("\tat ") for line in text.splitlines()[1:]]
    assert any("waits_deep(test_stacks.py:" in place for place in places)
    assert "threading" in places[0]
    assert places[-1].startswith("threading.Thread._bootstrap(")
    assert SECRET not in text
    assert "MainThread" in found


async def inner(future: asyncio.Future[str]) -> str:
    return await future


async def outer(future: asyncio.Future[str], password: str) -> str:
    return await inner(future) + password


@pytest.mark.asyncio
async def test_tasks_are_shown_with_what_they_await_in_the_end() -> None:
    future: asyncio.Future[str] = asyncio.get_running_loop().create_future()
    async with asyncio.TaskGroup() as group:
        _ = group.create_task(outer(future, SECRET), name="job x")
        await asyncio.sleep(0)
        text = {name: text async for name, text in task_stacks()}["task job x"]
        future.set_result("")
    head, first, second = text.splitlines()
    assert head == '"task job x" waits for a FutureIter'
    assert ".inner(test_stacks.py:" in first
    assert ".outer(test_stacks.py:" in second
    assert SECRET not in text


@pytest.mark.asyncio
async def test_the_task_that_asks_is_left_out_and_thousands_of_others_let_the_loop_go_on() -> None:
    event, turns = asyncio.Event(), 0

    async def counts() -> None:
        nonlocal turns
        while not event.is_set():
            turns += 1
            await asyncio.sleep(0)

    async with asyncio.TaskGroup() as group:
        for number in range(2000):
            _ = group.create_task(event.wait(), name=f"waits {number}")
        _ = group.create_task(counts())
        await asyncio.sleep(0)
        before, own = turns, asyncio.current_task()
        names = [name async for name, _ in task_stacks()]
        assert turns - before >= 5
        event.set()
    assert own is not None
    assert sum(name.startswith("task waits ") for name in names) == 2000
    assert f"task {own.get_name()}" not in names
