"""Whatever user code does to its process: the attempt ends with a reason, everybody else goes on."""

from __future__ import annotations

import asyncio
import json
import os
import platform
import re
import signal
import threading
import time
import uuid
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio

from runtime.common.ids import JobId
from runtime.common.states import ExecutionState
from runtime.jobgraph.graph import PickledCode
from runtime.system.linux import children_of
from runtime.taskexecutor.containment.shared_memory import HeldFiles, memory_devices
from tests.kit.spark.slot_work import RecordingListener, SlotBench, operator, script, slot_bench

pytestmark = [pytest.mark.process, pytest.mark.asyncio(loop_scope="module")]

FINISHED, FAILED, CANCELED = ExecutionState.FINISHED, ExecutionState.FAILED, ExecutionState.CANCELED


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def bench(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[SlotBench]:
    async with slot_bench(tmp_path_factory.mktemp("slots"), slots=2) as started:
        yield started


def is_gone(pid: int) -> bool:
    return not Path(f"/proc/{pid}").exists()


def text_of(path: str) -> str:
    return Path(path).read_text()


def open_descriptors() -> int:
    return sum(1 for _ in Path("/proc/self/fd").iterdir())


async def failure_of(bench: SlotBench, work: Any) -> Any:
    report = await bench.run(work)
    assert report.state is FAILED, report
    assert report.failure is not None
    assert report.value == b""
    return report.failure


async def test_a_value_comes_back_as_json(bench: SlotBench) -> None:
    assert await bench.value(lambda ctx: {"n": [1, 2.5, "ü", None, True]}) == {"n": [1, 2.5, "ü", None, True]}
    report = await bench.run(lambda ctx: None)
    assert (report.state, report.value) == (FINISHED, b"")


async def test_the_context_tells_who_runs(bench: SlotBench) -> None:
    def who(ctx: Any) -> Any:
        names = [ctx.job_id, ctx.job_name, ctx.vertex_name, ctx.operator_name]
        numbers = [ctx.subtask_index, ctx.parallelism, ctx.attempt_number]
        return [*names, *numbers, list(ctx.splits), dict(ctx.params), dict(ctx.secrets), ctx.cancelled]

    work = bench.work(who, subtask=3, parallelism=5, splits=["x", {"day": 1}], params={"p": 7}, vertex="v")
    assert await bench.value(work) == [
        work.job.job_id, "test job", "v", "work", 3, 5, 0, ["x", {"day": 1}], {"p": 7}, {}, False,
    ]  # fmt: skip


async def test_an_exception_keeps_class_message_and_the_users_stack(bench: SlotBench) -> None:
    def broken(ctx: Any) -> None:
        def deeper() -> None:
            raise LookupError("no such day")

        deeper()

    report = await bench.run(broken)
    assert report.failure is not None
    assert report.failure.class_name == "LookupError"
    assert re.fullmatch(r"no such day \(test_slot_isolation.py, line \d+\)", report.failure.message)
    assert "in deeper" in report.failure.stack_trace
    assert "task_runner" not in report.failure.stack_trace
    assert (report.failure.kind, report.failure.is_recoverable) == ("USER", True)
    assert "no such day" in bench.log(report, "stderr")


async def test_an_exception_that_cannot_be_printed_is_still_a_failure(bench: SlotBench) -> None:
    def broken(ctx: Any) -> None:
        class MuteError(Exception):
            def __str__(self) -> str:
                raise RuntimeError("no text")

        raise MuteError

    failure = await failure_of(bench, broken)
    assert failure.class_name.endswith("MuteError")


async def test_a_segfault_names_its_signal(bench: SlotBench) -> None:
    def segfault(ctx: Any) -> None:
        import ctypes

        ctypes.string_at(0)

    report = await bench.run(segfault)
    assert report.failure is not None
    assert "SIGSEGV" in report.failure.message
    assert report.failure.kind == "USER"
    assert "in segfault" in bench.log(report, "stderr")  # Python's stack at the crash
    assert await bench.value(lambda ctx: 1) == 1


async def test_a_copy_that_comes_back_from_user_code_is_no_slot_process(bench: SlotBench) -> None:
    def forks(ctx: Any) -> int:
        import os

        child = os.fork()
        if child:
            os.waitpid(child, 0)
        return os.getpid()

    assert not is_gone(await bench.value(forks))
    assert await bench.value(lambda ctx: 1) == 1


async def test_os_exit_names_its_code(bench: SlotBench) -> None:
    def leave(ctx: Any) -> None:
        import os

        os._exit(4)

    assert "exit code 4 (os._exit" in (await failure_of(bench, leave)).message


@pytest.mark.parametrize(("code", "message"), [(3, "sys.exit(3)"), ("no data", "no data")])
async def test_sys_exit_with_a_reason_fails(bench: SlotBench, code: object, message: str) -> None:
    def leave(ctx: Any) -> None:
        import sys

        sys.exit(code)  # type: ignore[arg-type]  # what users do

    assert message in (await failure_of(bench, leave)).message


async def test_sys_exit_zero_finishes(bench: SlotBench) -> None:
    report = await bench.run(lambda ctx: __import__("sys").exit(0))
    assert report.state is FINISHED


async def test_a_kill_from_elsewhere_is_not_called_ours(bench: SlotBench) -> None:
    failure = await failure_of(bench, lambda ctx: os.system(f"kill -KILL {os.getpid()}"))
    assert "SIGKILL, not by this TaskManager" in failure.message
    assert failure.kind == "RESOURCE"


async def test_a_result_that_is_not_json_names_the_element(bench: SlotBench) -> None:
    failure = await failure_of(bench, lambda ctx: {"rows": [1, {"when": __import__("datetime").date(2026, 1, 1)}]})
    assert "$['rows'][1]['when'] is a datetime.date" in failure.message


async def test_a_big_result_names_the_option(bench: SlotBench) -> None:
    failure = await failure_of(bench, lambda ctx: "x" * 300_000)
    assert "exchange.inline.max-size" in failure.message
    assert len(json.loads((await bench.run(lambda ctx: "x" * 200_000)).value)) == 200_000


async def test_a_missing_module_names_package_and_task_manager(bench: SlotBench) -> None:
    def imports(ctx: Any) -> None:
        import surely_not_installed.part  # type: ignore[import-not-found]  # noqa: F401

    failure = await failure_of(bench, "surely_not_installed.part:fn")
    assert "'surely_not_installed'" in failure.message
    assert "tm-test" in failure.message
    assert not failure.is_recoverable
    failure = await failure_of(bench, imports)
    assert failure.class_name == "ModuleNotFoundError"
    assert "No module named 'surely_not_installed'" in failure.message
    assert "TaskManager tm-test cannot import what is needed of the package 'surely_not_installed'" in failure.message
    failure = await failure_of(bench, script("import surely_not_installed"))
    assert "TaskManager tm-test cannot import" in failure.message


async def test_unusable_code_will_not_be_better_next_time(bench: SlotBench) -> None:
    for code, words in (
        (PickledCode.of_bytes(b"not a pickle"), "cannot be loaded"),
        (PickledCode.of_bytes(b"x").model_copy(update={"python": "2.7"}), "pickled by Python 2.7"),
        (PickledCode.of_bytes(b"x").model_copy(update={"sha256": "0" * 64}), "damaged"),
    ):
        failure = await failure_of(bench, operator(code))
        assert words in failure.message
        assert not failure.is_recoverable
    failure = await failure_of(bench, "json:no_such_function")
    assert "has no 'no_such_function'" in failure.message


async def test_a_reference_is_found_in_the_jobs_files(bench: SlotBench, tmp_path: Path) -> None:
    (tmp_path / "brought_along.py").write_text("def answer(ctx): return 42\n")
    assert await bench.value(bench.work("brought_along:answer", python_path=(tmp_path,))) == 42


async def test_memory_above_the_limit_is_killed_with_the_figure(tmp_path: Path) -> None:
    def blow_up(ctx: Any) -> None:
        import time

        hog = [b"x" * 1_000_000 for _ in range(150)]
        time.sleep(30)
        del hog

    def in_a_child(ctx: Any) -> None:
        import subprocess
        import sys

        subprocess.run([sys.executable, "-c", "x = b'x' * 150_000_000; import time; time.sleep(30)"], check=True)

    async with slot_bench(tmp_path, memory_bytes_max=100 * 1024 * 1024, sample_interval=0.05) as limited:
        for hog in (blow_up, in_a_child):
            report = await limited.run(hog)
            assert report.failure is not None, report
            assert report.failure.class_name == "MemoryLimitExceededError"
            assert "above the slot's limit of 100.0 MiB" in report.failure.message
            assert report.failure.kind == "RESOURCE"
            assert report.metrics.memory_bytes_peak > 100 * 1024 * 1024
        assert await limited.value(lambda ctx: 1) == 1


def in_a_memfd(ctx: Any) -> None:
    import os
    import time

    descriptor = os.memfd_create("hog")
    for _ in range(150):
        os.write(descriptor, b"x" * 1_000_000)
    time.sleep(30)


def in_a_file_of_a_tmpfs(ctx: Any) -> None:
    import pathlib
    import time

    path = pathlib.Path("/dev/shm", ctx.params["name"])
    with path.open("wb") as file:
        for _ in range(90):
            file.write(b"x" * 1_000_000)
            time.sleep(0.01)
    hog = b"x" * 40_000_000  # the file is closed, and counts on
    time.sleep(30)
    del hog


def in_a_process_beside(ctx: Any) -> None:
    import ctypes
    import time

    clone_parent, sigchld, clone = 0x8000, 17, {"x86_64": 56, "aarch64": 220}[ctx.params["machine"]]
    if ctypes.CDLL(None).syscall(clone, clone_parent | sigchld, 0, 0, 0, 0) == 0:
        hog = [b"x" * 1_000_000 for _ in range(150)]
        time.sleep(30)
        del hog
    time.sleep(30)


@pytest.mark.parametrize("hog", [in_a_memfd, in_a_file_of_a_tmpfs, in_a_process_beside])
async def test_memory_that_no_process_of_the_tree_shows_counts(tmp_path: Path, hog: Any) -> None:
    """R43."""
    name = f"hog-{uuid.uuid4().hex}"
    params = {"name": name, "machine": platform.machine()}
    try:
        async with slot_bench(tmp_path, memory_bytes_max=100 * 1024 * 1024, sample_interval=0.05) as limited:
            report = await limited.run(limited.work(hog, params=params))
            assert report.failure is not None, report
            assert report.failure.class_name == "MemoryLimitExceededError", report.failure
            assert await limited.value(lambda ctx: 1) == 1
    finally:
        await asyncio.to_thread(Path("/dev/shm", name).unlink, missing_ok=True)


class MeasuredFiles(HeldFiles):
    """Keeps in which threads it was asked for an exact figure."""

    def __init__(self) -> None:
        super().__init__(memory_devices())
        self.threads: list[int] = []

    def look_again(self) -> None:
        super().look_again()
        self.threads.append(threading.get_ident())


async def test_files_in_memory_that_are_mapped_count_once(tmp_path: Path) -> None:
    """And what user code can make large is not looked at by the loop of all slots (R43)."""
    go = tmp_path / "go"

    def share(ctx: Any) -> int:
        import mmap
        import os
        import pathlib
        import time

        descriptor = os.memfd_create("shared")
        os.ftruncate(descriptor, 60_000_000)
        with mmap.mmap(descriptor, 60_000_000) as memory:
            for _ in range(60):
                memory.write(b"x" * 1_000_000)
            ctx.report_progress(0.5, "mapped")
            while not pathlib.Path(ctx.params["go"]).exists():
                time.sleep(0.01)
        return 1

    async with slot_bench(tmp_path, memory_bytes_max=100 * 1024 * 1024, sample_interval=0.05) as limited:
        listener, running = await limited.started(limited.work(share, params={"go": str(go)}))
        attempt = limited.pool._slots[0].attempt
        assert attempt is not None
        files = attempt.held_files = MeasuredFiles()
        await listener.progresses.wait_until(bool)
        measured = len(files.threads)
        while len(files.threads) < measured + 3 and not running.done():
            await asyncio.sleep(0.01)
        await asyncio.to_thread(go.touch)
        await running
        assert listener.terminal.state is FINISHED, listener.terminal
        assert listener.terminal.metrics.memory_bytes_peak > 60_000_000
        assert 60_000_000 < attempt.memory_bytes_peak <= 100 * 1024 * 1024
        assert threading.get_ident() not in files.threads


async def test_who_leaves_slot_and_session_ends(bench: SlotBench) -> None:
    def leave(ctx: Any) -> bool:
        import ctypes
        import os
        import time

        clone = {"x86_64": 56, "aarch64": 220}[ctx.params["machine"]]
        pid = ctypes.CDLL(None).syscall(clone, 0x8000 | 17, 0, 0, 0, 0)
        if pid == 0:
            os.setsid()
            time.sleep(300)
            os._exit(0)
        until = time.monotonic() + 60  # it ends within two looks of the monitor
        while (is_there := os.access(f"/proc/{pid}", os.F_OK)) and time.monotonic() < until:
            time.sleep(0.01)
        return not is_there

    assert await bench.value(bench.work(leave, params={"machine": platform.machine()}))


async def test_a_sudden_allocation_meets_the_address_space_net(tmp_path: Path) -> None:
    async with slot_bench(tmp_path, memory_bytes_max=64 * 1024 * 1024) as limited:
        failure = await failure_of(limited, lambda ctx: len(bytearray(20_000_000_000)))
        assert (failure.class_name, failure.kind) == ("MemoryError", "RESOURCE")


async def test_an_endless_loop_is_canceled_by_force(bench: SlotBench) -> None:
    def endless(ctx: Any) -> None:
        while True:
            pass

    work = bench.work(endless)
    listener, running = await bench.started(work)
    begun = time.monotonic()
    await bench.pool.cancel(0, work.task.attempt_id)
    await running
    assert time.monotonic() - begun < 2
    assert listener.terminal.state is CANCELED
    assert listener.terminal.failure is None
    assert await bench.value(lambda ctx: 1) == 1


async def test_a_task_that_looks_at_cancelled_ends_by_itself(bench: SlotBench, tmp_path: Path) -> None:
    witness = str(tmp_path / "seen")

    def polite(ctx: Any) -> None:
        import pathlib
        import time

        while not ctx.cancelled:
            time.sleep(0.005)
        pathlib.Path(witness).write_text("yes")

    work = bench.work(polite)
    listener, running = await bench.started(work)
    await bench.pool.cancel(0, work.task.attempt_id)
    await running
    assert listener.terminal.state is CANCELED
    assert text_of(witness) == "yes"


async def test_a_cancel_of_another_attempt_does_nothing(bench: SlotBench) -> None:
    work = bench.work(lambda ctx: __import__("time").sleep(0.2))
    other = bench.work(lambda ctx: None)
    listener, running = await bench.started(work)
    await bench.pool.cancel(0, other.task.attempt_id)
    await running
    assert listener.terminal.state is FINISHED


async def test_a_cancel_that_comes_first_wins(bench: SlotBench) -> None:
    work = bench.work(lambda ctx: 1)
    listener = RecordingListener()
    async with asyncio.TaskGroup() as group:
        group.create_task(bench.pool.run(0, work, listener))
        group.create_task(bench.pool.cancel(0, work.task.attempt_id))
    assert listener.terminal.state in {CANCELED, FINISHED}


async def test_what_a_task_started_dies_with_it(bench: SlotBench, tmp_path: Path) -> None:
    """R15: children, their children, and daemons in sessions of their own, before the report is given."""
    pids = str(tmp_path / "pids")

    def starts_processes(ctx: Any) -> None:
        import os
        import pathlib
        import subprocess
        import time

        noted = pathlib.Path(pids)
        noted.write_text("")
        subprocess.Popen(["sh", "-c", f"sleep 100 & echo $! $$ >> {pids}; wait"])
        if os.fork() == 0:  # a daemon: its parent ends, it has a session of its own
            os.setsid()
            if os.fork() == 0:
                with noted.open("a") as file:
                    file.write(f"{os.getpid()}\n")
                time.sleep(100)
            os._exit(0)
        while len(noted.read_text().split()) < 3:
            time.sleep(0.01)
        if ctx.params["end"] == "crash":
            os._exit(1)

    for end, state in (("return", FINISHED), ("crash", FAILED)):
        report = await bench.run(bench.work(starts_processes, params={"end": end}))
        assert report.state is state, report.failure
        started = [int(pid) for pid in text_of(pids).split()]
        assert len(started) == 3
        assert all(is_gone(pid) for pid in started)


async def test_a_thread_that_is_left_behind_ends_before_the_report(bench: SlotBench, tmp_path: Path) -> None:
    witness = str(tmp_path / "witness")

    def leaves_a_thread(ctx: Any) -> int:
        import os
        import pathlib
        import threading
        import time

        def write_for_ever() -> None:
            while True:
                with pathlib.Path(witness).open("a") as file:
                    file.write("x")
                time.sleep(0.001)

        threading.Thread(target=write_for_ever, daemon=True).start()
        time.sleep(0.01)
        return os.getpid()

    report = await bench.run(leaves_a_thread)
    seen = text_of(witness)
    assert report.state is FINISHED
    assert is_gone(int(report.value))
    assert text_of(witness) == seen


async def test_the_other_slot_notices_nothing(bench: SlotBench) -> None:
    patient, running = await bench.started(bench.work(lambda ctx: __import__("time").sleep(0.5) or "fine"), slot=1)
    await failure_of(bench, lambda ctx: os.kill(os.getpid(), signal.SIGSEGV))
    await running
    assert (patient.terminal.state, patient.terminal.value) == (FINISHED, b'"fine"')


async def test_progress_arrives_while_it_runs(bench: SlotBench) -> None:
    def reports(ctx: Any) -> None:
        import time

        for step in range(1000):
            ctx.report_progress(step / 1000, f"step {step}")
        time.sleep(0.3)  # the last one of the burst arrives all the same

    listener, running = await bench.started(bench.work(reports))
    seen = await listener.progresses.wait_until(lambda all_: any(p.text == "step 999" for p in all_))
    assert not running.done()
    assert len(seen) < 20
    await running


async def test_outputs_are_known_even_when_the_process_dies(bench: SlotBench, tmp_path: Path) -> None:
    def announces(ctx: Any, base: str = str(tmp_path)) -> None:
        path = ctx.output_path(base)
        assert path == ctx.output_path(base + "/")
        os._exit(1)

    work = bench.work(announces)
    report = await bench.run(work)
    assert report.state is FAILED
    [output] = report.outputs
    assert (output.base, output.directory) == (str(tmp_path), f"{tmp_path}/.attempt-{work.task.attempt_id}")


async def test_a_chain_hands_over_what_an_exchange_would(bench: SlotBench) -> None:
    work = bench.work(
        operator(lambda ctx: {"a": 1}, "first"), operator(lambda ctx, values: [ctx.operator_name, values], "second")
    )
    assert await bench.value(work) == ["second", [{"a": 1}]]
    failure = await failure_of(bench, bench.work(operator(lambda ctx: None, "first"), lambda ctx, value: 1))
    assert "'first' returned None, but it has a consumer" in failure.message


async def test_the_template_is_replaced_when_it_dies(tmp_path: Path) -> None:
    async with slot_bench(tmp_path) as fresh:
        listener, running = await fresh.started(fresh.work(lambda ctx: __import__("time").sleep(60)))
        os.kill(fresh.pool.template_pid, signal.SIGKILL)
        await running
        assert listener.terminal.state is FAILED
        assert listener.terminal.failure is not None
        assert "template process" in listener.terminal.failure.message
        await fresh.pool.readiness.wait_until(bool)
        assert await fresh.value(lambda ctx: 1) == 1


async def test_stopping_the_pool_ends_everything(tmp_path: Path) -> None:
    async with slot_bench(tmp_path) as fresh:
        listener, running = await fresh.started(fresh.work(lambda ctx: __import__("time").sleep(60)))
        template = fresh.pool.template_pid
        below = children_of(template)
        assert below
        await fresh.pool.stop()
        await running
        assert listener.terminal.failure is not None
        assert "the TaskManager stops" in listener.terminal.failure.message
        assert all(is_gone(pid) for pid in (template, *below))


async def test_without_spark_there_is_a_sentence(bench: SlotBench) -> None:
    def builds_its_own(ctx: Any) -> None:
        from pyspark.sql import SparkSession

        SparkSession.builder.getOrCreate()

    for touch in (lambda ctx: ctx.spark.range(1).count(), builds_its_own):
        assert "taskmanager.spark.enabled" in (await failure_of(bench, touch)).message


async def test_scripts_run_as_main(bench: SlotBench) -> None:
    text = """
import atexit, sys, threading, time
assert __name__ == "__main__" and sys.modules["__main__"].__file__ == __file__
class Local: pass
assert Local.__module__ == "__main__"
def later():
    time.sleep(0.1); print("thread", sys.argv[1:], file=open("out.txt", "a"))
threading.Thread(target=later).start()
atexit.register(lambda: print("at exit", file=open("out.txt", "a")))
"""
    work = bench.work(script(text, "a", "--b=c"))
    report = await bench.run(work)
    assert report.state is FINISHED, report.failure
    assert (work.job_directory / "out.txt").read_text() == "thread ['a', '--b=c']\nat exit\n"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("import sys; sys.exit(7)", "sys.exit(7)"),
        ("raise SystemExit('bad input')", "bad input"),
        ("1/0", "division by zero"),
        ("def", "cannot be compiled"),
    ],
)
async def test_scripts_fail_as_programs_do(bench: SlotBench, text: str, message: str) -> None:
    assert message in (await failure_of(bench, script(text))).message


async def test_a_script_is_never_followed_in_its_process(bench: SlotBench) -> None:
    import_main = "import sys; print(hasattr(sys.modules['__main__'], 'left'), file=open('seen', 'a')); left = 1"
    work = bench.work(script(import_main), reuse_key="same")
    await bench.run(work)
    await bench.run(bench.work(script(import_main), reuse_key="same"))
    assert (work.job_directory / "seen").read_text() == "False\nFalse\n"


async def test_many_runs_leak_neither_processes_nor_descriptors(bench: SlotBench) -> None:
    await bench.run(lambda ctx: None)
    before = open_descriptors()
    for number in range(200):
        # Every other job is a stranger to the process that ran the last one.
        work = bench.work(lambda ctx: None, job_id=JobId(f"{number // 2:032x}"))
        assert (await bench.run(work)).state is FINISHED
    for _ in range(200):
        if len(children_of(bench.pool.template_pid)) <= 4 and open_descriptors() <= before + 2:
            break
        await asyncio.sleep(0.01)
    assert len(children_of(bench.pool.template_pid)) <= 4  # two slots, each with a current and a fresh process
    assert open_descriptors() <= before + 2
