"""Queries that are started from a savepoint: once, with their table put back, or not at all and with the reason."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from runtime.checkpoint.savepoint.ended_note import read_note
from runtime.common.ids import JobId
from runtime.common.states import ExecutionState
from runtime.gateways.task import FailureInfo
from runtime.jobgraph.savepoints import ClaimMode, SavepointRestoreSettings, dump_query_settings
from runtime.jobgraph.streams import StreamTrigger, TriggerKind
from runtime.taskexecutor.spark_protocol.installed_spark import SparkMinor, check_supported, pyspark_version
from tests.kit.checkpoint.query_directories import saved, table_files
from tests.kit.spark.slot_box import SlotBox
from tests.kit.spark.slot_work import query
from tests.kit.spark.spark_box import SparkBox, wait_until

pytestmark = pytest.mark.timeout(600)  # one JVM per module, and it may have to wait for its turn

NOW = StreamTrigger(kind=TriggerKind.AVAILABLE_NOW)
OFTEN = StreamTrigger(kind=TriggerKind.PROCESSING_TIME, interval="100 milliseconds")
_jobs = iter(range(1, 10_000))


@pytest.fixture(scope="module")
def slots(shared_box: SparkBox, tmp_path_factory: pytest.TempPathFactory) -> Iterator[SlotBox]:
    if not shared_box.environment.is_ready:
        shared_box.run(shared_box.environment.restart())
    box = SlotBox(shared_box, tmp_path_factory.mktemp("slots"))
    yield box
    box.stop()


def numbers(ctx: Any) -> Any:
    return ctx.spark.readStream.schema("id long").option("maxFilesPerTrigger", 1).json(ctx.params["in"])


def table(ctx: Any, df: Any) -> Any:
    return df.writeStream.format("json").option("path", ctx.params["out"])


def thirds(ctx: Any, df: Any) -> Any:
    return df.groupBy((df.id % 3).alias("third")).count()


def appended(ctx: Any, batch: Any, batch_id: int) -> None:
    with Path(ctx.params["out"]).open("a") as out:
        out.writelines(f"{batch_id} {list(row)}\n" for row in sorted(batch.collect()))


class Scene:
    """A job that reads numbers from files, and savepoints of it."""

    def __init__(self, slots: SlotBox, directory: Path) -> None:
        self.slots, self.directory = slots, directory
        self.params = {"in": str(directory / "in"), "out": str(directory / "table"), "count": str(directory / "count")}
        self.written = 0

    def write(self, *ids: int) -> None:
        (self.directory / "in").mkdir(exist_ok=True)
        text = "".join(json.dumps({"id": one}) + "\n" for one in ids)
        (self.directory / f"{self.written}").write_text(text)
        os.utime(self.directory / f"{self.written}", (self.written, self.written))  # Spark reads the oldest first
        (self.directory / f"{self.written}").rename(self.directory / "in" / f"{self.written}.json")
        self.written += 1

    def run(
        self, job: JobId, *functions: Any, path: Path | None = None, **options: Any
    ) -> dict[str, int] | FailureInfo:
        """Run the query to the end of its input."""
        uid, queries = options.pop("uid", "sink"), options.pop("queries", {"sink": 1})
        settings = None if path is None else SavepointRestoreSettings(path=str(path), **options.pop("settings", {}))
        parts = query(*(functions or (numbers, table)), uid=uid, trigger=NOW, **options)
        work = self.slots.work(
            *parts, job_id=job, params=self.params, savepoint=dump_query_settings(settings, queries, {})
        )
        listener, running = self.slots.begin(work)
        self.slots.end(running)
        report = listener.terminal
        if report.failure is not None:
            return report.failure
        assert report.state is ExecutionState.FINISHED
        return json.loads(report.value)  # type: ignore[no-any-return]

    def savepoint(self, job: JobId, batch_id: int, *, sink: Path | None = None, **options: Any) -> Path:
        source = self.slots.directory / "checkpoints" / job / "sink" / "0"
        return saved(self.directory / "savepoints", source, batch_id=batch_id, sink=sink, **options)

    def log(self, job: JobId) -> str:
        logs = self.slots.directory / "logs"
        return "".join(one.read_text() for one in sorted(logs.glob(f"{job}*/*")) if one.is_file())

    @property
    def rows(self) -> list[int]:
        lines = [line for path in table_files(self.directory / "table") for line in path.read_text().splitlines()]
        return sorted(json.loads(line)["id"] for line in lines)


@pytest.fixture
def scene(slots: SlotBox, tmp_path: Path) -> Scene:
    return Scene(slots, tmp_path)


def new_job() -> JobId:
    return JobId(f"{next(_jobs):032x}")


def test_another_job_goes_on_behind_the_savepoint(scene: Scene) -> None:
    first, second = new_job(), new_job()
    scene.write(1, 2)
    scene.write(3)
    assert scene.run(first) == {"batches": 2, "rows": 3, "last_batch": 1}
    path = scene.savepoint(first, 1, sink=scene.directory / "table")
    scene.write(4)
    assert scene.run(second, path=path) == {"batches": 1, "rows": 1, "last_batch": 2}
    assert scene.rows == [1, 2, 3, 4]
    assert f"query 'sink' goes on behind batch 1, from savepoint {path}" in scene.log(second)
    scene.write(5)
    assert scene.run(second, path=path) == {"batches": 1, "rows": 1, "last_batch": 3}, "it is not restored again"
    assert scene.rows == [1, 2, 3, 4, 5]


def test_an_older_savepoint_puts_the_table_back(scene: Scene) -> None:
    """Without the log of the sink Spark would take the batches behind the savepoint for written, and leave them out."""
    first, second = new_job(), new_job()
    for number in range(4):
        scene.write(number)
    scene.run(first)
    path = scene.savepoint(first, 1, sink=scene.directory / "table")
    assert scene.rows == [0, 1, 2, 3]
    assert scene.run(second, path=path) == {"batches": 2, "rows": 2, "last_batch": 3}
    assert scene.rows == [0, 1, 2, 3]
    assert "2 file(s) that were written behind it are no part of the table any more" in scene.log(second)


@pytest.mark.parametrize(
    ("before", "warns"),
    [("FileStreamSource[file:/elsewhere]", False), ("RateStreamV2[rowsPerSecond=1]", True)],
)
def test_a_source_of_another_kind_is_worth_a_warning(scene: Scene, before: str, warns: bool) -> None:
    first, second = new_job(), new_job()
    scene.write(1)
    scene.run(first)
    path = scene.savepoint(first, 0, sink=scene.directory / "table", sources=(before,))
    scene.write(2)
    assert scene.run(second, path=path) == {"batches": 1, "rows": 1, "last_batch": 1}
    now = f"FileStreamSource[file:{scene.directory / 'in'}]"
    told = f"query 'sink' reads {now}, and in its savepoint it has read {before}"
    assert (told in scene.log(second)) is warns
    note = read_note(scene.slots.directory / "checkpoints" / second, "sink", 0)
    assert note.sources == (now,)
    assert note.sink == f"FileSink[{scene.directory / 'table'}]"


def test_state_comes_from_the_savepoint(scene: Scene) -> None:
    functions = (numbers, thirds, appended)
    options: dict[str, Any] = {"is_batch_function": True, "output_mode": "complete"}
    first, second = new_job(), new_job()
    scene.params["out"] = str(scene.directory / "lines")
    scene.write(0, 1, 2)
    scene.run(first, *functions, **options)
    path = scene.savepoint(first, 0)
    scene.write(0, 1)
    scene.run(second, *functions, path=path, settings={"claim_mode": ClaimMode.CLAIM}, **options)
    lines = (scene.directory / "lines").read_text().splitlines()
    assert lines[-3:] == ["1 [0, 2]", "1 [1, 2]", "1 [2, 1]"]
    assert not path.exists(), "it was claimed"
    assert f"savepoint {path} was claimed" in scene.log(second)


def has_row(out: Path, row: int) -> bool:
    return out.exists() and f"[{row}]" in out.read_text()


def test_jobs_of_one_savepoint_run_beside_each_other(scene: Scene) -> None:
    """Spark would end the query of the first, as another one of its id begins."""
    scene.write(1)
    first = new_job()
    scene.run(first, numbers, appended, is_batch_function=True)
    path = scene.savepoint(first, 0)
    parts = query(numbers, appended, trigger=OFTEN, is_batch_function=True)
    jobs, begun = (new_job(), new_job()), []
    for slot, job in enumerate(jobs):
        settings = dump_query_settings(SavepointRestoreSettings(path=str(path)), {"sink": 1}, {})
        params = {**scene.params, "out": str(scene.directory / job)}
        work = scene.slots.work(*parts, job_id=job, params=params, savepoint=settings)
        begun.append(scene.slots.begin(work, slot=slot))
        scene.write(10 + slot)
        wait_until(partial(has_row, scene.directory / job, 10 + slot))
    scene.write(20)
    for job in jobs:
        wait_until(partial(has_row, scene.directory / job, 20))
        assert "[1]" not in (scene.directory / job).read_text(), "it went on behind the savepoint"
    for slot, (listener, running) in enumerate(begun):
        scene.slots.do(scene.slots.pool.cancel(slot, listener.reports[0].attempt_id))
        scene.slots.end(running)
        assert listener.terminal.state is ExecutionState.CANCELED


@pytest.mark.parametrize(
    ("options", "what"),
    [
        ({"uid": "orders", "queries": {"orders": 1}}, "The savepoint's queries: 'sink'; the job's: 'orders'"),
        ({"queries": {"sink": 3}}, "with parallelism 1, and the job has 3"),
    ],
)
def test_a_savepoint_of_other_queries_is_refused_for_good(scene: Scene, options: Any, what: str) -> None:
    first, second = new_job(), new_job()
    scene.write(1)
    scene.run(first)
    path = scene.savepoint(first, 0, sink=scene.directory / "table")
    failure = scene.run(second, path=path, **options)
    assert isinstance(failure, FailureInfo)
    assert what in failure.message
    assert (failure.is_recoverable, failure.is_restart_vain) == (False, True)
    assert not (scene.slots.directory / "checkpoints" / second / options.get("uid", "sink") / "0").exists()


def test_a_query_begins_where_its_state_is_left_behind(scene: Scene) -> None:
    first, second = new_job(), new_job()
    scene.write(1)
    scene.run(first, numbers, appended, is_batch_function=True)
    path = scene.savepoint(first, 0)
    scene.params["out"] = str(scene.directory / "other")
    settings = {"allow_non_restored_state": True}
    assert scene.run(second, uid="new", queries={"new": 1}, path=path, settings=settings) == {
        "batches": 1, "rows": 1, "last_batch": 0,
    }  # fmt: skip
    assert f"savepoint {path} has no batch of 'new': it begins" in scene.log(second)


def test_there_has_to_be_a_savepoint(scene: Scene) -> None:
    scene.write(1)
    failure = scene.run(new_job(), path=scene.directory / "none")
    assert isinstance(failure, FailureInfo)
    assert f"there is no savepoint at {scene.directory / 'none'}" in failure.message
    assert not failure.is_recoverable


ROCKS = "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"


def numbers_in_three(ctx: Any) -> Any:
    ctx.spark.conf.set("spark.sql.shuffle.partitions", "3")
    ctx.spark.conf.set("spark.sql.streaming.fileSink.log.compactInterval", "3")
    if Path(ctx.params["out"]).is_dir():
        Path(ctx.params["count"]).write_text(str(ctx.spark.read.schema("id long").json(ctx.params["out"]).count()))
    if ctx.params["rocks"]:
        ctx.spark.conf.set("spark.sql.streaming.stateStore.providerClass", ROCKS)
    return numbers(ctx)


def first_ones(ctx: Any, df: Any) -> Any:
    return df.dropDuplicates(["id"])


@pytest.mark.parametrize("number", [5, 2])
def test_state_in_rocksdb_gets_other_partitions(scene: Scene, number: int) -> None:
    """The rows that would come without it, and what comes behind is copied into a savepoint as ever."""
    first, second, third = new_job(), new_job(), new_job()
    scene.params["rocks"] = "yes"
    functions, sink = (numbers_in_three, first_ones, table), scene.directory / "table"
    scene.write(*range(20))
    scene.write(*range(10, 30))
    assert scene.run(first, *functions) == {"batches": 2, "rows": 40, "last_batch": 1}
    path = scene.savepoint(first, 1, sink=sink)
    settings = {"state_partitions": {"sink": number}}
    for one in range(4):
        scene.write(*range(40 + one), 29)
    ended = scene.run(second, *functions, path=path, settings=settings)
    assert ended == {"batches": 4, "rows": 170, "last_batch": 6}, "batch 2 has given the state its partitions"
    assert scene.rows == list(range(43))
    assert f"state of 'sink' is in {number} partitions from now on, before it was in 3: batch 2" in scene.log(second)
    parts = scene.slots.directory / "checkpoints" / second / "sink" / "0" / "state" / "0"
    assert {one.name for one in parts.iterdir() if one.name.isdigit()} == set(map(str, range(number)))
    scene.write(42, 43)
    ended = scene.run(second, *functions, path=path, settings=settings)
    assert ended == {"batches": 1, "rows": 2, "last_batch": 7}, "it is not done again"
    assert (scene.directory / "count").read_text() == "43", "Spark reads no log with a gap"
    again = scene.savepoint(second, 7, sink=sink, name="b")
    scene.write(43, 44)
    assert scene.run(third, *functions, path=again, settings=settings) == {"batches": 1, "rows": 2, "last_batch": 8}
    assert f"state of 'sink' is in {number} partitions already" in scene.log(third)
    assert scene.rows == list(range(45))


def test_state_that_spark_does_not_divide_anew_is_refused(scene: Scene) -> None:
    first, second = new_job(), new_job()
    scene.params["rocks"] = ""
    scene.write(1, 2)
    scene.run(first, numbers_in_three, first_ones, table)
    path = scene.savepoint(first, 0, sink=scene.directory / "table")
    settings = {"state_partitions": {"*": 2}}
    failure = scene.run(second, numbers_in_three, first_ones, table, path=path, settings=settings)
    assert isinstance(failure, FailureInfo)
    assert "HDFSBackedStateStoreProvider is not supported" in failure.message
    assert "Start the job without --state-partitions" in failure.message
    assert (failure.is_recoverable, failure.is_restart_vain) == (False, True)
    ended = scene.run(second, numbers_in_three, first_ones, table, path=path)
    assert ended == {"batches": 0, "rows": 0, "last_batch": -1}, "nothing of the query has changed"


def all_counted(ctx: Any, df: Any) -> Any:
    return df.groupBy().count()


def test_state_that_spark_would_lose_is_refused(scene: Scene) -> None:
    """Spark itself loses the state of an aggregation without keys without a word."""
    first, second = new_job(), new_job()
    scene.params["rocks"] = "yes"
    functions = (numbers_in_three, all_counted, appended)
    options: dict[str, Any] = {"is_batch_function": True, "output_mode": "complete"}
    scene.params["out"] = str(scene.directory / "lines")
    scene.write(1, 2)
    scene.run(first, *functions, **options)
    path = scene.savepoint(first, 0)
    failure = scene.run(second, *functions, path=path, settings={"state_partitions": {"*": 5}}, **options)
    assert isinstance(failure, FailureInfo)
    assert "in 1 of 3, as of an aggregation without keys" in failure.message


def kept_thirds(ctx: Any, df: Any) -> Any:
    """How many numbers there were of each third, in state that Python code keeps."""
    from pyspark.sql import Row
    from pyspark.sql.streaming.stateful_processor import StatefulProcessor

    class Count(StatefulProcessor):
        def init(self, handle: Any) -> None:
            self.seen = handle.getValueState("seen", "n long")

        def handleInputRows(self, key: Any, rows: Any, timerValues: Any) -> Any:  # noqa: N802, N803 - Spark's names
            seen = sum(1 for _ in rows) + (self.seen.get()[0] if self.seen.exists() else 0)
            self.seen.update((seen,))
            yield Row(third=key[0], seen=seen)

        def close(self) -> None: ...

    thirds = df.selectExpr("id % 3 as third").groupBy("third")
    return thirds.transformWithState(Count(), "third long, seen long", "Update", "None")


def run_in_time(scene: Scene, job: JobId, *functions: Any, **options: Any) -> dict[str, int] | FailureInfo:
    """Run the query, again as long as a Python process does not begin in the ten seconds that Spark gives it."""
    ended = scene.run(job, *functions, **options)
    for _ in range(5):
        if not isinstance(ended, FailureInfo) or "Timed out while waiting" not in ended.message:
            break
        ended = scene.run(job, *functions, **options)
    return ended


@pytest.mark.skipif(
    check_supported(pyspark_version()) < SparkMinor(4, 1), reason="transformWithState needs PySpark 4.1 or newer"
)
def test_state_that_python_code_keeps_comes_from_a_savepoint_that_was_moved(scene: Scene) -> None:
    first, second = new_job(), new_job()
    scene.params |= {"rocks": "yes", "out": str(scene.directory / "lines")}
    functions, options = (numbers_in_three, kept_thirds, appended), {"is_batch_function": True, "output_mode": "update"}
    scene.write(0, 1, 2)
    ended = run_in_time(scene, first, *functions, **options)
    assert ended == {"batches": 1, "rows": 3, "last_batch": 0}, ended
    path = scene.savepoint(first, 0).rename(scene.directory / "moved")
    for batch, ids in ((1, (0, 1)), (2, (0,))):  # the second time it goes on from its own directory
        scene.write(*ids)
        ended = run_in_time(scene, second, *functions, path=path, **options)
        assert ended == {"batches": 1, "rows": len(ids), "last_batch": batch}, ended
    lines = (scene.directory / "lines").read_text().splitlines()
    assert lines[3:] == ["1 [0, 2]", "1 [1, 2]", "2 [0, 3]"]


def counted_files(ctx: Any) -> Any:
    """A data source in Python: a number for each file that is there."""
    from pyspark.sql.datasource import DataSource, SimpleDataSourceStreamReader

    place = ctx.params["in"]

    class Reader(SimpleDataSourceStreamReader):
        def initialOffset(self) -> dict[str, int]:  # noqa: N802 - Spark's name
            return {"at": 0}

        def read(self, start: dict[str, int]) -> Any:
            end = {"at": len(list(Path(place).iterdir()))}
            return self.readBetweenOffsets(start, end), end

        def readBetweenOffsets(self, start: dict[str, int], end: dict[str, int]) -> Any:  # noqa: N802 - Spark's name
            return iter([(one,) for one in range(start["at"], end["at"])])

    class Files(DataSource):
        @classmethod
        def name(cls) -> str:
            return "counted-files"

        def schema(self) -> str:
            return "id long"

        def simpleStreamReader(self, schema: Any) -> Any:  # noqa: N802 - Spark's name
            return Reader()

    ctx.spark.dataSource.register(Files)
    return ctx.spark.readStream.format("counted-files").load()


def test_a_data_source_in_python_goes_on_behind_the_savepoint(scene: Scene) -> None:
    first, second = new_job(), new_job()
    scene.write(0)
    scene.write(0)
    assert scene.run(first, counted_files, table) == {"batches": 1, "rows": 2, "last_batch": 0}
    path = scene.savepoint(first, 0, sink=scene.directory / "table")
    for number in (3, 4):
        scene.write(0)
        assert not isinstance(done := scene.run(second, counted_files, table, path=path), FailureInfo), done
        assert scene.rows == list(range(number))


def rows_of_state(ctx: Any) -> Any:
    state = ctx.spark.read.format("statestore").load(ctx.params["place"])
    return sorted([row.key[0], row.value["count"]] for row in state.collect())


def test_sparks_own_reader_of_state_reads_a_savepoint(scene: Scene) -> None:
    job = new_job()
    scene.params["out"] = str(scene.directory / "lines")
    scene.write(0, 1, 2)
    scene.write(0, 1)
    scene.run(job, numbers, thirds, appended, is_batch_function=True, output_mode="complete")
    for batch, expected in ((0, [[0, 1], [1, 1], [2, 1]]), (1, [[0, 2], [1, 2], [2, 1]])):
        path = scene.savepoint(job, batch, name=str(batch))
        work = scene.slots.work(rows_of_state, params={"place": f"{path}/sink/0"})
        assert scene.slots.value(work) == expected
