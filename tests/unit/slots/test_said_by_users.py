"""What a slot process may name: root moves nothing for a task on its own host (R50), and files are its own (R52)."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import fsspec
import pytest
from fsspec.implementations.local import LocalFileSystem

from runtime.common.exchange import ExchangeMode
from runtime.common.ids import PartitionId
from runtime.common.states import ExecutionState
from runtime.gateways.task import (
    OutputDirectory,
    PartitionDescriptor,
    PartitionFile,
    PartitionKind,
    ResultPartitionSpec,
    TaskMetrics,
)
from runtime.taskexecutor.containment.users import TaskUser
from runtime.taskexecutor.slot_protocol.wire import TaskOutcome, WorkOrder
from runtime.taskexecutor.slots import slot_message_checks as said
from runtime.taskexecutor.slots.running_attempt import work_order
from tests.kit.spark.slot_work import slot_work

LOCAL = (
    "/etc/cron.d",
    "etc/cron.d",
    "file:/etc/cron.d",
    "file:///etc/cron.d",
    "local:/etc/cron.d",
    "local:///etc/cron.d",
    "c:///etc/cron.d",
    "simplecache::file:///etc/cron.d",
    "blockcache::local:///etc/cron.d",
    "dir::file:///etc/cron.d",
    "simplecache::/etc/cron.d",
    "generic://file:///etc/cron.d",
    "s3://bucket/x::file:///etc/cron.d",
    "hdfs:///etc/cron.d",
    "hdfs://default/etc/cron.d",
    "hdfs://root@default:0/etc/cron.d",
    "hdfs://:8020/etc/cron.d",
    "sftp://localhost/etc/cron.d",
    "plugin://anything/at/all",
)
STORAGE = (
    "s3://bucket/sales",
    "s3a://bucket/sales",
    "gs://bucket/sales",
    "abfs://container@account.dfs.core.windows.net/sales",
    "hdfs://namenode:8020/sales",
    "hdfs://alice@defaults.example/sales",
)


@pytest.fixture
def order(tmp_path: Any) -> WorkOrder:
    user = TaskUser(uid=20001, gid=20002, shared_gid=20000, directory=str(tmp_path), processes_max=10)
    made = work_order(
        slot_work(tmp_path, lambda ctx: 1, outputs=(ResultPartitionSpec(0, ExchangeMode.FORWARD, (), 1, 0),))
    )
    return replace(made, user=user)


def own_output(base: str, order: WorkOrder) -> bool:
    return said.is_own_output(OutputDirectory(base, f"{base}/.attempt-{order.attempt_id}", "overwrite"), order)


@pytest.mark.parametrize("base", LOCAL)
def test_root_moves_nothing_on_its_own_host(order: WorkOrder, base: str) -> None:
    assert not own_output(base, order)
    assert own_output(base, replace(order, user=None)), "it is the user's own host then"


@pytest.mark.parametrize("base", STORAGE)
def test_storage_is_committed_to(order: WorkOrder, base: str) -> None:
    assert own_output(base, order)


@pytest.mark.parametrize("base", ["local:///etc/cron.d", "c:///etc/cron.d", "simplecache::file:///etc/cron.d"])
def test_fsspec_has_other_names_for_local_files(base: str) -> None:
    files, _ = fsspec.core.url_to_fs(base)
    assert isinstance(files, LocalFileSystem) or files.fs.protocol == LocalFileSystem.protocol


@pytest.mark.parametrize("path", ["foo", "file:x", "", "..", "{own}", "{own}/", "{own}/..", "{own}/a/b", "/etc/passwd"])
def test_a_partition_names_files_in_its_own_directory_only(order: WorkOrder, path: str) -> None:
    partition_id = PartitionId(order.attempt_id, 0)
    own = f"{order.partition_directory}/{partition_id}"

    def claim(named: str) -> str:
        files = (PartitionFile(named, 1, 1, -1),)
        partition = PartitionDescriptor(partition_id, PartitionKind.PARQUET, own, "{}", files, b"")
        outcome = TaskOutcome(ExecutionState.FINISHED, None, b"", (partition,), (), TaskMetrics(), True, True, False)
        return said.foreign_claim(outcome, order)

    assert claim(f"{own}/part-0.parquet") == ""
    assert claim(path.format(own=own)).startswith("a result partition")


@pytest.mark.parametrize(
    ("consumer", "span", "is_good"),
    [
        (0, 4, True),
        (3, 1, True),
        (-1, 1, False),
        (0, 0, False),
        (3, 2, False),
        (0, 1 << 60, False),
        (1 << 60, 1, False),
    ],
)
def test_a_file_has_rows_of_subpartitions_that_there_are(
    order: WorkOrder, *, consumer: int, span: int, is_good: bool
) -> None:
    """R52: the owner of the job adds up what is in each of them."""
    dynamic = replace(order, outputs=(ResultPartitionSpec(0, ExchangeMode.HASH, ("k",), 4, 100, is_dynamic=True),))
    partition_id = PartitionId(order.attempt_id, 0)
    own = f"{order.partition_directory}/{partition_id}"
    files = (PartitionFile(f"{own}/part-0.parquet", 1, 1, consumer, span),)
    partition = PartitionDescriptor(partition_id, PartitionKind.PARQUET, own, "{}", files, b"")
    outcome = TaskOutcome(ExecutionState.FINISHED, None, b"", (partition,), (), TaskMetrics(), True, True, False)
    assert (said.foreign_claim(outcome, dynamic) == "") is is_good
