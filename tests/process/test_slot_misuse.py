"""What user code may do to the socket of its slot: the task is told so, and no other task notices (R43)."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from typing import Any

import pytest
import pytest_asyncio

from runtime.common.states import ExecutionState
from tests.kit.spark.slot_work import SlotBench, slot_bench

pytestmark = [pytest.mark.process, pytest.mark.asyncio(loop_scope="module")]


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def bench(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[SlotBench]:
    async with slot_bench(tmp_path_factory.mktemp("slots")) as started:
        yield started


async def failure_of(bench: SlotBench, work: Any) -> Any:
    report = await bench.run(work)
    assert report.state is ExecutionState.FAILED, report
    assert report.failure is not None
    assert report.value == b""
    return report.failure


def talk(what: str) -> Callable[..., None]:
    """What user code may write to the socket of its slot."""

    def say(ctx: Any) -> None:
        import json
        import os
        import socket
        import struct
        import time

        found = -1
        for descriptor in range(3, 256):
            try:
                with socket.socket(fileno=os.dup(descriptor)) as one:
                    if one.family == socket.AF_UNIX and one.type == socket.SOCK_STREAM:
                        found = descriptor
            except OSError:
                continue
        progress = json.dumps({"fraction": 0.5, "text": "x"}).encode()
        words = {
            "garbage": b"\xff" * 1000,
            "large": struct.pack("!IB", 60_000_000, 16),
            "deep": struct.pack("!IB", 60_000, 15) + b"[" * 60_000,
            "no object": struct.pack("!IB", 2, 15) + b"[]",
            "no number": struct.pack("!IB", 27, 15) + b'{"fraction":NaN,"text":"x"}',
            "no outcome": struct.pack("!IB", 2, 16) + b"{}",
            "not for us": struct.pack("!IB", 0, 3),
            "flood": (struct.pack("!IB", len(progress), 15) + progress) * 20_000,
        }
        if what == "closed":
            os.closerange(3, 256)
        else:
            os.write(found, words[what])
        time.sleep(30)

    return say


@pytest.mark.parametrize(
    "what",
    ["garbage", "large", "deep", "no object", "no number", "no outcome", "not for us", "flood", "closed"],
)
async def test_who_misuses_the_socket_of_its_slot_is_told_so(bench: SlotBench, what: str) -> None:
    """R43: the kernel's memory killer is not blamed, and no other task notices."""
    failure = await failure_of(bench, talk(what))
    assert failure.class_name == "SlotProcessExitError", failure
    assert failure.message.startswith("killed by the TaskManager: over the connection")
    assert failure.kind == "USER"
    assert await bench.value(lambda ctx: 1) == 1


async def test_a_kill_is_not_taken_for_misuse(bench: SlotBench) -> None:
    def end(ctx: Any) -> None:
        import ctypes
        import os

        ctypes.CDLL(None).kill(os.getpid(), 9)

    for _ in range(5):
        assert "out-of-memory killer" in (await failure_of(bench, end)).message
