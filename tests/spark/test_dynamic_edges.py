"""Rows of edges to consumers whose number is chosen later (R66): each is read once, by the share that it belongs to."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import chain
from pathlib import Path
from typing import Any

import pytest

from runtime.common.exchange import ExchangeMode, InputShare
from runtime.executiongraph.core.edges import ExecutionEdge
from runtime.gateways.task import InputGate, PartitionDescriptor
from runtime.taskexecutor.slot_process import subpartitions
from tests.kit.control_plane.job_graphs import edge
from tests.kit.spark.slot_box import SlotBox, out
from tests.kit.spark.spark_box import SparkBox

pytestmark = pytest.mark.timeout(600)

HASH, REBALANCE = ExchangeMode.HASH, ExchangeMode.REBALANCE
COUNT = 128
Produced = list[tuple[PartitionDescriptor, ...]]
SHARES = (InputShare(0, 40), InputShare(40, 41), InputShare(41, COUNT), InputShare(COUNT, COUNT))


@pytest.fixture(scope="module")
def slots(shared_box: SparkBox, tmp_path_factory: pytest.TempPathFactory) -> Iterator[SlotBox]:
    box = SlotBox(shared_box, tmp_path_factory.mktemp("dynamic"))
    yield box
    box.stop()


def few(ctx: Any) -> Any:
    """100 ids of its own per subtask, of which Spark knows that they are little: a file of each Spark partition."""
    start = 100 * ctx.subtask_index
    return ctx.spark.range(start, start + 100, 1, 3)


def joined(ctx: Any) -> Any:
    """As many again, of which Spark expects the product of both sides."""
    others = ctx.spark.range(0, 100_000, 1, 1)
    return few(ctx).join(others.hint("merge"), "id")


def from_python(ctx: Any) -> Any:
    """As many, of which Spark has no estimate."""
    start = 100 * ctx.subtask_index
    return ctx.spark.createDataFrame([(number,) for number in range(start, start + 100)], "id bigint")


def many(ctx: Any) -> Any:
    """For which Spark expects six ranges; almost all rows are filtered away where the estimate does not see it."""
    return ctx.spark.range(24_000_000).where("id % 240000 = 7").selectExpr("id + id div 24000000 as id")


def ids(ctx: Any, *frames: Any) -> Any:
    return [sorted(row.id for row in frame.collect()) for frame in frames]


def gates(produced: Produced, mode: ExchangeMode, shares: Sequence[InputShare], **how: Any) -> list[InputGate]:
    """What the owner of a job gives to each consumer."""
    keys = ("id",) if mode is HASH else ()
    found = ExecutionEdge(
        edge("read", "use", mode, key_columns=keys),
        output=0,
        source_name="read",
        parallelism=len(produced),
        consumer_parallelism=0,
        subpartitions=COUNT,
        is_dynamic=True,
        inline_size_max=100,
    )
    for number, (partition,) in enumerate(produced):
        found.accept(number, partition)
    found.consumers_decided(len(shares), tuple(shares), is_broadcast=how.get("is_broadcast", False))
    return [found.gate(consumer) for consumer in range(len(shares))]


def produce(slots: SlotBox, function: Any, mode: ExchangeMode, parallelism: int = 2) -> Produced:
    keys = ["id"] if mode is HASH else []
    return slots.produce(function, replace(out(mode, COUNT, *keys), is_dynamic=True), parallelism=parallelism)


def consume(slots: SlotBox, inputs: Sequence[InputGate]) -> list[list[int]]:
    count = len(inputs)
    return [slots.value(slots.work(ids, subtask=i, parallelism=count, inputs=(inputs[i],)))[0] for i in range(count)]


@pytest.mark.parametrize(("function", "ranges"), [(few, 1), (joined, 1), (from_python, 4), (many, 6)])
@pytest.mark.parametrize("mode", [HASH, REBALANCE])
def test_each_row_is_in_one_share(slots: SlotBox, function: Any, ranges: int, mode: ExchangeMode) -> None:
    parallelism = 1 if function is many else 2
    produced = produce(slots, function, mode, parallelism)
    if ranges == 1:
        spans = {(file.consumer, file.span) for (partition,) in produced for file in partition.files}
        assert spans == {(0, COUNT)}
        assert function is joined or all(len(partition.files) == 3 for (partition,) in produced)
    else:
        written = [len(partition.files) for (partition,) in produced]
        assert all(0 < number <= ranges for number in written), written
        assert max(written) > ranges // 2
    got = consume(slots, gates(produced, mode, SHARES))
    expected = range(7, 24_000_000, 240_000) if function is many else range(200)
    assert sorted(chain.from_iterable(got)) == list(expected)
    assert all(got[:1] + got[2:3])
    assert got[3] == []
    if mode is HASH:

        def by_hand(ctx: Any) -> Any:
            frame = ctx.spark.createDataFrame([(number,) for number in expected], "id bigint")
            rows = frame.selectExpr("id", f"pmod(hash(id), {COUNT}) as c").collect()
            return [sorted(row.id for row in rows if share.first <= row.c < share.end) for share in SHARES]

        assert got == slots.value(by_hand)


def test_a_share_within_two_files_reads_both(slots: SlotBox) -> None:
    """It begins in one of four files and ends in the next; so does each other one."""
    produced = produce(slots, from_python, HASH)
    shares = [InputShare(0, 20), InputShare(20, 50), InputShare(50, 80), InputShare(80, COUNT)]
    got = consume(slots, gates(produced, HASH, shares))
    assert sorted(chain.from_iterable(got)) == list(range(200))
    assert all(got)


def test_what_was_expected_to_be_small_is_divided_after_all(slots: SlotBox) -> None:
    """Rows that `explode` makes are not in Spark's estimate. Their numbers stay, though files change the keys."""

    def exploded(ctx: Any) -> Any:
        subpartitions._UNDIVIDED_BYTES_MAX, subpartitions._BYTES_PER_RANGE = 1 << 20, 1 << 19
        ctx.spark.conf.set("spark.sql.parquet.outputTimestampType", "TIMESTAMP_MILLIS")
        numbers = ctx.spark.range(0, 16, 1, 2).selectExpr("explode(sequence(id * 10000, id * 10000 + 9999)) as n")
        return numbers.selectExpr("timestamp_micros(n * 1001) as id", "xxhash64(n) as content")

    def count(ctx: Any, frame: Any) -> Any:
        return [frame.count(), frame.where("second(id) < 0").count()]

    def by_hand(ctx: Any) -> Any:
        return exploded(ctx).where(f"pmod(hash(id), {COUNT}) < 40").count()

    produced = produce(slots, exploded, HASH, 1)
    files = produced[0][0].files
    assert len(files) > 2
    assert all(0 < file.span <= COUNT / 2 for file in files)
    assert len(list(Path(produced[0][0].directory).glob("part-*.parquet"))) == len(files)
    inputs = gates(produced, HASH, SHARES)
    got = [slots.value(slots.work(count, subtask=i, parallelism=4, inputs=(inputs[i],)))[0] for i in range(4)]
    assert sum(got) == 160_000
    assert got[0] == slots.value(by_hand)


def test_a_key_that_a_file_changes_is_read_once(slots: SlotBox) -> None:
    """Parquet keeps milliseconds if it is told to: what is read back has another hash, and the rows are the same."""

    def times(ctx: Any) -> Any:
        ctx.spark.conf.set("spark.sql.parquet.outputTimestampType", "TIMESTAMP_MILLIS")
        return ctx.spark.range(500).selectExpr("timestamp_micros(id * 1001) as id")

    def count(ctx: Any, frame: Any) -> Any:
        return frame.count()

    inputs = gates(produce(slots, times, HASH, 1), HASH, SHARES)
    got = [slots.value(slots.work(count, subtask=i, parallelism=4, inputs=(inputs[i],))) for i in range(4)]
    assert sum(got) == 500
    assert all(got[:1] + got[2:3])


def test_rows_alike_are_rebalanced_evenly(slots: SlotBox) -> None:
    def alike(ctx: Any) -> Any:
        return ctx.spark.range(1000).selectExpr("1 as `a.b`", "2 as `_subpartition`")

    def count(ctx: Any, frame: Any) -> Any:
        return [frame.count(), frame.columns]

    shares = [InputShare(32 * number, 32 * number + 32) for number in range(4)]
    inputs = gates(produce(slots, alike, REBALANCE, 1), REBALANCE, shares)
    got = [slots.value(slots.work(count, subtask=i, parallelism=4, inputs=(inputs[i],))) for i in range(4)]
    assert [columns for _, columns in got] == [["a.b", "_subpartition"]] * 4
    assert sum(rows for rows, _ in got) == 1000
    assert all(200 <= rows <= 300 for rows, _ in got)


def test_the_heaviest_subpartition_of_a_file_is_told(slots: SlotBox) -> None:
    def skewed(ctx: Any) -> Any:
        return ctx.spark.range(0, 1000, 1, 2).selectExpr("if(id < 900, 7, id) as id")

    ((partition,),) = produce(slots, skewed, HASH, 1)
    assert [(file.consumer, file.span, file.rows) for file in partition.files] == [(0, COUNT, 500)] * 2
    assert [file.heaviest_rows // 400 for file in partition.files] == [1, 1]
    (heaviest,) = {file.heaviest for file in partition.files}
    assert 0 <= heaviest < COUNT


def test_a_share_that_is_divided_is_whole_in_its_parts(slots: SlotBox) -> None:
    shares = [InputShare(0, COUNT, part, 3, 0) for part in range(3)]
    got = consume(slots, gates(produce(slots, few, HASH), HASH, shares))
    assert sorted(chain.from_iterable(got)) == list(range(200))
    assert all(len(part) > 20 for part in got)
    others = [InputShare(0, COUNT, part, 3, 1) for part in range(3)]
    assert consume(slots, gates(produce(slots, few, HASH), HASH, others)) == [list(range(200))] * 3, (
        "another is divided"
    )


def test_parts_of_rows_with_odd_names(slots: SlotBox) -> None:
    def odd(ctx: Any) -> Any:
        return ctx.spark.range(200).selectExpr("id as `a.b`", "id as `c``d`")

    def count(ctx: Any, frame: Any) -> Any:
        return frame.count()

    shares = [InputShare(0, COUNT, part, 2, 0) for part in range(2)]
    inputs = gates(produce(slots, odd, REBALANCE, 1), REBALANCE, shares)
    got = [slots.value(slots.work(count, subtask=i, parallelism=2, inputs=(inputs[i],))) for i in range(2)]
    assert sum(got) == 200
    assert all(50 < rows < 150 for rows in got)


def test_what_is_broadcast_reaches_all(slots: SlotBox) -> None:
    inputs = gates(produce(slots, few, HASH), HASH, SHARES[:2], is_broadcast=True)
    assert consume(slots, inputs) == [list(range(200))] * 2


def test_rows_that_cannot_be_told_apart_stay_together(slots: SlotBox) -> None:
    """Spark hashes no maps: such rows go to one part, and none is lost."""

    def maps(ctx: Any) -> Any:
        return ctx.spark.range(30).selectExpr("map('n', id) as m")

    def count(ctx: Any, frame: Any) -> Any:
        return frame.count()

    produced = produce(slots, maps, REBALANCE, 1)
    inputs = gates(produced, REBALANCE, [InputShare(0, COUNT, part, 2, 0) for part in range(2)])
    got = [slots.value(slots.work(count, subtask=i, parallelism=2, inputs=(inputs[i],))) for i in range(2)]
    assert got == [30, 0]
