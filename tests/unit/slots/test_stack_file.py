"""The file into which a slot process writes its stacks, whatever user code does with it."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from runtime.taskexecutor.slot_protocol.template_config import STACKS_SIGNAL
from runtime.taskexecutor.slots.stacks import StackFile, stacks_of, takes_signal

pytestmark = pytest.mark.asyncio

PROGRAM = """
import faulthandler, os, signal, sys, time
stacks = int(sys.argv[1])
faulthandler.register(signal.SIGRTMIN + 7, file=stacks)
{more}
def in_user_code():
    print("begun", flush=True)
    sys.stdin.read()
in_user_code()
"""


@contextmanager
def slot(more: str = "") -> Iterator[tuple[StackFile, subprocess.Popen[bytes]]]:
    """A process that has the handler of a slot process, and then does `more`."""
    descriptor = os.memfd_create("stacks")
    command = [sys.executable, "-c", PROGRAM.format(more=more), str(descriptor)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, pass_fds=(descriptor,)) as process:
        file = StackFile(descriptor)
        try:
            assert process.stdout is not None
            assert process.stdout.readline() == b"begun\n"
            yield file, process
        finally:
            file.close()
            process.kill()


async def read(file: StackFile, process: subprocess.Popen[bytes]) -> str:
    return await file.read(process.pid, lambda: process.send_signal(STACKS_SIGNAL))


async def test_each_question_has_the_stacks_of_now() -> None:
    with slot() as (file, process):
        told = [await read(file, process) for _ in range(3)]
        assert process.poll() is None
    for text in told:
        assert text.count("in in_user_code") == 1
        assert text.startswith("Current thread 0x")


async def test_questions_at_once_do_not_mix() -> None:
    with slot() as (file, process):
        async with asyncio.TaskGroup() as group:
            asked = [group.create_task(read(file, process)) for _ in range(5)]
        assert [one.result().count("in in_user_code") for one in asked] == [1] * 5, [one.result() for one in asked]


@pytest.mark.parametrize(
    ("more", "says"),
    [
        (
            "signal.signal(signal.SIGRTMIN + 7, lambda *_: os.write(stacks, b'y' * (8 << 20)))",
            "y",
        ),
        ("os.dup2(os.open('/etc/passwd', os.O_RDONLY), stacks)", "it has written nothing in 2 s"),
        ("os.close(stacks)", "it has written nothing in 2 s"),
        ("signal.signal(signal.SIGRTMIN + 7, signal.SIG_DFL)", "it takes no signal"),
        ("signal.signal(signal.SIGRTMIN + 7, signal.SIG_IGN)", "it takes no signal"),
        ("os.ftruncate(stacks, 1 << 40)\nos.lseek(stacks, 1 << 39, 0)", "Current thread"),
    ],
)
async def test_what_user_code_does_with_it_ends_nothing_and_is_bounded(more: str, says: str) -> None:
    with slot(more) as (file, process):
        text = await read(file, process)
        assert text.startswith(says)
        assert len(text) <= 256 * 1024
        assert "root:" not in text
        assert process.poll() is None


async def test_one_that_has_ended_says_so() -> None:
    with slot() as (file, process):
        process.kill()
        process.wait()
        assert not takes_signal(process.pid)
        assert "takes no signal" in await read(file, process)
        file.close()
        file.close()


async def test_the_end_while_it_is_asked_is_told() -> None:
    with slot("signal.signal(signal.SIGRTMIN + 7, lambda *_: None)") as (file, process):
        async with asyncio.TaskGroup() as group:
            asked = group.create_task(read(file, process))
            await asyncio.sleep(0.1)
            process.send_signal(signal.SIGKILL)
            file.close()
        assert asked.result() == "it has ended"


class Told:
    """A slot process that says one text."""

    def __init__(self, text: str) -> None:
        self.pid, self._text = 7, text

    async def stacks(self) -> str:
        """The text."""
        return self._text


async def test_threads_are_told_apart_by_name() -> None:
    text = (
        "Thread 0x01 (most recent call first):\n  File x\n\nCurrent thread 0x02 (most recent call first):\n  File y\n"
    )
    found = [one async for one in stacks_of([("slot 0", Told(text)), ("slot 1", Told("it ends"))])]
    assert [name for name, _ in found] == [
        "slot 0 (pid 7) Thread 0x01",
        "slot 0 (pid 7) Current thread 0x02",
        "slot 1 (pid 7)",
    ]
    assert found[2][1] == "it ends\n"
