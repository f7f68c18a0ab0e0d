"""Exchanges between real slot processes: which consumer gets which rows, and what is refused."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import chain
from pathlib import Path
from typing import Any

import pytest

from runtime.common.exchange import ExchangeMode
from runtime.gateways.task import PartitionDescriptor, PartitionKind
from runtime.jobgraph.graph import OperatorKind
from tests.kit.spark.slot_box import SlotBox, gate, out
from tests.kit.spark.slot_work import operator
from tests.kit.spark.spark_box import SparkBox

pytestmark = pytest.mark.timeout(600)  # one JVM per module, and it may have to wait for its turn

HASH, REBALANCE, BROADCAST = ExchangeMode.HASH, ExchangeMode.REBALANCE, ExchangeMode.BROADCAST
GATHER, FORWARD = ExchangeMode.GATHER, ExchangeMode.FORWARD

Produced = list[tuple[PartitionDescriptor, ...]]


@pytest.fixture(scope="module")
def slots(shared_box: SparkBox, tmp_path_factory: pytest.TempPathFactory) -> Iterator[SlotBox]:
    box = SlotBox(shared_box, tmp_path_factory.mktemp("exchange"))
    yield box
    box.stop()


def numbers(ctx: Any) -> Any:
    """100 ids of its own per subtask."""
    start = 100 * ctx.subtask_index
    return ctx.spark.range(start, start + 100)


def ids(ctx: Any, *frames: Any) -> Any:
    return [sorted(row.id for row in frame.collect()) for frame in frames]


def consume(slots: SlotBox, produced: Produced, mode: ExchangeMode, consumers: int, *keys: str) -> list[list[int]]:
    """The ids that each consumer gets."""
    inputs = (gate(mode, produced, *keys),)
    return [slots.value(slots.work(ids, subtask=i, parallelism=consumers, inputs=inputs))[0] for i in range(consumers)]


def test_hash_gives_each_key_to_the_same_consumer(slots: SlotBox) -> None:
    produced = slots.produce(numbers, out(HASH, 3, "id"), parallelism=2)
    got = consume(slots, produced, HASH, 3, "id")
    assert sorted(chain.from_iterable(got)) == list(range(200))
    assert all(got)

    def expected(ctx: Any) -> Any:
        from pyspark.sql import functions as F  # noqa: N812 - as everybody does

        frame = ctx.spark.range(200).withColumn("c", F.expr("pmod(hash(id), 3)"))
        return [sorted(row.id for row in frame.collect() if row.c == i) for i in range(3)]

    assert got == slots.value(expected)
    files = [file for (partition,) in produced for file in partition.files]
    assert len(files) == 6  # one per producer and consumer
    assert sum(file.rows for file in files) == 200
    assert all(Path(file.path).stat().st_size == file.size_bytes for file in files)


def test_keys_of_different_width_meet(slots: SlotBox) -> None:
    def narrow(ctx: Any) -> Any:
        return ctx.spark.range(50).selectExpr("cast(id as int) as k", "cast(id as float) as f", "id")

    def wide(ctx: Any) -> Any:
        return ctx.spark.range(50).selectExpr("id as K", "cast(-id * -1.0 as double) as f", "id")

    left = slots.produce(narrow, out(HASH, 2, "k", "f"))
    right = slots.produce(wide, out(HASH, 2, "k", "f"), vertex="right")
    for i in range(2):
        inputs = (gate(HASH, left, "k", "f", name="l"), gate(HASH, right, "k", "f", name="r"))
        mine, others = slots.value(slots.work(ids, subtask=i, parallelism=2, inputs=inputs))
        assert mine == others
        assert mine


def test_keys_of_different_kinds_are_refused(slots: SlotBox) -> None:
    left = slots.produce(numbers, out(HASH, 1, "id"))
    right = slots.produce(
        lambda ctx: ctx.spark.range(3).selectExpr("cast(id as string) as id"), out(HASH, 1, "id"), vertex="right"
    )
    inputs = (gate(HASH, left, "id", name="orders"), gate(HASH, right, "id", name="days"))
    failure = slots.failure(slots.work(ids, inputs=inputs))
    assert "'orders'.id is bigint, 'days'.id is string" in failure.message


def test_a_missing_key_names_the_columns(slots: SlotBox) -> None:
    failure = slots.failure(slots.work(numbers, outputs=(out(HASH, 2, "day"),)))
    assert "hashed by 'day'" in failure.message
    assert "it has id" in failure.message


def test_rebalance_gives_about_equal_shares(slots: SlotBox) -> None:
    got = consume(slots, slots.produce(numbers, out(REBALANCE, 3), parallelism=2), REBALANCE, 3)
    assert sorted(chain.from_iterable(got)) == list(range(200))
    assert all(55 <= len(part) <= 78 for part in got)


def test_broadcast_gives_everything_to_all(slots: SlotBox) -> None:
    got = consume(slots, slots.produce(numbers, out(BROADCAST, 2), parallelism=2), BROADCAST, 2)
    assert got == [list(range(200))] * 2


def test_gather_gives_everything_to_one(slots: SlotBox) -> None:
    assert consume(slots, slots.produce(numbers, out(GATHER, 1), parallelism=2), GATHER, 1) == [list(range(200))]


def test_forward_gives_each_its_own(slots: SlotBox) -> None:
    got = consume(slots, slots.produce(numbers, out(FORWARD, 2), parallelism=2), FORWARD, 2)
    assert got == [list(range(100)), list(range(100, 200))]


def test_an_empty_partition_is_an_empty_frame(slots: SlotBox) -> None:
    def empty(ctx: Any) -> Any:
        return ctx.spark.range(10).where("id < 0").selectExpr("id", "array(id) as a", "named_struct('x', 1.5D) as s")

    def look(ctx: Any, frame: Any) -> Any:
        return [frame.count(), frame.schema.simpleString()]

    for mode, consumers in ((HASH, 2), (GATHER, 1), (REBALANCE, 2)):
        [(partition,)] = produced = slots.produce(empty, out(mode, consumers, *(["id"] if mode is HASH else [])))
        assert partition.files == ()
        assert slots.value(slots.work(look, parallelism=consumers, inputs=(gate(mode, produced, "id"),))) == [
            0,
            "struct<id:bigint,a:array<bigint>,s:struct<x:double>>",
        ]


def test_values_reach_every_consumer_in_subtask_order(slots: SlotBox) -> None:
    produced = slots.produce(lambda ctx: {"n": ctx.subtask_index}, out(HASH, 2, "n"), parallelism=3)
    assert {partition.kind for (partition,) in produced} == {PartitionKind.JSON}
    for i in range(2):
        work = slots.work(lambda ctx, values: values, subtask=i, inputs=(gate(HASH, produced, "n"),))
        assert slots.value(work) == [{"n": 0}, {"n": 1}, {"n": 2}]


def test_none_and_mixed_kinds_are_refused(slots: SlotBox) -> None:
    failure = slots.failure(slots.work(lambda ctx: None, outputs=(out(GATHER, 1),)))
    assert "returned None, but it has a consumer" in failure.message

    def either(ctx: Any) -> Any:
        return 1 if ctx.subtask_index else ctx.spark.range(1)

    produced = slots.produce(either, out(GATHER, 1), parallelism=2)
    assert "different kinds" in slots.failure(slots.work(ids, inputs=(gate(GATHER, produced),))).message


def test_different_columns_of_one_vertex_are_refused(slots: SlotBox) -> None:
    def shifting(ctx: Any) -> Any:
        return ctx.spark.range(1).toDF("a" if ctx.subtask_index else "b")

    produced = slots.produce(shifting, out(GATHER, 1), parallelism=2)
    assert "different columns" in slots.failure(slots.work(ids, inputs=(gate(GATHER, produced),))).message


def test_a_frame_without_consumer_is_refused(slots: SlotBox) -> None:
    assert "write it or return a value" in slots.failure(numbers).message
    assert "ctx.spark.createDataFrame" in slots.failure(lambda ctx: ctx.spark.range(1).toPandas()).message


def counting_source(ctx: Any) -> Any:
    """Appends a letter to a file whenever a row is made."""
    import pathlib

    witness = ctx.params["witness"]

    def note(rows: Any) -> Any:
        for row in rows:
            with pathlib.Path(witness).open("a") as file:
                file.write("x")
            yield row

    return ctx.spark.sparkContext.parallelize([(1,), (2,)], 1).mapPartitions(note).toDF("id int")


def test_a_chain_is_lazy_and_its_source_runs_once(slots: SlotBox, tmp_path: Path) -> None:
    witness = tmp_path / "rows"
    operators = [
        operator(counting_source, "source"),
        operator(lambda ctx, frame: frame.withColumn("seen", __import__("pyspark").sql.functions.lit(1)), "map"),
        operator(lambda ctx, frame: frame.where("id > 0"), "filter"),
    ]
    specs = (out(HASH, 2, "id"), out(BROADCAST, 2, output=1), out(GATHER, 1, output=2))
    report = slots.report(slots.work(*operators, params={"witness": str(witness)}, outputs=specs))
    assert [sum(file.rows for file in partition.files) for partition in report.partitions] == [2, 2, 2]
    assert witness.read_text() == "xx"
    assert report.metrics.write_records == 6
    read = slots.report(slots.work(ids, inputs=(gate(GATHER, [report.partitions], output=2),)))
    assert read.metrics.read_records == 2


def test_the_partition_is_the_attempts_own(slots: SlotBox) -> None:
    work = slots.work(numbers, outputs=(out(GATHER, 1),))
    [partition] = slots.report(work).partitions
    name = f"{work.task.attempt_id}_0"
    assert partition.directory == f"{work.exchange_directory}/{work.job.job_id}/{name}"
    assert not [path for path in Path(partition.directory).iterdir() if path.name in {"_SUCCESS", "_temporary"}]


def test_many_files_are_read_without_a_listing_job(slots: SlotBox) -> None:
    produced = slots.produce(lambda ctx: ctx.spark.range(200).repartition(40), out(GATHER, 1))
    assert len(produced[0][0].files) == 40

    def count(ctx: Any, frame: Any) -> Any:
        tracker = ctx.spark.sparkContext._jsc.sc().statusTracker()
        before = len(list(tracker.getJobIdsForGroup(None)))
        return [frame.count(), ctx.spark.conf.get("spark.sql.sources.parallelPartitionDiscovery.threshold"), before]

    rows, threshold, _ = slots.value(slots.work(count, inputs=(gate(GATHER, produced),)))
    assert (rows, threshold) == (200, "32")


def test_a_source_gets_its_share_of_splits_that_another_task_has_found(slots: SlotBox) -> None:
    def find(ctx: Any) -> Any:
        return (f"part-{number}" for number in range(5))

    def read(ctx: Any) -> Any:
        return list(ctx.splits)

    found = slots.report(slots.work(operator(find, "find", OperatorKind.SPLITS), outputs=(out(BROADCAST, 2),)))
    inputs = (gate(BROADCAST, [found.partitions]),)
    source = operator(read, "read", OperatorKind.SOURCE)
    got = [slots.value(slots.work(source, subtask=i, parallelism=2, inputs=inputs)) for i in range(2)]
    assert got == [["part-0", "part-2", "part-4"], ["part-1", "part-3"]]


@pytest.mark.parametrize("returned", ["None", "{'a': 1}", "'text'", "7", "ctx.spark.range(3)"])
def test_splits_are_a_list(slots: SlotBox, returned: str) -> None:
    def find(ctx: Any) -> Any:
        return eval(returned)

    failure = slots.failure(slots.work(operator(find, "find", OperatorKind.SPLITS), outputs=(out(BROADCAST, 1),)))
    assert failure.message.startswith("'find' returned a ")
    assert failure.message.endswith("return the splits as a list of JSON values")


def test_many_splits_are_a_file(slots: SlotBox) -> None:
    """Far above what a value may have: each subtask reads them, and the owner of the job counts them."""

    def find(ctx: Any) -> Any:
        return [f"/data/part-{number:06d}" for number in range(30_000)]

    found = slots.report(slots.work(operator(find, "find", OperatorKind.SPLITS), outputs=(out(BROADCAST, 2),)))
    (partition,) = found.partitions
    (file,) = partition.files
    assert (partition.kind, file.rows) == (PartitionKind.JSON, 30_000)
