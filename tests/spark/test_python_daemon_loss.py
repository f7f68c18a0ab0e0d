"""R23: the process that forks Spark's Python workers belongs to all jobs; who ends it ends no task of another one."""

import signal
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from tests.kit.spark.spark_box import SlotProcess, SparkBox, is_alive, wait_until

PARENTS = "emit(spark.sparkContext.parallelize(range(4), 4).map(lambda _: __import__('os').getppid()).collect())"
COUNT = "emit(spark.sparkContext.parallelize(range(8), 4).map(lambda n: n + 1).sum())"
WAITS = """
def waits(n):
    import os, threading, time
    with open({began!r} + ".part", "w") as began:
        began.write(str(os.getpid()))
    os.rename({began!r} + ".part", {began!r})
    while not os.path.exists({go!r}):
        time.sleep(0.01)
    if {leaves_thread}:
        threading.Thread(target=time.sleep, args=(1000,), daemon=True).start()
    return n
emit(spark.sparkContext.parallelize([41], 1).map(waits).collect())
emit(spark.sparkContext.parallelize([1], 1).map(lambda n: n + 1).collect())
ask()
"""


@pytest.fixture(scope="module")
def restored(shared_box: SparkBox) -> Iterator[None]:
    """Other modules find an environment that has lost nothing."""
    yield
    shared_box.run(shared_box.environment.restart())


@pytest.fixture
def lossy_box(box: SparkBox, restored: None) -> SparkBox:
    """A Spark whose daemon the test may end: the next one finds another daemon, or another Spark."""
    return box


def waiting(box: SparkBox, directory: Path, *, leaves_thread: bool = False) -> tuple[SlotProcess, Path, psutil.Process]:
    """A job whose function runs, the file that lets it end, and the daemon."""
    began, go = directory / "began", directory / "go"
    slot = box.slot(WAITS.format(began=str(began), go=str(go), leaves_thread=leaves_thread), slot_index=1)
    wait_until(began.exists)
    return slot, go, daemon_of(psutil.Process(int(began.read_text())).ppid())


def daemon_of(keeper: int) -> psutil.Process:
    """Its parent."""
    return psutil.Process(psutil.Process(keeper).ppid())


LIKE_SIGINT = (signal.SIGHUP, signal.SIGUSR1)


def test_workers_that_rest_may_die_with_their_daemon(lossy_box: SparkBox) -> None:
    keepers = [psutil.Process(pid) for pid in set(lossy_box.evaluate(PARENTS))]
    daemon = daemon_of(keepers[0].pid)
    for process in (daemon, *keepers):
        process.kill()
    wait_until(lambda: not any(is_alive(process.pid) for process in (daemon, *keepers)))
    assert lossy_box.evaluate(COUNT) == 36


def test_a_worker_whose_daemon_is_lost_can_be_given_up(lossy_box: SparkBox, tmp_path: Path) -> None:
    """Spark asks the daemon to kill a worker that it does not want back."""
    beside, go, daemon = waiting(lossy_box, tmp_path, leaves_thread=True)
    daemon.kill()
    wait_until(lambda: not is_alive(daemon.pid))
    go.touch()
    assert beside.next() == [41]
    assert beside.next() == [2]


@pytest.mark.parametrize(
    "number",
    [signal.SIGTERM, signal.SIGINT, *(pytest.param(one, marks=pytest.mark.extended) for one in LIKE_SIGINT)],
)
def test_a_signal_to_the_daemon_ends_no_task(lossy_box: SparkBox, number: int, tmp_path: Path) -> None:
    beside, go, daemon = waiting(lossy_box, tmp_path)
    daemon.send_signal(number)
    assert lossy_box.evaluate(COUNT) == 36
    go.touch()
    assert beside.next() == [41]
    assert beside.next() == [2]


KILLS = """
def kills(_):
    import os
    os.kill({target}, 9)
try:
    spark.sparkContext.parallelize([0], 1).map(kills).collect()
except Exception as error:
    emit(str(error))
"""


def test_a_function_that_kills_the_daemon_fails_itself_and_is_named(lossy_box: SparkBox, tmp_path: Path) -> None:
    beside, go, daemon = waiting(lossy_box, tmp_path)
    said = lossy_box.evaluate(KILLS.format(target=daemon.pid))
    assert "PermissionError: os.kill" in said, said
    assert "which forks the Python workers of all jobs" in said
    assert is_alive(daemon.pid)
    go.touch()
    assert beside.next() == [41]


KILLS_ITSELF = """
def kills(_):
    import os
    {how}
    __import__("time").sleep(1000)
emit([])
spark.sparkContext.parallelize([0], 1).map(kills).collect()
"""
KILLS_BY_PROGRAM = """
def kills(_):
    import subprocess
    subprocess.run(["kill", "-9", "{daemon}"], check=True)
emit(spark.sparkContext.parallelize([0], 1).map(kills).collect())
"""


def test_a_daemon_that_a_program_of_a_job_kills_is_replaced(lossy_box: SparkBox, tmp_path: Path) -> None:
    beside, go, daemon = waiting(lossy_box, tmp_path)
    assert lossy_box.evaluate(KILLS_BY_PROGRAM.format(daemon=daemon.pid)) == [None]
    wait_until(lambda: not is_alive(daemon.pid))
    assert lossy_box.evaluate(COUNT) == 36
    go.touch()
    assert beside.next() == [41]
    assert beside.next() == [2]


@pytest.mark.parametrize("how", ["os._exit(1)", "os.kill(os.getpid(), 9)", "os.kill(os.getppid(), 9)"])
def test_a_worker_that_ends_itself_fails_its_task(box: SparkBox, how: str) -> None:
    slot = box.slot(KILLS_ITSELF.format(how=how))
    assert slot.next() == []
    assert slot.finish() == 1
    assert "SparkException" in slot.stderr_file.read_text()
    assert box.evaluate(COUNT) == 36
