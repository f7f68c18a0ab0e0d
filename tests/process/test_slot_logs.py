"""Everything a task says is in its own files, in order and bounded, and can be read while it runs."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio

from runtime.gateways.task_executor import AttemptLogRequest, LogStream
from runtime.taskexecutor.attempt_logs.log_files import attempt_directory, read_log
from tests.kit.spark.slot_work import SlotBench, slot_bench

pytestmark = [pytest.mark.process, pytest.mark.asyncio(loop_scope="module")]


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def bench(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[SlotBench]:
    async with slot_bench(tmp_path_factory.mktemp("slots")) as started:
        yield started


async def test_output_of_python_c_and_children_in_order(bench: SlotBench) -> None:
    def speaks(ctx: Any) -> None:
        import ctypes
        import os
        import subprocess
        import sys

        libc = ctypes.CDLL(None)
        print("1 python")
        libc.puts(b"2 native")
        subprocess.run(["echo", "3 child"], check=True)
        os.write(1, b"4 descriptor\n")
        print("5 python")
        print("error", file=sys.stderr)
        subprocess.run(["sh", "-c", "echo child error >&2"], check=True)

    report = await bench.run(speaks)
    assert bench.log(report) == "1 python\n2 native\n3 child\n4 descriptor\n5 python\n"
    assert bench.log(report, "stderr") == "error\nchild error\n"


async def test_logging_and_warnings_go_to_the_log(bench: SlotBench) -> None:
    def logs(ctx: Any) -> None:
        import logging
        import warnings

        ctx.logger.info("of the task")
        logging.getLogger("library").warning("of a %s", "library")
        logging.getLogger("library").debug("not this")
        logging.getLogger("py4j.clientserver").info("Received command c on object id p0")
        of_py4j = logging.makeLogRecord(
            {"levelno": logging.INFO, "name": "root", "pathname": "/lib/py4j/java_gateway.py"}
        )
        logging.getLogger().handle(of_py4j)
        warnings.warn("beware", stacklevel=1)

    lines = bench.log(await bench.run(logs), "log").splitlines()
    assert [line.split(" - ", 1)[-1] for line in lines[:2]] == ["of the task", "of a library"]
    assert " INFO  task.work - " in lines[0]
    assert "beware" in "\n".join(lines[2:])
    assert not any("py4j" in line or "root" in line for line in lines)


async def test_attempts_do_not_mix_and_handlers_do_not_pile_up(bench: SlotBench) -> None:
    def logs(ctx: Any) -> None:
        import logging
        import sys

        logging.basicConfig(force=True)  # what scripts do
        logging.getLogger().info("once")
        sys.stdout = open("/dev/null", "w")  # noqa: PTH123, SIM115 - user code does such things

    first, second = await bench.run(logs), await bench.run(lambda ctx: print("second"))
    assert bench.log(first) == ""
    assert "once" in bench.log(first, "stderr") + bench.log(first, "log")
    assert bench.log(second) == "second\n"


async def test_a_script_that_configures_logging_gets_what_it_asks_for(bench: SlotBench, tmp_path: Path) -> None:
    mine = tmp_path / "mine.log"

    def logs(ctx: Any) -> None:
        import logging
        import sys

        logging.getLogger("mine").info("before")
        handlers: list[logging.Handler] = [logging.StreamHandler(sys.stdout), logging.FileHandler(mine)]
        logging.basicConfig(level=logging.DEBUG, format="MINE %(levelname)s %(message)s", handlers=handlers)
        logging.getLogger("mine").debug("first")
        logging.basicConfig(level=logging.ERROR, filename="/nowhere/at/all")  # without effect, as it is everywhere
        logging.info("second")  # noqa: LOG015 - what scripts do

    report, after = await bench.run(logs), await bench.run(lambda ctx: ctx.logger.info("of the next one"))
    assert bench.log(report) == mine.read_text() == "MINE DEBUG first\nMINE INFO second\n"
    assert bench.log(report, "log").splitlines()[0].endswith("before")
    assert "first" not in bench.log(report, "log")
    assert "of the next one" in bench.log(after, "log")


async def test_the_last_words_of_a_crash_are_kept(bench: SlotBench) -> None:
    def dies(ctx: Any) -> None:
        import os

        print("last words")
        os._exit(1)

    report = await bench.run(dies)
    assert bench.log(report) == "last words\n"


def open_door(door: str) -> None:
    Path(door).touch()


async def test_a_log_is_read_while_it_grows(bench: SlotBench, tmp_path: Path) -> None:
    door = str(tmp_path / "door")

    def speaks(ctx: Any) -> None:
        import pathlib
        import time

        print("before")
        while not pathlib.Path(door).exists():
            time.sleep(0.005)
        print("after")

    work = bench.work(speaks)
    _, running = await bench.started(work)
    root = work.log_directory

    def read(offset: int) -> tuple[bytes, int]:
        answer = read_log(root, AttemptLogRequest(work.task.attempt_id, LogStream.STDOUT, offset, 1000))
        return answer.data, answer.next_offset

    log = attempt_directory(root, work.task.attempt_id) / "stdout"
    while not log.exists() or not read(0)[0].endswith(b"\n"):
        await asyncio.sleep(0.005)  # print writes a text and its line's end apart where nothing buffers
    assert read(0) == (b"before\n", 7)
    assert read(7) == (b"", 7)
    open_door(door)
    await running
    assert read(7) == (b"after\n", 13)


async def test_a_log_above_its_bound_loses_its_head(tmp_path: Path) -> None:
    def babbles(ctx: Any) -> None:
        import time

        for n in range(40_000):
            print(f"line {n:06d}")
        ctx.report_progress(1.0)
        time.sleep(0.4)
        print("the end")

    async with slot_bench(tmp_path, log_bytes_max=64 * 1024, sample_interval=0.02) as bench:
        work = bench.work(babbles)
        report = await bench.run(work)
        path = attempt_directory(work.log_directory, report.attempt_id) / "stdout"
        assert path.stat().st_blocks * 512 < 128 * 1024
        assert path.stat().st_size == 40_000 * 12 + 8
        head = read_log(work.log_directory, AttemptLogRequest(report.attempt_id, LogStream.STDOUT, 0, 4096))
        assert head.is_truncated
        assert head.data.startswith(b"line 0")
        assert head.data.startswith(b"line %06d\n" % (head.dropped_bytes // 12)), "so much is gone"
        assert 0 < head.dropped_bytes == head.next_offset - len(head.data)
        tail = read_log(work.log_directory, AttemptLogRequest(report.attempt_id, LogStream.STDOUT, -8, 4096))
        assert tail.data == b"the end\n"
