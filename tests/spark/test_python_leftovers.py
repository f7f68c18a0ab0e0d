"""R29: what Python functions of a job have started in Spark's workers ends with its session, and nobody else's does."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from runtime.common.ids import JobId
from runtime.common.states import ExecutionState
from runtime.system.linux import is_alive
from tests.kit.spark.slot_box import SlotBox
from tests.kit.spark.spark_box import SlotProcess, SparkBox, wait_until

DAEMON = """
def starts(_):
    import os, subprocess, sys
    code = "import os, time; os.fork() and os._exit(0); os.setsid(); os.fork() and os._exit(0); " \\
        "print(os.getpid(), flush=True); os.close(1); time.sleep(1000)"
    started = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, env={})
    child = subprocess.Popen(["sleep", "1000"])
    forked = os.fork()
    if forked == 0:
        import time
        time.sleep(1000)
    return [os.getpid(), int(started.stdout.readline()), child.pid, forked]
"""


def log_of_workers(slot: SlotProcess) -> str:
    """They write where the slot does."""
    return (slot.logs / "stderr").read_text()


RUN = DAEMON + "emit(spark.sparkContext.parallelize([0], 1).map(starts).collect()[0]); ask()\n"
COUNT = "emit(spark.sparkContext.parallelize(range(8), 4).map(lambda n: n + 1).sum())"


def started(slot: SlotProcess) -> tuple[int, list[int]]:
    worker, *processes = slot.next()
    assert all(map(is_alive, processes))
    return worker, processes


def test_processes_of_python_functions_end_with_their_session_and_only_they(box: SparkBox) -> None:
    slots = [box.slot(RUN, slot_index=index) for index in range(2)]
    (worker, ours), (_, others) = map(started, slots)
    box.end(slots[0])
    assert not [pid for pid in ours if is_alive(pid)]
    assert all(map(is_alive, others)), "the session of these is still open"
    assert not is_alive(worker), "a worker runs code of one session only"
    log = box.settings.log_file("host").read_text()
    assert f"ended what Python functions and scripts of session {slots[0].session.session_id} had left: " in log
    assert f"({ours[0]})" in log
    assert box.evaluate(COUNT) == 36
    box.end(slots[1])
    assert not [pid for pid in others if is_alive(pid)]
    assert box.environment.is_ready


def test_a_job_with_files_of_its_own_leaves_nothing_either(box: SparkBox) -> None:
    slot = box.slot(RUN, own_workers=True, job_id="5" * 32)
    _, processes = started(slot)
    box.end(slot)
    assert not [pid for pid in processes if is_alive(pid)]
    box.end_job("5" * 32)


RAW = "import _thread; _thread.start_new_thread(go_on, ())"
NATIVE = """import ctypes, sys
    sys.kept_for_test = ctypes.CFUNCTYPE(ctypes.c_void_p, ctypes.c_void_p)(lambda _: go_on())
    ctypes.CDLL(None).pthread_create(ctypes.byref(ctypes.c_ulong()), None, sys.kept_for_test, None)"""
THREAD = """
def writes(_):
    import os, threading, time
    begun = threading.Event()
    def go_on():
        while True:
            open({path!r}, "a").write("x")
            begun.set()
            time.sleep(0.01)
    threading.Thread(target=go_on, daemon=True).start()
    begun.wait()  # its worker ends with the task, since a thread is left in it
    return os.getpid()
emit(spark.sparkContext.parallelize([0], 1).map(writes).collect()[0])
ask()
"""
LOW_LEVEL_THREAD = THREAD.replace("threading.Thread(target=go_on, daemon=True).start()", RAW)
NATIVE_THREAD = THREAD.replace("threading.Thread(target=go_on, daemon=True).start()", NATIVE)
TIMER = """
def writes(_):
    import os, signal
    signal.signal(signal.SIGALRM, lambda *_: open({path!r}, "a").write("x"))
    signal.setitimer(signal.ITIMER_REAL, 0.01, 0.01)
    while not os.path.exists({path!r}):
        pass
    return os.getpid()
emit(spark.sparkContext.parallelize([0], 1).map(writes).collect()[0])
ask()
"""
LIMIT = """
def slow(batches):
    import os, time, pandas
    try:
        for _ in range(2):  # each is more than Python's buffer holds, so that the JVM has all of the first
            yield pandas.DataFrame({{"pid": [os.getpid()] * 9000}})
    finally:  # also when Spark has closed its end before the second
        while True:
            open({path!r}, "a").write("x")
            time.sleep(0.01)
emit(spark.range(4, numPartitions=1).mapInPandas(slow, "pid long").limit(1).collect()[0].pid)
ask()
"""


@pytest.mark.parametrize("code", [THREAD, LIMIT], ids=["thread", "limit"])
def test_a_worker_that_still_runs_code_of_a_session_ends_with_it(box: SparkBox, code: str, tmp_path: Path) -> None:
    written = tmp_path / "written"
    slot = box.slot(code.format(path=str(written)))
    worker = slot.next()
    wait_until(lambda: written.exists() and written.stat().st_size)
    box.end(slot)
    assert not is_alive(worker)
    for _ in range(3):
        assert box.evaluate(COUNT) == 36, "workers of others live, and Spark knows which"
    assert box.environment.is_ready


@pytest.mark.parametrize(
    "code", [THREAD, LOW_LEVEL_THREAD, NATIVE_THREAD, TIMER], ids=["thread", "low level", "native", "timer"]
)
def test_a_worker_that_rests_has_nothing_left(box: SparkBox, code: str, tmp_path: Path) -> None:
    """Its session goes on, and with it the worker would."""
    written = tmp_path / "written"
    slot = box.slot(code.format(path=str(written)))
    worker = slot.next()
    wait_until(lambda: not is_alive(worker))
    assert written.stat().st_size
    box.end(slot)
    assert box.environment.is_ready
    assert f"functions of session {slot.session.session_id} have left " in log_of_workers(slot), "why it has ended"


ARROW = """
import pandas as pd
from pyspark.sql.functions import pandas_udf
@pandas_udf("long")
def pid(one: pd.Series, two: pd.Series) -> pd.Series:
    import os, pyarrow as pa
    pa.table({"a": one, "b": two}).to_pandas()
    return pd.Series([os.getpid()] * len(one))
emit([spark.range(1).select(pid("id", "id")).first()[0] for _ in range(2)])
ask()
"""


def test_threads_of_arrow_that_wait_for_work_cost_no_worker(box: SparkBox) -> None:
    slot = box.slot(ARROW)
    assert all(map(is_alive, slot.next())), "of one worker or of two: Spark may take whichever rests"
    box.end(slot)
    assert f"functions of session {slot.session.session_id} have left " not in log_of_workers(slot)


@pytest.fixture
def slots(box: SparkBox, tmp_path: Path) -> Iterator[SlotBox]:
    made = SlotBox(box, tmp_path)
    yield made
    made.stop()


def leaves_a_daemon(ctx: Any) -> None:
    def starts(_: Any) -> int:
        import subprocess

        return subprocess.Popen(["sleep", "1000"], start_new_session=True).pid

    pid = ctx.spark.sparkContext.parallelize([0], 1).map(starts).first()
    message = f"left {pid}"
    raise RuntimeError(message)


def test_they_have_ended_when_the_report_is_there(slots: SlotBox) -> None:
    failure = slots.failure(slots.work(leaves_a_daemon, job_id=JobId("6" * 32)))
    left, pid = failure.message.split()[0], int(failure.message.split()[1])
    assert left == "left"
    assert not is_alive(pid)


CHAIN = """
import os, sys
file = os.open(sys.argv[1], os.O_WRONLY | os.O_APPEND | os.O_CREAT)
while True:
    os.write(file, b"%d\\n" % os.getpid())
    if os.fork():
        os._exit(0)
"""


def begins_a_chain(ctx: Any) -> None:
    text, path = CHAIN, ctx.params["path"]

    def starts(_: Any) -> None:
        import pathlib
        import subprocess
        import sys

        subprocess.Popen([sys.executable, "-S", "-c", text, path], start_new_session=True).wait()
        file = pathlib.Path(path)
        while not file.exists() or file.read_text().count("\n") < 50:
            pass

    ctx.spark.sparkContext.parallelize([0], 1).foreach(starts)


def test_a_chain_of_processes_outruns_no_look(slots: SlotBox, tmp_path: Path) -> None:
    """Each forks the next one and ends, before it is looked at."""
    path = tmp_path / "written"
    slots.wait_attached()
    report = slots.report(slots.work(begins_a_chain, job_id=JobId("9" * 32), params={"path": str(path)}))
    written = path.read_text()
    last = int(written.split()[-1])
    assert report.state is ExecutionState.FINISHED, report.failure
    assert "left processes, which are ended: " in slots.bench.log(report, "stderr")
    assert not is_alive(last)
    assert path.read_text() == written
