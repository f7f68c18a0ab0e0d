"""What travels between vertices beside rows: schemas once, small JSON values inline, larger ones as files."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any, NoReturn

import pytest

from runtime.common.exchange import ExchangeMode
from runtime.gateways.task import InputGate, PartitionDescriptor, PartitionKind, ResultPartitionSpec
from runtime.taskexecutor.slot_process.causes import TaskError
from runtime.taskexecutor.slot_process.exchange import Exchange
from runtime.taskexecutor.slot_process.routing import common_schema
from runtime.taskexecutor.slots.running_attempt import work_order
from tests.kit.spark.slot_work import slot_work

SMALL = {"n": "x" * 90}
LARGE = {"n": "ü" * 100}


def no_spark() -> NoReturn:
    raise AssertionError


def exchange(directory: Path, partitions: str = "", **fields: Any) -> Exchange:
    order = work_order(slot_work(directory, "json:dumps", **fields))
    return Exchange(replace(order, partition_directory=partitions or order.partition_directory), no_spark, 1000)


def to(consumers: int, *, output: int = 0, inline_size_max: int = 100) -> ResultPartitionSpec:
    return ResultPartitionSpec(output, ExchangeMode.BROADCAST, (), consumers, inline_size_max)


def read(directory: Path, mode: ExchangeMode, *partitions: PartitionDescriptor, subtask: int = 0) -> list[Any]:
    return exchange(directory, subtask=subtask, inputs=(InputGate("up", mode, (), partitions),)).read_inputs()


@pytest.mark.parametrize("where", ["", "memory://exchange/job"])
def test_a_large_value_is_a_file(tmp_path: Path, where: str) -> None:
    small, large = (
        exchange(tmp_path, where, outputs=(to(2),), subtask=subtask).write_outputs("up", value)[0]
        for subtask, value in enumerate((SMALL, LARGE))
    )
    assert small.kind is large.kind is PartitionKind.JSON
    assert (small.directory, small.files) == ("", ())
    assert (large.inline, large.directory.rpartition("/")[2]) == (b"", str(large.partition_id))
    assert [file.size_bytes for file in large.files] == [208]
    for mode in (ExchangeMode.GATHER, ExchangeMode.BROADCAST, ExchangeMode.HASH, ExchangeMode.REBALANCE):
        assert read(tmp_path, mode, small, large) == [[SMALL, LARGE]]
    assert read(tmp_path, ExchangeMode.FORWARD, small, large, subtask=1) == [[LARGE]]


def test_each_edge_has_its_own_limit(tmp_path: Path) -> None:
    specs = (to(1, inline_size_max=98), to(1, output=1, inline_size_max=97))
    inline, file = exchange(tmp_path, outputs=specs).write_outputs("up", SMALL)
    assert (len(inline.inline), len(file.inline), len(file.files)) == (98, 0, 1)
    assert read(tmp_path, ExchangeMode.GATHER, inline, file) == [[SMALL, SMALL]]


def schema(kind: str) -> str:
    return f'{{"type":"struct","fields":[{{"name":"a","type":"{kind}","nullable":true,"metadata":{{}}}}]}}'


def test_a_schema_that_is_left_out_is_that_of_the_first() -> None:
    assert common_schema("up", [schema("long"), "", ""]).simpleString() == "struct<a:bigint>"
    with pytest.raises(TaskError, match="struct<a:bigint> and struct<a:string>"):
        common_schema("up", [schema("long"), "", schema("string")])
