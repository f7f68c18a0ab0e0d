"""R22, R23: what a Python function does to its worker, or with its group, is felt by its own session only."""

import signal
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from tests.kit.spark.spark_box import SlotProcess, SparkBox, is_alive, wait_until

POISON = """
def poison(_):
    import builtins, decimal, math, os, socket, time
    os.environ["LEAK"] = "secret"
    os.environ["TZ"] = "Asia/Tokyo"
    time.tzset()
    math.sqrt = lambda x: -1.0
    builtins.leak = 1
    os.umask(0o777)
    decimal.getcontext().prec = 2
    socket.setdefaulttimeout(0.001)
    return os.getpid()
"""
LOOK = """
def look(_):
    import builtins, decimal, math, os, socket, time
    umask = os.umask(0o22)
    os.umask(umask)
    return [os.getpid(), os.environ.get("LEAK"), time.tzname[0], math.sqrt(4), hasattr(builtins, "leak"), umask,
            decimal.getcontext().prec, socket.getdefaulttimeout()]
"""
EACH_WAY = """
from pyspark.sql.functions import pandas_udf, udf
import json, pandas
def by_batch(batches):
    for batch in batches:
        yield pandas.DataFrame({{"seen": [json.dumps({name}(None))] * len(batch)}})
seen = spark.sparkContext.parallelize(range(4), 4).map({name}).collect()
seen += [json.loads(row[0]) for row in spark.range(4, numPartitions=4).select(
    udf(lambda n: json.dumps({name}(n)))("id")).collect()]
seen += [json.loads(row[0]) for row in spark.range(4, numPartitions=4).mapInPandas(by_batch, "seen string").collect()]
emit(seen)
ask()
"""
POISONS = POISON + EACH_WAY.format(name="poison")
LOOKS = LOOK + EACH_WAY.format(name="look")


def worker_state(seen: list[list[object]]) -> list[object]:
    """What all of them have seen, without the pid."""
    assert all(one[1:] == seen[0][1:] for one in seen), seen
    return seen[0][1:]


@pytest.mark.parametrize("has_ended", [True, False], ids=["later", "beside"])
def test_what_functions_do_to_their_worker_is_seen_by_no_other_job(box: SparkBox, has_ended: bool) -> None:
    before = worker_state(box.evaluate(LOOKS))
    first = box.slot(POISONS)
    poisoned = set(first.next())
    if has_ended:
        box.end(first)
        assert not [pid for pid in poisoned if is_alive(pid)], "a worker ends with its session"
    seen = box.evaluate(LOOKS, slot_index=1)
    assert not {one[0] for one in seen} & poisoned
    assert worker_state(seen) == before
    assert before[0] is None


def test_a_session_keeps_its_workers_and_what_they_have_loaded(box: SparkBox) -> None:
    seen = box.evaluate("""
def count(_):
    import builtins, os
    builtins.number = getattr(builtins, "number", 0) + 1
    return [os.getpid(), builtins.number]
emit([spark.sparkContext.parallelize([0], 1).map(count).collect()[0] for _ in range(30)])
""")
    tasks: dict[int, list[int]] = {}
    for pid, number in seen:
        tasks.setdefault(pid, []).append(number)
    assert all(numbers == list(range(1, len(numbers) + 1)) for numbers in tasks.values()), tasks
    assert max(map(len, tasks.values())) > 1, "Spark gives the workers that it has their tasks in turn"


def test_workers_that_rest_are_used_by_the_next_session(box: SparkBox) -> None:
    parents = "emit(spark.sparkContext.parallelize(range(4), 4).map(lambda _: __import__('os').getppid()).collect())"
    first = set(box.evaluate(parents))
    assert first & set(box.evaluate(parents)), "none was used again"
    assert all(map(is_alive, first))


WAITS = """
def waits(n):
    import os, time
    with open({began!r} + ".part", "w") as began:
        began.write(str(os.getpid()))
    os.rename({began!r} + ".part", {began!r})
    while not os.path.exists({go!r}):
        time.sleep(0.01)
    return n
emit(spark.sparkContext.parallelize([41], 1).map(waits).collect())
ask()
"""


def waiting(box: SparkBox, directory: Path) -> tuple[SlotProcess, Path, int]:
    """A job beside, whose function runs, the file that lets it end, and its worker."""
    began, go = directory / "began", directory / "go"
    slot = box.slot(WAITS.format(began=str(began), go=str(go)), slot_index=1)
    wait_until(began.exists)
    return slot, go, int(began.read_text())


SIGNALS = """
try:
    spark.sparkContext.parallelize([0], 1).map(lambda _: __import__("os").kill(0, {number})).collect()
except Exception as error:
    emit(str(error))
"""


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM, signal.SIGHUP])
def test_a_function_that_signals_its_group_ends_no_other_job(box: SparkBox, number: int, tmp_path: Path) -> None:
    beside, go, _ = waiting(box, tmp_path)
    assert "Python worker exited unexpectedly" in box.evaluate(SIGNALS.format(number=int(number)))
    go.touch()
    assert beside.next() == [41]
    assert box.environment.is_ready


def family(worker: int) -> list[psutil.Process]:
    """The JVM, the daemon that has forked this worker, and what knows the worker as its parent."""
    keeper = psutil.Process(psutil.Process(worker).ppid())
    daemon = psutil.Process(keeper.ppid())
    assert any("worker_daemon" in part for part in daemon.cmdline())
    return [psutil.Process(daemon.ppid()), daemon, keeper]


@pytest.fixture
def lossy_box(box: SparkBox) -> Iterator[SparkBox]:
    """Others find an environment that has lost nothing."""
    box.run(box.environment.restart())
    yield box
    box.end_slots()
    box.run(box.environment.restart())


def test_workers_end_with_their_jvm_whatever_they_do(lossy_box: SparkBox, tmp_path: Path) -> None:
    beside, _, worker = waiting(lossy_box, tmp_path)
    jvm, daemon, keeper = family(worker)
    resting = [one.pid for one in daemon.children(recursive=True)]
    assert {worker, keeper.pid} <= set(resting)
    jvm.kill()
    wait_until(lambda: not [pid for pid in (daemon.pid, *resting) if is_alive(pid)])
    beside.kill()
    wait_until(lambda: not lossy_box.environment.is_ready)


def test_the_loss_of_the_daemon_costs_no_task_that_runs(lossy_box: SparkBox, tmp_path: Path) -> None:
    beside, go, worker = waiting(lossy_box, tmp_path)
    _, daemon, _ = family(worker)
    daemon.kill()
    wait_until(lambda: not is_alive(daemon.pid))
    go.touch()
    assert beside.next() == [41]


BROADCASTS = """
sc = spark.sparkContext
first, second = sc.broadcast([7]), sc.broadcast([8])
def total(kept):
    return sc.parallelize(range(8), 4).map(lambda number: number + kept.value[0]).sum()
emit([total(first), total(second), total(first)])
"""


def test_a_worker_has_the_broadcasts_of_the_session_that_comes_to_it(box: SparkBox) -> None:
    """Spark tells a worker to forget those of the task before, which may have been another session's."""
    assert [box.evaluate(BROADCASTS) for _ in range(3)] == [[84, 92, 84]] * 3
