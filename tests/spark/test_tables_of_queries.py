"""A table of files is of one query: Spark would leave out the rows of another one without a word (R59)."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from runtime.common.ids import JobId
from runtime.common.states import ExecutionState
from runtime.gateways.task import FailureInfo
from runtime.jobgraph.streams import StreamTrigger, TriggerKind
from tests.kit.spark.slot_box import SlotBox
from tests.kit.spark.slot_work import query
from tests.kit.spark.spark_box import SparkBox

pytestmark = pytest.mark.timeout(600)  # one JVM per module, and it may have to wait for its turn

NOW = StreamTrigger(kind=TriggerKind.AVAILABLE_NOW)
_jobs = iter(range(1, 10_000))


@pytest.fixture(scope="module")
def slots(shared_box: SparkBox, tmp_path_factory: pytest.TempPathFactory) -> Iterator[SlotBox]:
    if not shared_box.environment.is_ready:
        shared_box.run(shared_box.environment.restart())
    box = SlotBox(shared_box, tmp_path_factory.mktemp("slots"))
    yield box
    box.stop()


@pytest.fixture
def job() -> JobId:
    return JobId(f"7{next(_jobs):031x}")


def files(ctx: Any) -> Any:
    share = ctx.splits[0] if ctx.splits else ""
    return ctx.spark.readStream.schema("id long").json(f"{ctx.params['in']}/{share}")


def table(ctx: Any, df: Any) -> Any:
    return df.writeStream.format("parquet").option("path", ctx.params["out"])


def table_of_subtask(ctx: Any, df: Any) -> Any:
    return df.writeStream.option("path", f"{ctx.params['out']}/{ctx.subtask_index}")


def write(directory: Path, ids: range) -> None:
    directory.mkdir(parents=True, exist_ok=True)
    hidden = directory / f".{ids.start}.json"
    hidden.write_text("".join(json.dumps({"id": one}) + "\n" for one in ids))
    hidden.rename(directory / f"{ids.start}.json")


def value(slots: SlotBox, *parts: Any, **options: Any) -> Any:
    report = _report(slots, *parts, **options)
    assert report.state is ExecutionState.FINISHED, report.failure and report.failure.stack_trace
    return json.loads(report.value)


def refused(slots: SlotBox, *parts: Any, **options: Any) -> FailureInfo:
    report = _report(slots, *parts, **options)
    failure: FailureInfo | None = report.failure
    assert failure is not None, report.value
    assert not failure.is_recoverable, failure
    return failure


def _report(slots: SlotBox, *parts: Any, **options: Any) -> Any:
    listener, running = slots.begin(slots.work(*parts, **options))
    slots.end(running)
    return listener.terminal


def test_a_query_does_not_begin_in_the_table_of_another_one(slots: SlotBox, job: JobId, tmp_path: Path) -> None:
    params = {"in": str(tmp_path / "in"), "out": str(tmp_path / "out")}
    parts = query(files, table, trigger=NOW)
    write(tmp_path / "in", range(10))
    assert value(slots, *parts, job_id=job, params=params)["rows"] == 10
    write(tmp_path / "in", range(10, 15))
    message = refused(slots, *parts, job_id=JobId(f"8{job[1:]}"), params=params).message
    assert "begins at batch 0, and the table" in message
    assert "has batches up to 0 of an earlier query" in message
    assert "the same checkpoint_name" in message
    assert value(slots, *parts, job_id=job, params=params)["rows"] == 5, "its own query goes on"


def test_two_subtasks_do_not_write_to_one_table(slots: SlotBox, job: JobId, tmp_path: Path) -> None:
    params = {"in": str(tmp_path / "in"), "out": str(tmp_path / "out")}
    for share in ("north", "south"):
        write(tmp_path / "in" / share, range(10))
    own = query(files, table_of_subtask, trigger=NOW)
    one = query(files, table, trigger=NOW)
    two = {"job_id": job, "params": params, "parallelism": 2}
    for subtask, share in enumerate(("north", "south")):
        assert value(slots, *own, **two, subtask=subtask, splits=(share,))["rows"] == 10
    of_another = {**two, "job_id": JobId(f"9{job[1:]}"), "params": {**params, "out": str(tmp_path / "one")}}
    assert value(slots, *one, **of_another, subtask=0, splits=("north",))["rows"] == 10
    message = refused(slots, *one, **of_another, subtask=1, splits=("south",)).message
    assert "two queries of the job write to the table" in message
    assert "'sink', subtask 0, and 'sink', subtask 1" in message
    assert "a path of its own" in message


def test_jobs_of_one_checkpoint_name_follow_each_other(slots: SlotBox, job: JobId, tmp_path: Path) -> None:
    named = {"params": {"in": str(tmp_path / "in"), "out": str(tmp_path / "out")}, "checkpoint_name": f"of {job}"}
    for number in range(3):
        write(tmp_path / "in", range(number * 10, number * 10 + 10))
        parts = query(files, table, trigger=NOW)
        assert value(slots, *parts, **named, job_id=JobId(f"{number}{job[1:]}"))["rows"] == 10
    renamed = query(files, table, trigger=NOW, uid="another")
    assert "batches up to 2" in refused(slots, *renamed, **named, job_id=JobId(f"4{job[1:]}")).message
    marks = [one.name for one in slots.directory.rglob(f"of {job}/_tables/*/*")]
    assert marks == [f"4{job[1:]}.0.another"], "those of jobs that have ended go"


def test_a_directory_that_cannot_be_written_is_told_by_its_option(slots: SlotBox, job: JobId, tmp_path: Path) -> None:
    (slots.directory / "checkpoints").mkdir(exist_ok=True)
    (slots.directory / "checkpoints" / job).write_text("a file where a directory has to be")
    params = {"in": str(tmp_path / "in"), "out": str(tmp_path / "out")}
    write(tmp_path / "in", range(3))
    failure = _report(slots, *query(files, table, trigger=NOW), job_id=job, params=params).failure
    assert "execution.checkpointing.dir must be a directory that Spark of all TaskManagers may write" in failure.message
