"""Savepoints of queries that run: whenever a copy is made, it goes on to the rows of a query that nobody copied."""

from __future__ import annotations

import json
import os
import random
import shutil
import threading
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from runtime.checkpoint.savepoint.file_tree import FileTree, place_files
from runtime.checkpoint.savepoint.query_copy import copy_query
from runtime.checkpoint.savepoint.savepoint_form import SINK_LOG, QuerySnapshot
from runtime.common.ids import JobId
from runtime.common.states import ExecutionState
from runtime.jobgraph.streams import StreamTrigger, TriggerKind
from tests.kit.checkpoint.query_directories import table_files
from tests.kit.spark.slot_box import SlotBox
from tests.kit.spark.slot_work import query
from tests.kit.spark.spark_box import SparkBox, wait_until

pytestmark = pytest.mark.timeout(600)  # one JVM per module, and it may have to wait for its turn

NOW = StreamTrigger(kind=TriggerKind.AVAILABLE_NOW)
OFTEN = StreamTrigger(kind=TriggerKind.PROCESSING_TIME, interval="10 milliseconds")
PROVIDER = "spark.sql.streaming.stateStore.providerClass"
STATE = "org.apache.spark.sql.execution.streaming.state"
CONFS = {
    "hdfs": {PROVIDER: f"{STATE}.HDFSBackedStateStoreProvider"},
    "rocksdb": {PROVIDER: f"{STATE}.RocksDBStateStoreProvider"},
    "rocksdb-changelog": {
        PROVIDER: f"{STATE}.RocksDBStateStoreProvider",
        "spark.sql.streaming.stateStore.rocksdb.changelogCheckpointing.enabled": "true",
        "spark.sql.streaming.stateStore.minDeltasForSnapshot": "3",
    },
    "rocksdb-with-ids": {
        PROVIDER: f"{STATE}.RocksDBStateStoreProvider",
        "spark.sql.streaming.stateStore.checkpointFormatVersion": "2",
        "spark.sql.streaming.stateStore.rocksdb.changelogCheckpointing.enabled": "true",
        "spark.sql.streaming.stateStore.minDeltasForSnapshot": "3",
    },
}
COPIES = 10
FILES = 16
WINDOW = 10


@pytest.fixture(scope="module")
def slots(shared_box: SparkBox, tmp_path_factory: pytest.TempPathFactory) -> Iterator[SlotBox]:
    if not shared_box.environment.is_ready:
        shared_box.run(shared_box.environment.restart())
    box = SlotBox(shared_box, tmp_path_factory.mktemp("slots"))
    yield box
    box.stop()


def events(ctx: Any) -> Any:
    reader = ctx.spark.readStream.schema("second long, key string").option("maxFilesPerTrigger", ctx.params["files"])
    return reader.json(ctx.params["in"])


def counted(ctx: Any, df: Any) -> Any:
    from pyspark.sql import functions as f

    timed = df.select(df.second.cast("timestamp").alias("at"), "key").withWatermark("at", "5 seconds")
    windows = timed.groupBy(f.window("at", f"{ctx.params['window']} seconds"), "key").count()
    return windows.select(f.col("window.start").cast("long").alias("start"), "key", "count")


def table(ctx: Any, df: Any) -> Any:
    return df.writeStream.format("json").option("path", ctx.params["out"])


def rows(out: Path) -> list[list[Any]]:
    """What Spark's log of the table names."""
    found = []
    for path in table_files(out):
        for line in path.read_text().splitlines():
            row = json.loads(line)
            found.append([row["start"], row["key"], row["count"]])
    return sorted(found)


def file_of(number: int) -> list[tuple[int, str]]:
    """Events in the order of time; the last two files close all windows of the others."""
    begin = number * 3 if number < FILES - 2 else number * 1000
    return [(begin + i % 3, f"key-{i % 5}") for i in range(20)]


def write(directory: Path, number: int) -> None:
    text = "".join(json.dumps({"second": second, "key": key}) + "\n" for second, key in file_of(number))
    (directory / f".{number}").write_text(text)
    os.utime(directory / f".{number}", (number, number))  # Spark reads the oldest first
    (directory / f".{number}").rename(directory / f"{number:04d}.json")


def expected() -> list[list[Any]]:
    counts: Counter[tuple[int, str]] = Counter()
    for number in range(FILES - 1):  # the windows of the last one stay open
        counts.update((second // WINDOW * WINDOW, key) for second, key in file_of(number))
    return sorted([start, key, count] for (start, key), count in counts.items())


def committed(directory: Path) -> int:
    names = [one.name for one in (directory / "commits").glob("[0-9]*")] if (directory / "commits").is_dir() else []
    return max((int(name) for name in names if name.isdigit()), default=-1)


def watermark(directory: Path) -> int:
    """What the last committed batch ran with."""
    _, told, *_ = (directory / "offsets" / str(committed(directory))).read_text().splitlines()
    return int(json.loads(told)["batchWatermarkMs"])


@pytest.mark.parametrize("provider", CONFS)
def test_a_copy_at_any_moment_goes_on_to_the_same_rows(slots: SlotBox, tmp_path: Path, provider: str) -> None:
    job = JobId(f"{list(CONFS).index(provider) + 1:032x}")
    directory = slots.directory / "checkpoints" / job / "counts" / "0"
    (tmp_path / "in").mkdir()
    out = tmp_path / "out"
    conf = {**CONFS[provider], "spark.sql.shuffle.partitions": "2"}
    params = {"in": str(tmp_path / "in"), "out": str(out), "window": WINDOW, "files": 1}

    def work(trigger: StreamTrigger, job_id: JobId, out: Path) -> Any:
        parts = query(events, counted, table, uid="counts", trigger=trigger)
        return slots.work(*parts, job_id=job_id, params={**params, "out": str(out)}, spark_conf=conf)

    for number in range(FILES - 6):
        write(tmp_path / "in", number)
    listener, running = slots.begin(work(OFTEN, job, out))
    try:
        wait_until(lambda: committed(directory) >= 0)
        copies = _copies_while_it_runs(directory, out, tmp_path)
        for number in range(FILES - 6, FILES):
            write(tmp_path / "in", number)
        wait_until(lambda: watermark(directory) == ((FILES - 1) * 1000 + 2 - 5) * 1000)
    finally:
        slots.do(slots.pool.cancel(0, listener.reports[0].attempt_id))
        slots.end(running)
    assert rows(out) == expected()

    for number, snapshot in enumerate(copies):
        restored, again = JobId(f"{job[-30:]}{number:x}f"), tmp_path / f"out-{number}"
        _restore(tmp_path / f"copy-{number}", slots.directory / "checkpoints" / restored / "counts" / "0", again)
        assert committed(slots.directory / "checkpoints" / restored / "counts" / "0") == snapshot.batch_id
        params["files"] = FILES
        ended, running = slots.begin(work(NOW, restored, again))
        slots.end(running)
        assert ended.terminal.state is ExecutionState.FINISHED, ended.terminal.failure
        assert rows(again) == expected(), snapshot
    assert len({snapshot.batch_id for snapshot in copies}) > 2, "the copies are of different moments"
    assert all(snapshot.operators[0].name == "stateStoreSave" for snapshot in copies)


def _copies_while_it_runs(directory: Path, out: Path, tmp_path: Path) -> list[QuerySnapshot]:
    """Copies at random moments, each right behind a commit or in the middle of a batch."""
    pause, draw, copies = threading.Event(), random.Random(7), []
    for number in range(COPIES):
        wait_until(lambda: committed(directory) >= number)  # noqa: B023 - it is over when the next one begins
        pause.wait(draw.uniform(0, 0.3))
        copies.append(copy_query(directory, tmp_path / f"copy-{number}", committed(directory), out))
    return copies


def _restore(copy: Path, directory: Path, out: Path) -> None:
    """The copy as a query's directory, and its log of the sink in a directory of its own."""
    shutil.copytree(copy, directory)
    shutil.rmtree(directory / "_sink")
    log = FileTree(copy / SINK_LOG)
    place_files(log, log.below(), out / "_spark_metadata")
