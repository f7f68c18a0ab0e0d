"""What a failed task says: which of its inputs could not be read, and whether a restart can help."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import fsspec
import pytest

from runtime.common.errors import InvalidInputError, NonRecoverableError
from runtime.common.exchange import ExchangeMode, InputShare
from runtime.common.ids import ExecutionAttemptId, PartitionId, VertexId
from runtime.gateways.task import FailureInfo, Fault, InputGate, PartitionDescriptor, PartitionFile, PartitionKind
from runtime.taskexecutor.slot_process import causes, own_failures
from runtime.taskexecutor.slot_process.lost_partitions import lost_partitions, with_lost_partitions
from runtime.taskexecutor.slot_process.partition_files import write_value
from runtime.taskexecutor.slot_protocol.wire import WorkOrder
from runtime.taskexecutor.slots.running_attempt import work_order
from tests.kit.spark.slot_work import JOB, slot_work


def partition_id(producer: int) -> PartitionId:
    return PartitionId(ExecutionAttemptId(JOB, VertexId("a" * 32), producer, 1, 0), 0)


def of_rows(directory: Path, producer: int, consumer: int = -1) -> PartitionDescriptor:
    import pyarrow as pa
    from pyarrow import parquet

    path = directory / f"part-{producer}.parquet"
    parquet.write_table(pa.table({"x": list(range(1000))}), path)
    file = PartitionFile(str(path), path.stat().st_size, 1000, consumer)
    return PartitionDescriptor(partition_id(producer), PartitionKind.PARQUET, str(directory), "{}", (file,), b"")


def of_value(directory: str, producer: int) -> PartitionDescriptor:
    path = write_value(f"{directory}/{producer}", b'{"a": 1}')
    file = PartitionFile(path, 8, 0, -1)
    return PartitionDescriptor(partition_id(producer), PartitionKind.JSON, directory, "", (file,), b"")


def order_of(
    directory: Path, *partitions: PartitionDescriptor, mode: ExchangeMode = ExchangeMode.REBALANCE, subtask: int = 0
) -> WorkOrder:
    gate = InputGate("up", mode, (), partitions)
    return work_order(slot_work(directory, "json:dumps", subtask=subtask, inputs=(gate,)))


def damage_by_truncating(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-10])


def damage_by_overwriting(path: Path) -> None:
    path.write_bytes(b"\0" * path.stat().st_size)


@pytest.mark.parametrize(
    ("damage", "problem"),
    [
        (Path.unlink, "is missing"),
        (damage_by_truncating, "bytes, it was written with"),
        (damage_by_overwriting, "cannot be read"),
    ],
)
@pytest.mark.parametrize("kind", ["rows", "value"])
def test_what_cannot_be_read_is_named(tmp_path: Path, damage: Callable[[Path], None], problem: str, kind: str) -> None:
    if kind == "rows":
        partitions = [of_rows(tmp_path, number) for number in range(3)]
    else:
        partitions = [of_value(str(tmp_path), number) for number in range(3)]
    if damage is damage_by_truncating and kind == "value":
        Path(partitions[1].files[0].path).write_bytes(b"{}")
    else:
        damage(Path(partitions[1].files[0].path))
    lost = lost_partitions(order_of(tmp_path, *partitions))
    assert lost.partition_ids == (partition_id(1),)
    assert problem in lost.problem


def test_what_can_be_read_is_not_named(tmp_path: Path) -> None:
    inline = replace(of_value(str(tmp_path), 2), files=(), inline=b"1")
    order = order_of(tmp_path, of_rows(tmp_path, 0), of_value(str(tmp_path), 1), inline)
    assert lost_partitions(order).partition_ids == ()


def test_files_of_other_readers_are_none_of_the_tasks_business(tmp_path: Path) -> None:
    partition = of_rows(tmp_path, 0, consumer=1)
    Path(partition.files[0].path).unlink()
    assert lost_partitions(order_of(tmp_path, partition, subtask=0)).partition_ids == ()
    assert lost_partitions(order_of(tmp_path, partition, subtask=1)).partition_ids == (partition_id(0),)
    forward = replace(partition, files=(replace(partition.files[0], consumer=-1),))
    other = order_of(tmp_path, forward, mode=ExchangeMode.FORWARD, subtask=1)
    assert lost_partitions(other).partition_ids == ()


def test_object_stores_are_asked_too(tmp_path: Path) -> None:
    partition = of_value("memory://exchange/lost", 0)
    assert lost_partitions(order_of(tmp_path, partition)).partition_ids == ()
    fsspec.filesystem("memory").rm("/exchange/lost", recursive=True)
    assert lost_partitions(order_of(tmp_path, partition)).partition_ids == (partition_id(0),)


def test_the_failure_names_the_partitions_and_keeps_its_story(tmp_path: Path) -> None:
    own = FailureInfo("Py4JJavaError", "an error", "the stack", "USER", is_recoverable=True, timestamp_millis=5)
    partition = of_value(str(tmp_path), 0)
    order = order_of(tmp_path, partition)
    assert with_lost_partitions(own, order) == own
    Path(partition.files[0].path).unlink()
    assert with_lost_partitions(own, order) == FailureInfo(
        "PartitionUnavailableError",
        f"input partitions cannot be read: {partition.files[0].path} is missing (Py4JJavaError)",
        "the stack",
        "SYSTEM",
        is_recoverable=True,
        timestamp_millis=5,
        lost_partitions=(partition_id(0),),
        fault=Fault.SYSTEM,
    )
    missing = replace(own, is_restart_vain=True)
    assert not with_lost_partitions(missing, order).is_restart_vain, "what Spark calls a missing path is an input"
    final = replace(own, is_recoverable=False)
    assert with_lost_partitions(final, order) == final


def test_storage_that_does_not_answer_is_no_problem_of_the_file(tmp_path: Path) -> None:
    strange = replace(of_value(str(tmp_path), 0), files=(PartitionFile("unheard-of://x/value.json", 8, 0, -1),))
    assert lost_partitions(order_of(tmp_path, strange)).partition_ids == ()


class OwnRefusalError(NonRecoverableError):
    """User code may have its own."""


@pytest.mark.parametrize(
    ("error", "is_recoverable"),
    [
        (ValueError("x"), True),
        (MemoryError(), True),
        (causes.SparkUnavailableError("x"), True),
        (causes.TaskError("x"), True),
        (causes.UnusableCodeError("x"), False),
        (NonRecoverableError("x"), False),
        (OwnRefusalError("x"), False),
        (InvalidInputError("a static conf is refused"), False),
    ],
)
def test_what_would_come_again_is_not_worth_a_restart(error: Exception, *, is_recoverable: bool) -> None:
    assert own_failures.of_exception(error, timestamp_millis=1).is_recoverable == is_recoverable


def test_the_error_for_users_loads_nothing_heavy() -> None:
    code = (
        "import sys; from airflow_flinklike import NonRecoverableError; NonRecoverableError('x'); "
        "heavy = {'pydantic', 'airflow', 'pyspark', 'grpc', 'httpx', 'pyarrow'} & set(sys.modules); "
        "sys.exit(str(heavy) if heavy else 0)"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


def test_a_file_of_a_share_is_looked_at_by_who_reads_it(tmp_path: Path) -> None:
    """R66: its number is the first subpartition that it has rows of, and none of a subtask."""
    partition = of_rows(tmp_path, 0)
    (file,) = partition.files
    partition = replace(partition, files=(replace(file, consumer=0, span=64),))
    Path(file.path).unlink()
    for share, is_lost in ((InputShare(32, 128), True), (InputShare(0, 1), True), (InputShare(64, 128), False)):
        gate = InputGate("up", ExchangeMode.HASH, ("x",), (partition,), share, 128)
        order = work_order(slot_work(tmp_path, "json:dumps", subtask=7, inputs=(gate,)))
        assert bool(lost_partitions(order).partition_ids) is is_lost


def test_what_a_share_has_read_is_its_part_of_a_file() -> None:
    gate = InputGate("up", ExchangeMode.HASH, ("x",), (), InputShare(32, 96), 128)
    assert gate.part_read(PartitionFile("f", 10, 10, 0, span=64), 5) == 0.5
    assert gate.part_read(PartitionFile("f", 10, 10, 96, span=32), 5) == 0.0
    halves = replace(gate, share=InputShare(0, 64, 1, 2, 0))
    assert halves.part_read(PartitionFile("f", 10, 10, 0, span=64), 5) == 0.5
    assert replace(gate, share=None).part_read(PartitionFile("f", 10, 10, 5), 5) == 1.0
    assert replace(gate, share=None).part_read(PartitionFile("f", 10, 10, 4), 5) == 0.0
