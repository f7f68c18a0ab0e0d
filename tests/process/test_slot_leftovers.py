"""Nothing that a task has started runs when its end is told, however it was started (R29)."""

from __future__ import annotations

import asyncio
import json
import os
import signal
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio

from runtime.common.states import ExecutionState
from runtime.system.linux import children_of, is_alive
from tests.kit.spark.slot_work import SlotBench, slot_bench

pytestmark = [pytest.mark.process, pytest.mark.asyncio(loop_scope="module")]


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def bench(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[SlotBench]:
    async with slot_bench(tmp_path_factory.mktemp("slots"), slots=2) as started:
        yield started


class Writer:
    """Of user code: each write names its writer."""

    def __init__(self, path: str) -> None:
        self.path = path

    def put(self) -> None:
        import os

        descriptor = os.open(self.path, os.O_WRONLY | os.O_APPEND | os.O_CREAT)
        os.write(descriptor, f"{os.getpid()}\n".encode())
        os.close(descriptor)

    def loop(self) -> None:
        import time

        while True:
            self.put()
            time.sleep(0.001)

    def wait(self, times: int = 1) -> None:
        import pathlib
        import time

        path = pathlib.Path(self.path)
        while not path.exists() or path.read_text().count("\n") < times:
            time.sleep(0.001)

    def daemon(self) -> None:
        import os

        if os.fork() == 0:
            os.setsid()
            if os.fork() == 0:
                self.loop()
            os._exit(0)
        os.wait()


def interval_timer(writer: Writer) -> None:
    import signal

    signal.signal(signal.SIGALRM, lambda *_: writer.put())
    signal.setitimer(signal.ITIMER_REAL, 0.001, 0.001)


def alarm(writer: Writer) -> None:
    """Far away: its process has to end all the same."""
    import signal

    signal.alarm(1000)
    writer.put()


def posix_timer(writer: Writer) -> None:
    import ctypes
    import signal

    signal.signal(signal.SIGALRM, lambda *_: writer.put())
    libc = ctypes.CDLL(None, use_errno=True)
    timer = ctypes.c_void_p()
    assert libc.timer_create(1, None, ctypes.byref(timer)) == 0
    libc.timer_settime(timer, 0, (ctypes.c_long * 4)(0, 1_000_000, 0, 1_000_000), None)


def handler(writer: Writer) -> None:
    import signal

    signal.signal(signal.SIGUSR1, lambda *_: writer.put())
    writer.put()


def thread(writer: Writer) -> None:
    import threading

    threading.Thread(target=writer.loop, daemon=True).start()


def low_level_thread(writer: Writer) -> None:
    import _thread

    _thread.start_new_thread(writer.loop, ())


def native_thread(writer: Writer) -> None:
    import ctypes
    import sys

    called = ctypes.CFUNCTYPE(ctypes.c_void_p, ctypes.c_void_p)(lambda _: writer.loop())
    vars(sys)["kept_for_test"] = called
    assert ctypes.CDLL(None).pthread_create(ctypes.byref(ctypes.c_ulong()), None, called, None) == 0


def child(writer: Writer) -> None:
    import os

    if os.fork() == 0:
        writer.loop()


def daemon_of_a_thread(writer: Writer) -> None:
    import threading

    forking = threading.Thread(target=writer.daemon)
    forking.start()
    forking.join()


CHAIN = """
import os, sys
file = os.open(sys.argv[1], os.O_WRONLY | os.O_APPEND | os.O_CREAT)
while True:
    os.write(file, b"%d\\n" % os.getpid())
    if os.fork():
        os._exit(0)
"""


def begin_chain(writer: Writer) -> None:
    """Each of its processes forks the next one and ends."""
    import os
    import sys

    text = CHAIN
    if os.fork() == 0:
        os.setsid()
        os.execve(sys.executable, [sys.executable, "-S", "-c", text, writer.path], {})


def chain(writer: Writer) -> None:
    """So many have ended that a look at each finds the last one ended as well."""
    begin_chain(writer)
    writer.wait(300)


def without_a_subreaper(writer: Writer) -> None:
    import ctypes

    ctypes.CDLL(None).prctl(36, 0, 0, 0, 0)
    writer.daemon()


def without_a_subreaper_for_a_while(writer: Writer) -> None:
    import ctypes

    ctypes.CDLL(None).prctl(36, 0, 0, 0, 0)
    writer.daemon()
    writer.wait()
    ctypes.CDLL(None).prctl(36, 1, 0, 0, 0)


def chain_without_a_subreaper(writer: Writer) -> None:
    import ctypes

    ctypes.CDLL(None).prctl(36, 0, 0, 0, 0)
    begin_chain(writer)


def sibling(writer: Writer) -> None:
    import ctypes
    import platform

    clone = {"x86_64": 56, "aarch64": 220}[platform.machine()]
    if ctypes.CDLL(None).syscall(clone, 0x8000 | 17, 0, 0, 0, 0) == 0:  # CLONE_PARENT
        writer.loop()


WAYS = [
    interval_timer,
    alarm,
    posix_timer,
    handler,
    thread,
    low_level_thread,
    native_thread,
    child,
    daemon_of_a_thread,
    chain,
    without_a_subreaper,
    without_a_subreaper_for_a_while,
    chain_without_a_subreaper,
    sibling,
]


@pytest.mark.parametrize("way", WAYS, ids=lambda way: way.__name__)
async def test_nothing_runs_when_the_end_is_told(
    bench: SlotBench, tmp_path: Path, way: Callable[[Writer], None]
) -> None:
    path = tmp_path / "written"

    def run(ctx: Any) -> int:
        import os

        writer = Writer(ctx.params["path"])
        way(writer)
        writer.wait()
        return os.getpid()

    report = await bench.run(bench.work(run, params={"path": str(path)}))
    written = path.read_text()
    alive = [pid for pid in sorted(set(map(int, written.split()))) if is_alive(pid)]
    assert report.state is ExecutionState.FINISHED, report.failure
    assert alive == []
    assert not is_alive(int(report.value)), "the process is not used again"
    assert path.read_text() == written


async def test_the_log_names_what_was_left(bench: SlotBench) -> None:
    def run(_ctx: Any) -> None:
        import signal
        import subprocess

        subprocess.Popen(["sleep", "1000"])
        signal.alarm(1000)

    report = await bench.run(run)
    assert report.state is ExecutionState.FINISHED
    log = bench.log(report, "stderr")
    assert log.startswith("left when the task had returned, and ended with its process: timer ITIMER_REAL, process ")
    assert log.endswith(" (sleep)\n")


async def test_helpers_that_python_keeps_end_with_the_process_and_are_no_slip(bench: SlotBench) -> None:
    def run(_ctx: Any) -> list[int]:
        import multiprocessing
        import os
        from multiprocessing import forkserver, resource_tracker

        worker = multiprocessing.get_context("forkserver").Process(target=os.getpid)
        worker.start()
        worker.join()
        return [os.getpid(), forkserver._forkserver._forkserver_pid, resource_tracker._resource_tracker._pid]  # type: ignore[attr-defined]

    report = await bench.run(run)
    assert report.state is ExecutionState.FINISHED, report.failure
    assert bench.log(report, "stderr") == ""
    pids = json.loads(report.value)
    assert len(set(pids)) == 3
    assert [pid for pid in pids if is_alive(pid)] == [], "nothing of the task runs when its end is told"


async def test_each_thread_is_named_once(bench: SlotBench) -> None:
    def run(_ctx: Any) -> None:
        import threading

        threading.Thread(target=threading.Event().wait, args=[1000], name="ticks", daemon=True).start()

    log = bench.log(await bench.run(run), "stderr")
    assert log == "left when the task had returned, and ended with its process: thread ticks\n"


async def test_what_has_ended_or_rests_costs_no_process(bench: SlotBench) -> None:
    def tidy(_ctx: Any) -> int:
        import os
        import signal
        import subprocess
        import threading

        ended = threading.Thread(target=lambda: None)
        ended.start()
        ended.join()
        subprocess.run(["true"], check=True)
        last = signal.signal(signal.SIGALRM, lambda *_: None)
        signal.setitimer(signal.ITIMER_REAL, 1000)
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, last)
        return os.getpid()

    def uses_a_pool(_ctx: Any) -> int:
        """Arrow keeps its threads, which wait for work."""
        import os
        import pathlib

        import pyarrow as pa

        pa.table({"a": [1], "b": [2]}).to_pandas()
        return os.getpid() if len(list(pathlib.Path("/proc/self/task").iterdir())) > 1 else 0

    reports = [await bench.run(bench.work(code)) for code in (tidy, uses_a_pool, tidy, uses_a_pool)]
    assert [bench.log(report, "stderr") for report in reports] == [""] * 4
    pids = [report.value for report in reports]
    assert len(set(pids)) == 1, "one process"


async def test_a_slot_process_that_has_ended_itself_is_told_as_that(bench: SlotBench) -> None:
    def pid(_ctx: Any) -> int:
        return os.getpid()

    template = bench.pool._templates.current
    ended = await bench.value(bench.work(pid))
    assert await template.strays(ended) == ""
    os.kill(ended, signal.SIGKILL)
    while ended in children_of(template.pid):
        await asyncio.sleep(0.001)
    assert await template.strays(ended) == f"slot process {ended} has ended, and what it has left ends now"


async def test_a_slot_process_that_is_being_forked_is_no_stray(bench: SlotBench) -> None:
    """Each end of a task on one slot comes while the other one's process may be replaced."""

    def pid(_ctx: Any) -> int:
        return os.getpid()

    async def others() -> None:
        for _ in range(30):
            await bench.run(bench.work(lambda ctx: 1 / 0), slot=1)

    running = asyncio.create_task(others())
    pids = set()
    while not running.done():
        pids.add(await bench.value(bench.work(pid)))
    await running
    assert len(pids) == 1
